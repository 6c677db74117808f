"""Whether what is known implies what is claimed: proved, refuted, or unknown.

Over unbounded sorts quantifiers are instantiated at the terms that a condition speaks of
(z3's E-matching; no model-based search), which proves or gives up. Over a universe of two or three
elements there are no quantifiers left: what is satisfied there is a counterexample.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import z3

from cacheproof.proofs.symbolic.predicates import SUMS
from cacheproof.proofs.symbolic.state import Fact
from cacheproof.proofs.symbolic.values import Formula, negated

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
    """Of every kind one, the likely ones first."""
    kinds = (
        (Among.NONE, False), (Among.PLAIN, False), (Among.ALL, False),
        (Among.PLAIN, True), (Among.ALL, True),
    )  # fmt: skip
    return tuple(Effort(*kind, rlimit) for kind, rlimit in zip(kinds, rlimits, strict=True))


_LITTLE = _efforts(*[RLIMIT // 1000] * 5)
_MUCH = _efforts(RLIMIT // 400, RLIMIT // 200, RLIMIT // 100, RLIMIT // 100, RLIMIT)
SOON = len(_LITTLE)
"""So many efforts prove nearly all that holds, and what is not proved by one of them has cost
little; for the rest a counterexample is looked for first."""
ALL_BUT_THE_GREATEST = len(_LITTLE + _MUCH) - 1
_PLAIN = _LITTLE + _MUCH
_OF_SUMS = tuple(efforts[number] for efforts in (_LITTLE, _MUCH) for number in (0, 3, 1, 2, 4))


def efforts_for(claimed: Formula) -> Sequence[Effort]:
    """All efforts, those of little cost first, the likely ones before others, and the greatest
    last."""
    return _OF_SUMS if isinstance(claimed, z3.ExprRef) and _speaks_of_sums(claimed) else _PLAIN


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
class Verdict:
    """`word` is proved or unknown; `rules` the invariants that a proof leans on; `work` what it
    took, as a share of RLIMIT."""

    word: str
    rules: frozenset[str] = frozenset()
    work: float = 0.0


class Premises:
    """What is known where paths have come to, told to a solver once as far as paths run together.
    What it learns of one claim is gone before it is asked of the next."""

    def __init__(self, seed: int = 0) -> None:
        self._solver = z3.SimpleSolver()
        self._solver.set(auto_config=False, mbqi=False, random_seed=seed)
        self._path: list[Fact] = []
        self._scopes: list[int] = []
        self._kinds: dict[str, Fact] = {}

    def tell(self, path: Sequence[Fact]) -> None:
        """From here on these facts are the premises."""
        shared = _shared(self._path, path)
        if shared == len(path) == len(self._path):
            return
        while len(self._path) > shared:
            self._solver.pop()
            del self._path[self._scopes.pop() :]
        for stop in (shared, len(path)):
            if new := path[len(self._path) : stop]:
                self._solver.push()
                self._scopes.append(len(self._path))
                self._solver.add(*(fact.where_taken for fact in new))
                self._path += new
        self._kinds = {fact.mark: fact for fact in path if fact.mark}

    def imply(self, claimed: Formula, takes: Callable[[Fact], bool], rlimit: int) -> Verdict:
        """Whether those premises that it `takes` imply a claim."""
        solver = self._solver
        solver.push()
        solver.set(rlimit=rlimit)
        solver.add(negated(claimed))
        marks = [(z3.Bool(mark), takes(fact)) for mark, fact in self._kinds.items()]
        before = _work(solver)
        answer = solver.check(*(mark if taken else z3.Not(mark) for mark, taken in marks))
        work = (_work(solver) - before) / RLIMIT
        rules: frozenset[str] = frozenset()
        if answer == z3.unsat:
            leant_on = [self._kinds[str(mark)] for mark in solver.unsat_core()]
            rules = frozenset(rule for fact in leant_on for rule in fact.rules)
        solver.pop()
        return Verdict("proved" if answer == z3.unsat else "unknown", rules, work)


def _shared(one: Sequence[Fact], other: Sequence[Fact]) -> int:
    """How many facts two paths begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    least = min(len(one), len(other))
    return next((number for number, (a, b) in pairs if a is not b), least)


def models(
    facts: Iterable[Fact], claimed: Formula, apart: Iterable[z3.ExprRef]
) -> Iterator[z3.ModelRef]:
    """Models of facts of a bounded universe in which what is claimed does not hold; no two of them
    have all the same values of the terms `apart`."""
    solver = z3.SimpleSolver()
    solver.set("rlimit", RLIMIT)
    solver.add(*(fact.formula for fact in facts), negated(claimed))
    terms = list(apart)
    while solver.check() == z3.sat:
        found = solver.model()
        yield found
        solver.add(z3.Or([term != found.eval(term, model_completion=True) for term in terms]))


def is_possible(facts: Iterable[Fact]) -> bool:
    """Whether facts of a bounded universe have a model."""
    return next(models(facts, False, ()), None) is not None


def _work(solver: z3.Solver) -> int:
    try:
        return int(solver.statistics().get_key_value("rlimit count"))
    except z3.Z3Exception:  # nothing was done yet
        return 0
