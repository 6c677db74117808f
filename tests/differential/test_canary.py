"""A search finds each planted fault, and does not find one that is not there."""

import pytest

from cacheproof.differential.canary import (
    NO_CANARY,
    Canary,
    canaries,
    canary_of,
    finds_canary,
    planted,
)
from cacheproof.differential.examine import rules_for
from cacheproof.differential.generator import manager_trace
from cacheproof.differential.targets.host.faults import FAULTS
from cacheproof.differential.targets.reference import MANAGERS, ReferenceTarget

KINDS = sorted(MANAGERS)
SEEDS = range(20)


def reference_with(fault: str) -> ReferenceTarget:
    return ReferenceTarget(managers=planted(fault))


@pytest.mark.parametrize(
    ("kind", "canary"),
    [(kind, canary) for kind in KINDS for canary in canaries(kind)],
    ids=lambda value: value if isinstance(value, str) else f"{value.contract}-{value.fault}",
)
def test_each_canary_is_found(kind: str, canary: Canary) -> None:
    traces = (manager_trace(seed, kind) for seed in SEEDS)
    assert finds_canary(canary, reference_with, traces)


@pytest.mark.parametrize("kind", KINDS)
def test_a_canary_without_a_fault_is_missed(kind: str) -> None:
    for canary in canaries(kind):
        silent = Canary(canary.contract, "nothing")
        assert not finds_canary(
            silent, reference_with, (manager_trace(seed, kind) for seed in SEEDS[:5])
        )


@pytest.mark.parametrize("kind", KINDS)
def test_every_contract_has_a_canary_or_a_reason(kind: str) -> None:
    with_canary = {canary.contract for canary in canaries(kind)}
    with_reason = {contract for manager, contract in NO_CANARY if manager == kind}
    assert with_canary | with_reason == {rule.id for rule in rules_for(kind, None).all}
    assert not with_canary & with_reason


@pytest.mark.parametrize("kind", KINDS)
def test_consecutive_seeds_go_through_all_canaries(kind: str) -> None:
    all_of_them = canaries(kind)
    turns = [canary_of(seed, kind) for seed in range(100, 100 + len(all_of_them))]
    assert sorted(turns, key=repr) == sorted(all_of_them, key=repr)


def test_a_release_that_keys_per_request_has_canaries_for_its_own_contracts_only() -> None:
    judged = {canary.contract for canary in canaries("encoder_cache", "0.10.1.1")}
    assert {"EC-1", "EC-3", "EC-5", "EC-9", "EC-11", "EC-13", "WM-1"} <= judged
    assert not judged & {"EC-2", "EC-4", "EC-6", "EC-7", "EC-12"}


def test_a_contract_that_the_release_breaks_of_itself_has_no_canary() -> None:
    assert "ED-2" in {canary.contract for canary in canaries("encoder_decoder", "0.33.0")}
    assert "ED-2" not in {
        canary.contract for canary in canaries("encoder_decoder", "0.33.0", broken={"ED-2"})
    }


def test_every_fault_is_used_or_is_the_one_that_does_nothing() -> None:
    used = {canary.fault for kind in KINDS for canary in canaries(kind)}
    assert set(FAULTS) == used | {"nothing"}
