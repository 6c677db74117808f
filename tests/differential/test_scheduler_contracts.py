"""What schedulers of releases break, and the ideal one does not."""

from dataclasses import replace

import msgspec
import pytest

from cacheproof.differential.examine import examine
from cacheproof.differential.judge import Violation
from cacheproof.differential.scheduler_generator import scheduler_trace
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.trace import (
    SCHEMA,
    Add,
    AnyEvent,
    Item,
    Pause,
    Schedule,
    SchedulerConfig,
    SchedulerHeader,
    Trace,
    Update,
)
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.registry import contracts

CONFIG = SchedulerConfig(
    capacity=8,
    compute_budget=8,
    max_num_batched_tokens=16,
    max_num_seqs=4,
    max_model_len=64,
    block_size=16,
    num_blocks=9,
)
OF_SCHEDULER = {rule.id for rule in contracts("scheduler")}
STEPS = (Schedule(), Update()) * 6
ADJACENT = Add("a", 20, (Item("x", 4, 5), Item("y", 9, 5)), max_tokens=2)
LONG = (
    Add("a", 20, (Item("x", 4, 6),), max_tokens=2),
    Add("b", 20, (Item("y", 4, 6),), max_tokens=2),
)


def broken(trace: Trace, semantics: Semantics | None = None) -> dict[str, Violation]:
    """What the reference breaks of the scheduler's contracts."""
    target = ReferenceTarget(semantics)
    violations = examine(trace, target.run([trace])[0], target).violations
    return {name: one for name, one in violations.items() if name in OF_SCHEDULER}


def trace(*events: AnyEvent, **changes: object) -> Trace:
    config = msgspec.structs.replace(CONFIG, **changes)
    return Trace(SchedulerHeader(SCHEMA, "encoder_cache", config), events)


def without(*flags: str) -> Semantics:
    return replace(Semantics.ideal(), **dict.fromkeys(flags, False))


DRAFTER = {"num_speculative_tokens": 1, "drafter": True}
LONE = trace(ADJACENT, *STEPS, **DRAFTER)
WHOLE = trace(*LONG, *STEPS, disable_chunked_mm_input=True, long_prefill_token_threshold=4)


@pytest.mark.parametrize(
    ("trace", "lacking", "contract", "kind"),
    [
        (LONE, ("reads_ahead_without", "releases_ahead"), "LV-1", "drafter"),
        (WHOLE, ("spares_whole_items",), "LV-1", "whole items"),
        (WHOLE, ("spares_whole_items", "keeps_items_whole"), "SC-4", ""),
        (scheduler_trace(99), ("ends_at_whole_items",), "SC-4", ""),
        (scheduler_trace(5), ("takes_after_blocks", "frees_stalled"), "SC-6", ""),
        (
            scheduler_trace(2589),
            ("pads_within_threshold",),
            "SC-8",
            "AssertionError in schedule",
        ),
    ],
)
def test_a_fault_of_releases_breaks_the_contract_that_speaks_of_it(
    trace: Trace, lacking: tuple[str, ...], contract: str, kind: str
) -> None:
    assert broken(trace) == {}
    assert broken(trace, without(*lacking))[contract].kind == kind


def test_a_request_that_never_advances_is_told_with_the_state_that_repeats() -> None:
    violation = broken(LONE, Semantics.of_vllm("0.28.0"))["LV-1"]
    assert "running=('a',)" in violation.why
    assert violation.operation == "schedule"


def test_a_paused_scheduler_is_not_expected_to_go_on() -> None:
    paused = trace(ADJACENT, Schedule(), Update(), Pause("all"), *STEPS)
    assert broken(paused) == {}


def test_a_rejected_request_keeps_what_it_claimed_until_the_next_update() -> None:
    known, twice = Item("y", 0, 2), (Item("y", 0, 2), Item("y", 2, 1))
    others = Add("a", 14, (Item("x", 0, 1), Item("y", 1, 2), Item("z", 3, 1), Item("x", 12, 1)))
    rejected = trace(
        Add("first", 8, (known,)),
        *STEPS,
        others,
        Add("b", 3, twice),
        *STEPS,
        capacity=3,
        long_prefill_token_threshold=3,
    )
    assert broken(rejected, Semantics.of_vllm("0.33.0")) == {}


def test_a_rejected_request_is_not_expected_to_go_on() -> None:
    alone = Add("a", 20, (Item("x", 2, 4), Item("x", 6, 3)))
    two_in_flight = (alone, Schedule(), Schedule(), Update(), Update())
    assert broken(trace(*two_in_flight, async_scheduling=True)) == {}


def test_the_ideal_scheduler_breaks_nothing() -> None:
    assert [seed for seed in range(300) if broken(scheduler_trace(seed))] == []
