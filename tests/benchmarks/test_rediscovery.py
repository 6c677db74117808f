"""The search for public faults: its lanes keep faults apart, and its list names what exists."""

from dataclasses import replace

import pytest

from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import RARE_STATES, Reachability
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.spec.registry import contracts


def met(traces):
    target, reach = ReferenceTarget(), Reachability()
    for trace, result in zip(traces, target.run(traces), strict=True):
        examine(trace, result, target, None, reach)
    return reach.met


def test_limited_walks_never_hold_two_occurrences_but_still_trigger_the_early_release(script):
    traces = [manager_trace(seed) for seed in range(60)]
    limited = met([script.one_occurrence_a_walk(trace) for trace in traces])
    assert met(traces)["duplicate within one walk"] > 0
    assert limited["duplicate within one walk"] == 0
    assert limited["first occurrence consumed, later one pending"] > 0


def test_plain_traces_neither_go_on_nor_read_ahead(script):
    plain = [script.without_sessions_and_drafter(scheduler_trace(seed)) for seed in range(60)]
    assert met([scheduler_trace(seed) for seed in range(60)])["prompt continued"] > 0
    assert met(plain)["prompt continued"] == 0
    assert not any(trace.header.config.drafter for trace in plain)


def test_a_break_of_another_kind_is_not_what_a_search_is_for(script):
    fault = next(one for one in script.FAULTS if one.key == "kept-waiting")
    trace = scheduler_trace(0)
    found = Break("SC-6", "while waiting", fault.lane.name, trace, 0, "", 0.0)
    assert fault.explains(found)
    assert not fault.explains(replace(found, kind="between turns"))
    assert not fault.explains(replace(found, contract="SC-5"))


def test_every_fault_names_contracts_and_a_trigger_that_exist(script):
    known = {rule.id for rule in contracts()}
    for fault in script.FAULTS:
        assert set(fault.contracts) <= known, fault.key
        assert fault.trigger in RARE_STATES, fault.key
        assert fault.trigger in fault.lane.rare, fault.key


@pytest.mark.parametrize(("triggered", "word"), [(99, "not enough"), (100, "silent")])
def test_silence_counts_only_when_the_trigger_was_reached_often_enough(script, triggered, word):
    outcome = script.Outcome("stale-notice", "0.28.0", None, triggered, 1, 120.0)
    assert outcome.word == word
