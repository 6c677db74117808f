"""A prover says of a condition what stands, whichever rules fell."""

from collections.abc import Callable, Iterator

import z3

from cacheproof.proofs.logic import Formula
from cacheproof.proofs.symbolic.deciding.play import Condition
from cacheproof.proofs.symbolic.deciding.prover import Prover
from cacheproof.proofs.symbolic.values.solver import RLIMIT, Among, Effort, SolverVerdict
from cacheproof.proofs.symbolic.values.state import Fact, State

NUMBER, TOTAL = z3.Ints("number total")
ONE, OTHER = Fact(NUMBER > 1, frozenset({"one"})), Fact(NUMBER > 2, frozenset({"other"}))
EFFORTS = [Effort(Among.ALL, True, RLIMIT)]


class OneSum:
    """A play with one sum, which is not negative where a number is not."""

    def sums(self, state: State, proved: Callable[[Formula], SolverVerdict]) -> Iterator[Fact]:
        never_less = proved(NUMBER >= 0)
        if never_less.word == "proved":
            yield Fact(TOTAL >= 0, never_less.rules, of_sums=True)


def test_a_sum_is_bounded_by_a_rule_that_stands_where_another_fell() -> None:
    condition = Condition("call", "total", "rule", State({}, {}, {}, path=(ONE, OTHER)), TOTAL >= 0)
    prover = Prover(OneSum)
    first = prover.decided(condition, (), EFFORTS)
    second = prover.decided(condition, first.rules, EFFORTS)
    assert (first.word, second.word) == ("proved", "proved")
    assert first.rules | second.rules == {"one", "other"}
    assert prover.decided(condition, ("one", "other"), EFFORTS).word == "unknown"
