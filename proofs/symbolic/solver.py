"""Whether what is known implies what is claimed: proved, refuted, or unknown.

Over unbounded sorts quantifiers are instantiated at the terms that a condition speaks of
(z3's E-matching; no model-based search), which proves or gives up. Over a universe of two or three
elements there are no quantifiers left: what is satisfied there is a counterexample.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import z3

from cacheproof.proofs.symbolic.state import Fact
from cacheproof.proofs.symbolic.values import Formula, negated

RLIMIT = 4_000_000
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


EFFORTS = (
    Effort(Among.NONE, sums=False, rlimit=RLIMIT // 40),
    Effort(Among.PLAIN, sums=False, rlimit=RLIMIT // 20),
    Effort(Among.ALL, sums=False, rlimit=RLIMIT // 10),
    Effort(Among.PLAIN, sums=True, rlimit=RLIMIT // 10),
    Effort(Among.ALL, sums=True, rlimit=RLIMIT),
)


_STANDS = "stands "


@dataclass(frozen=True)
class Verdict:
    """`word` is proved, refuted or unknown; `rules` the invariants that a proof leans on; `work`
    what it took, as a share of RLIMIT; `model` the counterexample of a refuted condition."""

    word: str
    rules: frozenset[str] = frozenset()
    work: float = 0.0
    model: z3.ModelRef | None = None


class Known:
    """Facts, given to a solver once, against which claims are checked."""

    def __init__(self, facts: Iterable[Fact], effort: Effort, seed: int) -> None:
        self._effort = effort
        self._solver = z3.SimpleSolver()
        self._solver.set("auto_config", False)
        self._solver.set("mbqi", False)
        self._solver.set("random_seed", seed)
        self._solver.set("rlimit", effort.rlimit)
        self._marks: dict[str, z3.BoolRef] = {}
        for fact in facts:
            self._add(fact)

    def _add(self, fact: Fact) -> None:
        marks = [self._marks.setdefault(rule, z3.Bool(_STANDS + rule)) for rule in fact.rules]
        self._solver.add(z3.Implies(z3.And(marks), fact.formula) if marks else fact.formula)

    def check(
        self, claimed: Formula, without: Collection[str] = (), more: Sequence[Fact] = ()
    ) -> Verdict:
        """Whether the facts imply the claim, `without` those of some rules."""
        self._solver.push()
        for fact in more:
            self._add(fact)
        self._solver.add(negated(claimed))
        marks = [mark for rule, mark in self._marks.items() if rule not in without]
        before = _work(self._solver)
        answer = self._solver.check(*marks)
        work = (_work(self._solver) - before) / RLIMIT
        if answer == z3.unsat:
            rules = {str(mark).removeprefix(_STANDS) for mark in self._solver.unsat_core()}
            verdict = Verdict("proved", frozenset(rules), work)
        elif answer == z3.sat:
            verdict = Verdict("refuted", frozenset(), work, self._solver.model())
        else:
            verdict = Verdict("unknown", frozenset(), work)
        self._solver.pop()
        return verdict


def satisfying(facts: Iterable[Fact], claimed: Formula) -> z3.ModelRef | None:
    """A model of facts of a bounded universe in which what is claimed does not hold."""
    solver = z3.SimpleSolver()
    solver.set("rlimit", RLIMIT)
    solver.add(*(fact.formula for fact in facts), negated(claimed))
    return solver.model() if solver.check() == z3.sat else None


def _work(solver: z3.Solver) -> int:
    statistics = solver.statistics()
    counts = {key: statistics.get_key_value(key) for key in statistics.keys()}  # noqa: SIM118
    return int(counts.get("rlimit count", 0))
