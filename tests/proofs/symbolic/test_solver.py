"""A solver that is told once what paths have in common knows of each path what holds there."""

import pytest
import z3

from cacheproof.proofs.symbolic.values.solver import RLIMIT, Possible, Premises, SolverVerdict
from cacheproof.proofs.symbolic.values.state import Fact

A, B, C = z3.Ints("a b c")
BELOW = Fact(A < B, frozenset({"EC-1"}))
ABOVE = Fact(B < C, frozenset({"EC-2"}))
START = Fact(A > 0)


def asked(
    premises: Premises, path: list[Fact], claimed: z3.BoolRef, without: str = ""
) -> SolverVerdict:
    return premises.imply(path, claimed, lambda fact: without not in fact.rules, RLIMIT)


def test_a_proof_names_the_rules_that_it_leans_on() -> None:
    premises = Premises()
    assert asked(premises, [START, BELOW, ABOVE], A < C).rules == {"EC-1", "EC-2"}
    assert asked(premises, [START, BELOW, ABOVE], B < C).rules == {"EC-2"}
    assert asked(premises, [START, BELOW, ABOVE], A >= 1).rules == frozenset()


@pytest.mark.parametrize("without", ["EC-1", "EC-2"])
def test_what_is_not_taken_proves_nothing(without: str) -> None:
    premises = Premises()
    assert asked(premises, [START, BELOW, ABOVE], A < C).word == "proved"
    assert asked(premises, [START, BELOW, ABOVE], A < C, without).word == "unknown"
    assert asked(premises, [START, BELOW, ABOVE], A < C).word == "proved"


def test_what_another_path_knows_proves_nothing() -> None:
    premises = Premises()
    assert asked(premises, [START, BELOW, Fact(B == 7)], A < 7).word == "proved"
    assert asked(premises, [START, BELOW, Fact(B == 9)], A < 7).word == "unknown"
    assert asked(premises, [START, BELOW], A < 9).word == "unknown"
    assert asked(premises, [START, BELOW, Fact(B == 9)], A < 9).word == "proved"


def test_what_was_claimed_before_proves_nothing() -> None:
    premises = Premises()
    assert asked(premises, [START], A < 1).word == "unknown"
    assert asked(premises, [START], A > 0).word == "proved"
    assert asked(premises, [START], A < 0).word == "unknown"


def test_a_path_is_possible_whatever_another_was() -> None:
    possible, low, high = Possible(), Fact(A < 2), Fact(A > 5)
    assert possible([START, low])
    assert not possible([START, low, high])
    assert possible([START, high])
    assert possible([START])
