"""The encoder cache manager of the reference is proved by its text, and changes of it are not."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from cacheproof.proofs.symbolic.checking.mutants import ClassMutant, mutants
from cacheproof.proofs.symbolic.checking.twins import refuted_of
from cacheproof.proofs.symbolic.deciding.prove import RuleOutcome
from cacheproof.proofs.symbolic.deciding.refuter import Refuter
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects.encoder_cache import of_reference
from cacheproof.proofs.symbolic.values.values import Universe
from cacheproof.spec.encoder_cache import COMPONENT
from cacheproof.spec.registry import contracts
from tests.proofs.symbolic.negated import is_refuted_negated

SUBJECT = of_reference()
CONTRACTS = [
    rule.id for rule in contracts(COMPONENT) if rule.component == COMPONENT and rule.id != "EC-8b"
]


@pytest.fixture(scope="module")
def outcomes(prove_alone: Callable[[str], Mapping[str, RuleOutcome]]) -> Mapping[str, RuleOutcome]:
    return prove_alone("encoder_cache")


@pytest.mark.full
def test_every_contract_is_proved(outcomes: Mapping[str, RuleOutcome]) -> None:
    assert {one: outcomes[one].word for one in CONTRACTS} == dict.fromkeys(CONTRACTS, "proved")


@pytest.mark.full
def test_what_only_needs_a_promise_is_refuted_and_nothing_is_unknown(
    outcomes: Mapping[str, RuleOutcome],
) -> None:
    others = {rule for rule, outcome in outcomes.items() if outcome.word != "proved"}
    assert others == {"size_is_fixed"}
    assert outcomes["size_is_fixed"].word == "refuted"


@pytest.mark.full
def test_the_hardest_condition_takes_less_than_a_tenth_of_what_it_may(
    outcomes: Mapping[str, RuleOutcome],
) -> None:
    assert max(one.work_max for one in outcomes.values() if one.word == "proved") < 0.1


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_negated_contract_is_refuted(contract: str) -> None:
    assert is_refuted_negated(SUBJECT, contract)


LEFT_OUT = [
    one
    for one in mutants(SUBJECT.sources["m"])
    if one.method != "__init__" and "without 'self.num_free" in one.name
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("mutant", LEFT_OUT, ids=lambda one: one.name)
def test_an_update_of_a_counter_left_out_breaks_contracts(mutant: ClassMutant) -> None:
    assert refuted_of(SUBJECT, mutant, CONTRACTS)


def test_a_counterexample_names_the_state_and_the_call() -> None:
    (mutant,) = [
        one for one in LEFT_OUT if one.name.startswith("allocate") and "free_slots" in one.name
    ]
    broken = replace(SUBJECT, sources={**SUBJECT.sources, "m": mutant.source})
    (allocate,) = [one for one in broken.operations if one.name == "allocate"]
    found = Refuter(broken, [RuleLanguage(Universe(2))]).counterexample(allocate, "EC-1")
    assert found is not None
    assert found.sentence.startswith("allocate of i")
    assert "num_free_slots=" in found.sentence
    assert "shows h" in found.sentence
