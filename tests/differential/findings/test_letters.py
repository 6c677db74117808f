"""Each letter of a contract's formula is explained."""

import ast

import pytest

from cacheproof.differential.findings import letters
from cacheproof.differential.findings.letters import letters_of
from cacheproof.differential.judges import rules  # noqa: F401  (registers all contracts)
from cacheproof.spec.registry import Contract, by_id, contracts


def unexplained(rule: Contract) -> set[str]:
    names = {one.id for one in ast.walk(rule.expression.tree) if isinstance(one, ast.Name)}
    short = {name for name in names if len(name) == 1 or name in ("pre", "post")}
    return short - dict(letters_of(rule, rule.expression.text)).keys()


def test_every_letter_of_every_contract_is_explained() -> None:
    assert {rule.id: found for rule in contracts() if (found := unexplained(rule))} == {}


def test_a_letter_that_is_not_explained_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(letters.BOUND, "i")
    assert unexplained(by_id("SC-9")) == {"i"}


def test_letters_come_in_the_order_of_the_formula_and_names_are_none() -> None:
    told = letters_of(by_id("SC-9"), "for r = 'b i': for i = 0: i not in w.withheld[r] is false")
    assert [letter for letter, _ in told] == ["r", "i", "w"]
    assert dict(told)["w"].startswith("what the workers lack of the requests")


def test_states_around_a_call_are_told_apart() -> None:
    told = dict(letters_of(by_id("EC-6"), "pre.size, post.size"))
    assert told["pre"].endswith(", before the call")
    assert told["post"].endswith(", after the call")
