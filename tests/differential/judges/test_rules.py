"""Whoever asks which contracts judge is told of all of them."""

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import pytest

from cacheproof import spec
from cacheproof.differential.judges.rules import ENGINE, SCHEDULER, manager_component
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.spec import block_pool, entry_table, registry
from cacheproof.spec.registry import Component, contracts

JUDGED = {
    *(manager_component(lane.manager) for lane in LANES.values()),
    *(SCHEDULER, ENGINE),  # beside the managers of their lanes
    entry_table.COMPONENT,  # where tables are explored
    *("media_stream", "media_identifier"),  # where keys are proved
}

ASKED = """
import cacheproof.differential.judges.rules
from cacheproof.spec.registry import contracts

print(*(rule.id for rule in contracts()))
"""


def test_every_contract_is_known_where_rules_are_asked_for_whatever_was_imported_before() -> None:
    for module in iter_modules(spec.__path__):
        import_module(f"{spec.__name__}.{module.name}")
    told = subprocess.run(
        [sys.executable, "-c", ASKED], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(told) == {rule.id for rule in contracts()}


def unjudged() -> list[str]:
    return [rule.id for rule in contracts() if JUDGED.isdisjoint(rule.applies_to)]


def test_every_contract_applies_to_what_somebody_judges() -> None:
    assert unjudged() == []


def test_one_that_applies_to_nothing_that_is_driven_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_CONTRACTS", dict(registry._CONTRACTS))

    @Component(block_pool.COMPONENT).state("XX-1", "safety", "A title", source="a test")
    def some_are_free(s: block_pool.PoolState) -> bool:
        return s.num_free > 0

    assert unjudged() == ["XX-1"]
