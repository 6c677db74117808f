"""Whether what is known implies what is claimed: proved, refuted, or unknown.

Over unbounded sorts quantifiers are instantiated at the terms that a condition speaks of
(z3's E-matching; no model-based search), which proves or gives up. Over a universe of two or three
elements there are no quantifiers left: what is satisfied there is a counterexample.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import z3

from cacheproof.proofs.symbolic.predicates import SUMS
from cacheproof.proofs.symbolic.state import Fact, mark_of
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


_PLAIN = (
    Effort(Among.NONE, sums=False, rlimit=RLIMIT // 400),
    Effort(Among.PLAIN, sums=False, rlimit=RLIMIT // 200),
    Effort(Among.ALL, sums=False, rlimit=RLIMIT // 100),
    Effort(Among.PLAIN, sums=True, rlimit=RLIMIT // 100),
    Effort(Among.ALL, sums=True, rlimit=RLIMIT),
)
_OF_SUMS = tuple(_PLAIN[number] for number in (0, 3, 1, 2, 4))
SOON = 2
"""So many efforts prove most of what holds; for the rest a counterexample is looked for first."""


def efforts_for(claimed: Formula) -> Sequence[Effort]:
    """All efforts, the likely ones first, the cheapest before all and the greatest last."""
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


def check(facts: Iterable[Fact], claimed: Formula, rlimit: int, seed: int = 0) -> Verdict:
    """Whether facts imply a claim. Each time in a new solver: what one has learned of another claim
    would make verdicts hang on the order of questions."""
    solver = z3.SimpleSolver()
    solver.set("auto_config", False)
    solver.set("mbqi", False)
    solver.set("random_seed", seed)
    solver.set("rlimit", rlimit)
    known = list(facts)
    solver.add(*(fact.while_it_stands for fact in known), negated(claimed))
    marks = {mark_of(rule): rule for rule in sorted({rule for one in known for rule in one.rules})}
    before = _work(solver)
    answer = solver.check(*marks)
    work = (_work(solver) - before) / RLIMIT
    if answer == z3.unsat:
        return Verdict("proved", frozenset(marks[one] for one in solver.unsat_core()), work)
    return Verdict("unknown", frozenset(), work)


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
