"""Rare states of schedulers: each is met by a trace, and not by one that nearly does."""

from collections.abc import Iterable
from functools import partial

import pytest

from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import RARE_STATES, Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Group, Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import (
    Abort,
    Chunk,
    Elsewhere,
    Received,
    Schedule,
    Transfer,
)
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.reference.semantics import Semantics
from tests.differential import scheduler_traces

STEP = (Schedule(), Update())
WINDOW = Group("sliding_window", 8, 8)
SPEECH = (Group("full", 8), Group("cross", 8))


MET_BY_THE_RUNNER = {
    "rows of known origin read",
    "slots of known origin read",
    "best two logits nearly tie",
}
"""Looked for by tests/gpu_runner: no lane runs a tagged runner, and what ties is up to weights."""


trace = partial(scheduler_traces.trace, block_size=8)


def met(one: Trace, semantics: Semantics | None = None) -> set[str]:
    """Names of the states that the ideal reference meets, or that of other semantics."""
    target, reach = ReferenceTarget(semantics), Reachability()
    (result,) = target.run([one])
    assert examine(one, result, target, None, reach).illegal is None
    return set(reach.met)


def loading(*events: AnyEvent, later: bool, policy: str = "recompute", **changes: object) -> Trace:
    """The KV of `a` comes from elsewhere, all of its two full blocks."""
    begun = (Add("a", 20, max_tokens=2), Elsewhere("a", 16, later), Schedule())
    return trace(*begun, *events, kv_connector=policy, **changes)


def in_turn(*items: Item) -> Iterable[AnyEvent]:
    """Requests of one item each, one after the other."""
    for number, item in enumerate(items):
        yield from (Add(f"r{number}", 10, (item,)), *STEP)


def ended_in_flight(*, asynchronous: bool) -> Trace:
    steps = (Schedule(), Schedule()) if asynchronous else STEP
    late = (Abort("a"), Update(), Schedule())
    arrived = Add("a", 8, max_tokens=8)
    return trace(arrived, *steps, *late, kv_connector="recompute", async_scheduling=asynchronous)


def speaking(*, num_blocks: int) -> Trace:
    speech = [Add(name, 8, (Item(name, 0, 4),), max_tokens=12) for name in ("a", "b")]
    return trace(
        *speech,
        *STEP * 24,
        manager="encoder_decoder",
        groups=SPEECH,
        num_blocks=num_blocks,
        max_model_len=16,
        prefix_caching=False,
        chunked_prefill=False,
        disable_chunked_mm_input=True,
    )


def crowded(*, num_blocks: int = 5, **changes: object) -> Trace:
    """Two requests, one of which is preempted in the middle of its item where blocks are few."""
    first = Add("a", 7, max_tokens=8)
    second = Add("b", 26, (Item("x", 9, 16),), max_tokens=4)
    few = {"capacity": 16, "max_model_len": 32, "scheduler_reserve_full_isl": False}
    changes = {"max_num_batched_tokens": 9, **few, **changes}
    return trace(first, second, *STEP * 12, num_blocks=num_blocks, **changes)


DRAFTER = {"num_speculative_tokens": 2, "drafter": True}
WHOLE = {"disable_chunked_mm_input": True, "max_num_batched_tokens": 8}
DECODING = (Add("d", 4, max_tokens=9), *STEP)
TWO = (Item("x", 0, 6), Item("y", 6, 6))
FAILED = (Received("a", 0), Update())
SESSION = Add("s", 6, resumable=True)
CASES = {
    "load under way": (loading(later=True), loading(later=False)),
    "load failed": (
        loading(*FAILED, later=True),
        loading(Received("a"), Update(), later=True),
    ),
    "ended while loading": (
        loading(Abort("a"), later=True),
        loading(Received("a"), Update(), Abort("a"), later=True),
    ),
    "caching put off until loaded": (
        loading(Update(), Add("b", 20), Schedule(), later=True),
        loading(Update(), Add("b", 20, salt="own"), Schedule(), later=True),
    ),
    "KV loaded within a step": (loading(later=False), loading(later=True)),
    "KV loaded within a step failed": (
        loading(*FAILED, later=False),
        loading(Update(), later=False),
    ),
    "thrown back for a failed load": (
        loading(*FAILED, later=False),
        loading(*FAILED, later=False, policy="fail"),
    ),
    "ended for a failed load": (
        loading(*FAILED, later=False, policy="fail"),
        loading(*FAILED, later=False),
    ),
    "KV sent": (
        trace(Add("a", 8, sends=True), *STEP, Schedule(), kv_connector="recompute"),
        trace(Add("a", 8), *STEP, Schedule(), kv_connector="recompute"),
    ),
    "free put off": (ended_in_flight(asynchronous=True), ended_in_flight(asynchronous=False)),
    "transfer failed": (
        trace(
            Transfer("x", "pending"),
            Add("a", 8, (Item("x", 0, 4),)),
            Schedule(),
            Transfer("x", "failed"),
            ec_connector=True,
        ),
        trace(Add("a", 8, (Item("x", 0, 4),)), Transfer("x", "failed"), ec_connector=True),
    ),
    "encoded anew after an eviction": (
        trace(*in_turn(Item("x", 0, 8), Item("y", 0, 8), Item("x", 0, 8)), prefix_caching=False),
        trace(*in_turn(Item("x", 0, 8), Item("y", 0, 8), Item("z", 0, 8)), prefix_caching=False),
    ),
    "stopped before an item": (
        trace(Add("a", 14, TWO), *STEP),
        trace(Add("a", 14, TWO), *STEP, capacity=12, compute_budget=12),
    ),
    "rolled back before an item": (
        trace(Add("a", 12, (Item("x", 4, 6),)), *STEP, **WHOLE),
        trace(Add("a", 12, (Item("x", 4, 6),)), *STEP, max_num_batched_tokens=8),
    ),
    "whole item that does not fit": (
        trace(*DECODING, Add("a", 14, (Item("x", 4, 8),)), *STEP * 3, **WHOLE),
        trace(*DECODING, Add("a", 14, (Item("x", 4, 7),)), *STEP * 3, **WHOLE),
    ),
    "drafter at an item's edge": (
        trace(Add("a", 20, (Item("x", 16, 4),)), *STEP, **DRAFTER),
        trace(Add("a", 20, (Item("x", 15, 4),)), *STEP, **DRAFTER),
    ),
    "drafts rejected": (
        trace(Add("a", 8, max_tokens=9), *(Schedule(), Update(accepts=(0,))) * 3, **DRAFTER),
        trace(Add("a", 8, max_tokens=9), *(Schedule(), Update(accepts=(2,))) * 3, **DRAFTER),
    ),
    "preemption inside an item": (crowded(), crowded(num_blocks=9)),
    "hit after preemption": (crowded(), crowded(prefix_caching=False)),
    "reused media id rejected": (
        trace(*in_turn(Item("x", 0, 4), Item("x", 0, 3))),
        trace(*in_turn(Item("x", 0, 4), Item("x", 0, 4))),
    ),
    "session waits for more prompt": (
        trace(SESSION, *STEP),
        trace(SESSION, Chunk("s", 2), *STEP),
    ),
    "prompt continued": (trace(SESSION, *STEP, Chunk("s", 2)), trace(SESSION, Chunk("s", 2))),
    "decoder item encoded again": (speaking(num_blocks=5), speaking(num_blocks=9)),
    "blocks behind a window given back": (
        trace(Add("a", 40), *STEP * 3, groups=(WINDOW,)),
        trace(Add("a", 40), *STEP * 3, groups=(Group("full", 8),)),
    ),
}


@pytest.mark.parametrize("state", CASES)
def test_a_state_is_met_where_it_comes_about_and_nowhere_else(state: str) -> None:
    meeting, missing = CASES[state]
    assert state in met(meeting)
    assert state not in met(missing)


def test_a_scheduler_that_gives_back_at_once_puts_no_free_off() -> None:
    """Over traces in which one that does not meets the state."""
    traces = [LANES["scheduler with KV loads"].trace(seed, None) for seed in range(60)]
    assert any("free put off" in met(one) for one in traces)
    at_once = Semantics.ideal().without("kv_cache.defers_frees")
    assert not any("free put off" in met(one, at_once) for one in traces)


def test_a_scheduler_that_takes_before_it_has_blocks_stalls_after_a_claim() -> None:
    trace = scheduler_trace(5)
    takes_early = Semantics.ideal().without("scheduler.takes_after_blocks")
    assert "stalled after a claim" in met(trace, takes_early)
    assert "stalled after a claim" in met(trace, Semantics.of_vllm("0.33.0"))
    assert "stalled after a claim" not in met(trace)


def test_every_state_is_looked_for_in_some_lane_or_is_one_of_the_runner_s_own_tests() -> None:
    in_lanes = set().union(*(lane.rare for lane in LANES.values()))
    assert not in_lanes & MET_BY_THE_RUNNER
    assert in_lanes | MET_BY_THE_RUNNER == set(RARE_STATES)
