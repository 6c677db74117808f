"""The search for public faults: its lanes keep faults apart, and its list names what exists."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cacheproof.differential.examine import examine
from cacheproof.differential.generator import manager_trace
from cacheproof.differential.reachability import RARE_STATES, Reachability
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.spec.registry import contracts

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rediscovery.py"


@pytest.fixture(scope="module")
def rediscovery() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rediscovery", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["rediscovery"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def met(traces):
    target, reach = ReferenceTarget(), Reachability()
    for trace, result in zip(traces, target.run(traces), strict=True):
        examine(trace, result, target, None, reach)
    return reach.met


def test_limited_walks_never_hold_two_occurrences_but_still_trigger_the_early_release(rediscovery):
    traces = [manager_trace(seed) for seed in range(60)]
    limited = met([rediscovery.one_occurrence_a_walk(trace) for trace in traces])
    assert met(traces)["duplicate within one walk"] > 0
    assert limited["duplicate within one walk"] == 0
    assert limited["first occurrence consumed, later one pending"] > 0


def test_every_fault_names_contracts_and_a_trigger_that_exist(rediscovery):
    known = {rule.id for rule in contracts()}
    for fault in rediscovery.FAULTS:
        assert set(fault.contracts) <= known, fault.key
        assert fault.trigger in RARE_STATES, fault.key
        assert fault.trigger in fault.lane.rare, fault.key


@pytest.mark.parametrize(("triggered", "word"), [(99, "not enough"), (100, "silent")])
def test_silence_counts_only_when_the_trigger_was_reached_often_enough(
    rediscovery, triggered, word
):
    outcome = rediscovery.Outcome("stale-notice", "0.28.0", None, triggered, 1, 120.0)
    assert outcome.word == word
