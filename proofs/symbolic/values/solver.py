"""Whether what is known implies what is claimed: proved, refuted, or unknown.

Over unbounded sorts quantifiers are instantiated at the terms that a condition speaks of
(z3's E-matching; no model-based search), which proves or gives up. Over a universe of two or three
elements there are no quantifiers left: what is satisfied there is a counterexample.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import z3

from cacheproof.proofs.logic import Formula, negated
from cacheproof.proofs.symbolic.values.state import Fact
from cacheproof.proofs.symbolic.values.words import SUMS

RLIMIT = 40_000_000
"""What one check may cost in z3's own measure of work, which no other load on a machine changes."""


class Among(Enum):
    """Which facts of invariants take part beside the rule's own: none; those that do not say of
    every element that there is another one; or all."""

    NONE = 0
    PLAIN = 1
    ALL = 2


@dataclass(frozen=True)
class Effort:
    """A way to try: which facts take part, whether those of sums do, and what it may cost. Most
    conditions need few facts, and then many only lead astray."""

    among: Among
    sums: bool
    rlimit: int


def _efforts(*rlimits: int) -> tuple[Effort, ...]:
    """One effort of every kind, the likely kinds first."""
    kinds = (
        (Among.NONE, False), (Among.PLAIN, False), (Among.ALL, False),
        (Among.PLAIN, True), (Among.ALL, True),
    )  # fmt: skip
    return tuple(Effort(*kind, rlimit) for kind, rlimit in zip(kinds, rlimits, strict=True))


_LITTLE = _efforts(*[RLIMIT // 1000] * 5)
_MUCH = _efforts(RLIMIT // 400, RLIMIT // 200, RLIMIT // 100, RLIMIT // 100, RLIMIT)
SOON = 1
"""Efforts before a counterexample is looked for. The first proves most that holds, and to refute
the rest costs less than to see all kinds of efforts fail."""
ALL_BUT_THE_GREATEST = len(_LITTLE + _MUCH) - 1
_PLAIN = _LITTLE + _MUCH
_OF_SUMS = tuple(efforts[number] for efforts in (_LITTLE, _MUCH) for number in (0, 3, 1, 2, 4))


def efforts_for(claimed: Formula) -> Iterator[Effort]:
    """All efforts, those of little cost first, the likely ones before others, and the greatest
    last."""
    # most claims need no other effort: only then is the formula searched for sums
    yield _PLAIN[0]
    sums = isinstance(claimed, z3.ExprRef) and _speaks_of_sums(claimed)
    yield from (_OF_SUMS if sums else _PLAIN)[1:]


def _speaks_of_sums(formula: z3.ExprRef) -> bool:
    seen: set[int] = set()
    to_do = [formula]
    while to_do:
        one = to_do.pop()
        if one.get_id() in seen:
            continue
        seen.add(one.get_id())
        if z3.is_quantifier(one):
            to_do.append(one.body())
        elif z3.is_app(one):
            if one.decl().name() in SUMS:
                return True
            to_do += one.children()
    return False


@dataclass(frozen=True)
class SolverVerdict:
    """`word` is proved or unknown; `rules` the invariants that a proof leans on; `work` what it
    took, as a share of RLIMIT."""

    word: str
    rules: frozenset[str] = frozenset()
    work: float = 0.0


def shared_by(one: Sequence[object], other: Sequence[object]) -> int:
    """How many objects two sequences begin with that are the same, such as facts of two paths."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a is not b), min(len(one), len(other)))


class ToldSolver:
    """A solver that is told of paths, in scopes that begin where paths part, so that it takes in
    once what they have in common. Of a fact it is told what that `says`."""

    def __init__(self, solver: z3.Solver, says: Callable[[Fact], Formula]) -> None:
        self.solver = solver
        self._says = says
        self._path: list[Fact] = []
        self._begins: list[int] = []

    def tell(self, path: Sequence[Fact]) -> None:
        """Have the solver know the facts of this path, and no others."""
        shared = shared_by(self._path, path)
        while len(self._path) > shared:
            self.solver.pop()
            del self._path[self._begins.pop() :]
        # in two scopes: what is shared stays when the next path parts here as well
        for stop in (shared, len(path)):
            if new := path[len(self._path) : stop]:
                self.solver.push()
                self._begins.append(len(self._path))
                self.solver.add(*map(self._says, new))
                self._path += new


class Premises:
    """Asks of claims whether what is known where a path has come to implies them. What a solver
    learns of a claim goes with the claim, and one that gave up goes as a whole."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._literals: dict[str, tuple[z3.BoolRef, z3.BoolRef]] = {}
        self._begin_anew()

    def _begin_anew(self) -> None:
        solver = z3.SimpleSolver()
        # by E-matching alone, which proves or gives up: no model of unbounded sorts is looked for
        solver.set(auto_config=False, mbqi=False, random_seed=self._seed)
        self._told = ToldSolver(solver, lambda fact: fact.where_taken)

    def imply(
        self, path: Sequence[Fact], claimed: Formula, takes: Callable[[Fact], bool], rlimit: int
    ) -> SolverVerdict:
        """Whether the facts of a path imply a claim: all those without a mark, and of the others
        those that it `takes`."""
        self._told.tell(path)
        solver = self._told.solver
        solver.push()
        solver.set(rlimit=rlimit)
        solver.add(negated(claimed))
        kinds = {fact.mark: fact for fact in path if fact.mark}
        marks = {mark: self._literal(mark, takes(fact)) for mark, fact in kinds.items()}
        before = _work(solver)
        answer = solver.check(*marks.values())
        work = (_work(solver) - before) / RLIMIT
        if answer != z3.unsat:
            self._begin_anew()  # z3 may crash where it leaves a scope in which it gave up
            return SolverVerdict("unknown", frozenset(), work)
        core = {one.get_id() for one in solver.unsat_core()}
        leant_on = [kinds[mark] for mark, one in marks.items() if one.get_id() in core]
        solver.pop()
        rules = frozenset(rule for fact in leant_on for rule in fact.rules)
        return SolverVerdict("proved", rules, work)

    def _literal(self, mark: str, taken: bool) -> z3.BoolRef:
        """The assumption that facts with a mark are taken, or that they are not."""
        if mark not in self._literals:
            self._literals[mark] = z3.Bool(mark), z3.Not(z3.Bool(mark))
        return self._literals[mark][0 if taken else 1]


def models(
    facts: Iterable[Fact], claimed: Formula, apart: Iterable[z3.ExprRef]
) -> Iterator[z3.ModelRef]:
    """Models of facts of a bounded universe in which what is claimed does not hold; no two of them
    have all the same values of the terms `apart`."""
    solver = z3.SimpleSolver()
    solver.set("rlimit", RLIMIT)
    solver.add(*(fact.formula for fact in facts), negated(claimed))
    terms = list(apart)
    # unknown ends it too: what has no model is no counterexample
    while solver.check() == z3.sat:
        found = solver.model()
        yield found
        # of no terms this is False, so one model is all
        solver.add(z3.Or([term != found.eval(term, model_completion=True) for term in terms]))


def is_possible(facts: Iterable[Fact]) -> bool:
    """Whether facts of a bounded universe have a model."""
    return next(models(facts, False, ()), None) is not None


class Possible:
    """Whether paths of a bounded universe can be gone; one of which a solver cannot tell can."""

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        solver = z3.SimpleSolver()
        solver.set("rlimit", RLIMIT)
        self._told = ToldSolver(solver, lambda fact: fact.formula)

    def __call__(self, path: Sequence[Fact]) -> bool:
        self._told.tell(path)
        answer = self._told.solver.check()
        # as in `Premises.imply`: z3 may crash where it leaves a scope in which it gave up
        if answer == z3.unknown:
            self._begin_anew()
        return bool(answer != z3.unsat)


def _work(solver: z3.Solver) -> int:
    try:
        return int(solver.statistics().get_key_value("rlimit count"))
    except z3.Z3Exception:  # nothing was done yet
        return 0
