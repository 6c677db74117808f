"""What schedulers of releases break, and the ideal one does not."""

from collections import Counter
from functools import partial

import msgspec
import pytest

from cacheproof.differential.generators.encoder_decoder import encoder_decoder_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.scheduler_kv import KVMirror
from cacheproof.differential.judges.scheduler_position import SchedulerPosition
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Adapter, Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import (
    Chunk,
    Elsewhere,
    Pause,
    Received,
    Schedule,
    Transfer,
)
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.differential.traces.trace_file import parse
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.registry import contracts
from cacheproof.spec.scheduler_kv import KVReads
from tests.differential.scheduler_traces import CONFIG, trace

OF_SCHEDULER = {rule.id for rule in contracts("scheduler")}
STEPS = (Schedule(), Update()) * 6
ADJACENT = Add("a", 20, (Item("x", 4, 5), Item("y", 9, 5)), max_tokens=2)
LONG = (
    Add("a", 20, (Item("x", 4, 6),), max_tokens=2),
    Add("b", 20, (Item("y", 4, 6),), max_tokens=2),
)


def broken(
    trace: Trace,
    semantics: Semantics | None = None,
    *,
    release: str | None = None,
    fault: str | None = None,
) -> dict[str, Violation]:
    """What the reference breaks of the scheduler's contracts, judged as a release."""
    target = ReferenceTarget(semantics, release=release)
    violations = examine(trace, target.run([trace], fault)[0], target).violations
    return {name: one for name, one in violations.items() if name in OF_SCHEDULER}


def without(*flags: str) -> Semantics:
    return Semantics.ideal().without(*flags)


DRAFTER = {"num_speculative_tokens": 1, "drafter": True}
LONE = trace(ADJACENT, *STEPS, **DRAFTER)
WHOLE = trace(*LONG, *STEPS, disable_chunked_mm_input=True, long_prefill_token_threshold=4)


@pytest.mark.parametrize(
    ("trace", "lacking", "contract", "kind"),
    [
        (LONE, ("scheduler.reads_ahead_without", "scheduler.releases_ahead"), "LV-1", "drafter"),
        (WHOLE, ("scheduler.spares_whole_items",), "LV-1", "whole items"),
        (WHOLE, ("scheduler.spares_whole_items", "scheduler.keeps_items_whole"), "SC-4", ""),
        (scheduler_trace(99), ("scheduler.ends_at_whole_items",), "SC-4", ""),
        (scheduler_trace(21), ("scheduler.reads_ahead_sparsely",), "SC-2", ""),
        (
            scheduler_trace(5),
            ("scheduler.takes_after_blocks", "encoder_cache.frees_stalled"),
            "SC-6",
            "while waiting",
        ),
        (scheduler_trace(162), ("scheduler.keeps_passed_over_in_order",), "SC-7", ""),
        (scheduler_trace(484), ("scheduler.waits_for_long_prompts",), "SC-7", ""),
        (
            scheduler_trace(2589),
            ("scheduler.pads_within_threshold",),
            "SC-8",
            "AssertionError in schedule: a threshold within drafts",
        ),
    ],
)
def test_a_fault_of_releases_breaks_the_contract_that_speaks_of_it(
    trace: Trace, lacking: tuple[str, ...], contract: str, kind: str
) -> None:
    assert broken(trace) == {}
    assert broken(trace, without(*lacking))[contract].kind == kind


def test_more_drafts_than_a_step_takes_keep_a_lone_request_waiting() -> None:
    path = kept_traces()["padded-beyond-a-step"]
    trace = parse(path.read_bytes().splitlines(), path.name)
    assert broken(trace) == {}
    assert broken(trace, without("scheduler.pads_within_threshold"))["LV-1"].kind == "padded"


@pytest.mark.parametrize("release", ["0.12.0", "0.33.0"])
def test_a_hit_on_what_a_preempted_request_left_uncomputed_is_told_apart(release: str) -> None:
    path = kept_traces()["uncomputed-hit"]
    trace = parse(path.read_bytes().splitlines(), path.name)
    found = broken(trace, Semantics.of_vllm(release))
    assert {name: one.kind for name, one in found.items()} == {"SC-15": "left by a preemption"}
    assert broken(trace) == {}


@pytest.mark.parametrize(
    ("reader", "start", "is_left"),
    [
        (Add("b", 40), 32, True),
        (Add("b", 40), 16, False),
        (Add("b", 40, salt="another"), 32, False),
        (Add("b", 31, max_tokens=9), 32, False),
    ],
)
def test_a_block_is_left_if_its_request_had_not_computed_it_when_it_was_preempted(
    reader: Add, start: int, is_left: bool
) -> None:
    added = {"a": Add("a", 40), "b": reader}
    mirror = KVMirror(CONFIG, added.__getitem__)
    step = {"computed": {}, "scheduled": {}, "preempted": [], "new": [], "resumed": []}
    step |= {"blocks": {}, "drafts": {}, "free_blocks": 0}
    first = {"computed": {"a": 0}, "scheduled": {"a": 24}, "new": ["a"], "blocks": {"a": [[1, 2]]}}
    hit = {"computed": {"b": start}, "scheduled": {"b": 1}, "new": ["b"]}
    hit["blocks"] = {"b": [[1, 2, 3]]}
    for outcome in (first, {"preempted": ["a"]}, hit):
        list(mirror.schedule(step | outcome))
    assert mirror.was_left("b", 1 if start == 16 else 2) == is_left


@pytest.mark.parametrize(
    ("decoded", "right"), [(((7,), (7,)), 16), (((7,), (8,)), 15), (((), ()), 15)]
)
def test_a_decoded_block_is_right_for_who_decodes_the_same(
    decoded: tuple[tuple[int, ...], ...], right: int
) -> None:
    mirror = KVMirror(CONFIG, {"a": Add("a", 31), "b": Add("b", 31)}.__getitem__)
    step = {"computed": {}, "scheduled": {}, "preempted": [], "new": [], "resumed": []}
    step |= {"blocks": {}, "drafts": {}, "free_blocks": 0}
    begin = {"computed": {"a": 0, "b": 0}, "scheduled": {"a": 31, "b": 31}, "new": ["a", "b"]}
    begin["blocks"] = {"a": [[1, 2]], "b": [[3, 4]]}
    goes_on = {"computed": {"a": 31}, "scheduled": {"a": 1}, "preempted": ["b"]}
    hit = {"computed": {"b": 32}, "scheduled": {"b": 1}, "resumed": ["b"]}
    hit["blocks"] = {"b": [[1, 2, 5]]}
    list(mirror.schedule(step | begin))
    for name, tokens in zip("ab", decoded, strict=True):
        mirror.decode(name, tokens)
    list(mirror.schedule(step | goes_on))
    _, reads, _ = mirror.schedule(step | hit)
    assert isinstance(reads, KVReads)
    assert (reads.reads["b"][2], reads.right["b"][2]) == (16, right)


def test_a_chunk_of_a_session_is_found_by_who_has_the_same_prompt() -> None:
    one = Item("x", 0, 1)
    events = (
        Add("a", 2, (one,), resumable=True),
        Add("b", 4, (one, Item("x", 2, 1))),
        Chunk("a", 1, (one,)),
        Schedule(),
        Update(),
        Schedule(),
    )
    small = {"max_num_batched_tokens": 2, "max_model_len": 5, "block_size": 1, "num_blocks": 6}
    assert broken(trace(*events, **small)) == {}


@pytest.mark.parametrize(
    ("chunk", "first", "right"),
    [
        (Chunk("a", 2, (Item("x", 0, 2),)), 30, 16),
        (Chunk("a", 2, (Item("y", 0, 2),)), 30, 14),
        (Chunk("a", 2), 30, 14),
        (Chunk("a", 1, (Item("x", 0, 1),)), 31, 14),
    ],
    ids=["the same", "another item", "text from its beginning", "behind a decoded token"],
)
def test_what_a_session_computes_of_a_chunk_is_right_for_its_text(
    chunk: Chunk, first: int, right: int
) -> None:
    added = {"a": Add("a", 30, resumable=True), "b": Add("b", 40, (Item("x", 30, 2),))}
    mirror = KVMirror(CONFIG, added.__getitem__)
    step = {"computed": {}, "scheduled": {}, "preempted": [], "new": [], "resumed": []}
    step |= {"blocks": {}, "drafts": {}, "free_blocks": 0}
    begin = {"computed": {"a": 0}, "scheduled": {"a": 30}, "new": ["a"], "blocks": {"a": [[1, 2]]}}
    goes_on = {"computed": {"a": 30}, "scheduled": {"a": 2}}
    hit = {"computed": {"b": 32}, "scheduled": {"b": 1}, "new": ["b"], "blocks": {"b": [[1, 2, 3]]}}
    list(mirror.schedule(step | begin))
    mirror.go_on("a", first, chunk)
    list(mirror.schedule(step | goes_on))
    _, reads, _ = mirror.schedule(step | hit)
    assert isinstance(reads, KVReads)
    assert (reads.reads["b"], reads.right["b"]) == ({1: 16, 2: 16}, {1: 16, 2: right})


def test_a_request_joins_with_more_drafts_than_tokens() -> None:
    trace = found("padded-drafts-before")
    lacking = without("scheduler.pads_within_threshold", "scheduler.pads_wholly")
    assert broken(trace) == {}
    assert broken(trace, lacking)["SC-10"].kind == "as they join"


def found(name: str) -> Trace:
    path = kept_traces()[name]
    with path.open("rb") as lines:
        return parse(lines, path.name)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("stripped-item", "after a preemption"),
        ("stripped-item-session", "after a preemption"),
        ("stripped-item-load", "while it runs"),
    ],
)
def test_an_item_that_stayed_behind_is_asked_for_in_three_ways(name: str, kind: str) -> None:
    of_name = found(name)
    assert "SC-9" not in broken(of_name)
    assert broken(of_name, without("scheduler.sends_all_items"))["SC-9"].kind == kind


def test_workers_that_are_told_anew_of_the_resumed_have_their_items() -> None:
    told_anew = found("stripped-item").under_runner("second")
    assert "SC-9" not in broken(told_anew, without("scheduler.sends_all_items"))


def test_workers_that_are_sent_an_item_again_have_it() -> None:
    loads = found("stripped-item-load").under_runner("second")
    sends = without("scheduler.sends_all_items")
    once = without("scheduler.sends_all_items", "scheduler.sends_items_again")
    assert "SC-9" not in broken(loads, sends)
    assert broken(loads, once)["SC-9"].kind == "while it runs"
    assert broken(loads, sends, fault="drops_what_is_encoded")["SC-9"].kind == "while it runs"


@pytest.mark.parametrize(("runner", "outgrows"), [("first", False), ("second", True)])
def test_the_second_runner_keeps_the_rows_of_an_identifier_that_comes_back_smaller(
    runner: ModelRunner, outgrows: bool
) -> None:
    items = (Item("x", 0, 2), Item("y", 2, 2), Item("x", 4, 1))
    tight = trace(
        Add("a", 5, items),
        *(Schedule(), Update()) * 2,
        capacity=3,
        compute_budget=3,
        max_num_batched_tokens=3,
        async_scheduling=True,
    ).under_runner(runner)
    target = ReferenceTarget(Semantics.of_vllm("0.33.0"), release="0.33.0")
    violations = examine(tight, target.run([tight])[0], target).violations
    assert ("WM-3" in violations) is outgrows


def test_workers_that_are_told_to_drop_an_item_do_not_have_it() -> None:
    plain = trace(Add("a", 24, (Item("x", 18, 4),)), *STEPS)
    assert broken(plain) == {}
    assert broken(plain, fault="drops_what_is_encoded")["SC-9"].kind == "while it runs"


def test_an_item_that_is_encoded_at_once_must_have_been_sent() -> None:
    plain = trace(*LONG, *STEPS)
    assert broken(plain) == {}
    assert broken(plain, fault="withholds_what_is_encoded")["SC-9"].kind == "at once"


FILLED = trace(ADJACENT, *STEPS)
SMALL = trace(*LONG, *STEPS, max_num_batched_tokens=8, capacity=6, compute_budget=6)
SPREAD = trace(
    Add("a", 20, (Item("x", 2, 12),)),
    *STEPS,
    max_num_batched_tokens=4,
    capacity=12,
    compute_budget=12,
)


@pytest.mark.parametrize(
    ("trace", "fault", "contract"),
    [
        (FILLED, "computes_into_items", "SC-2"),
        (FILLED, "computes_into_items", "SC-3"),
        (FILLED, "stops_early", "SC-3"),
        (SMALL, "encodes_again", "SC-5"),
        (SPREAD, "drops_what_is_read", "DF-1"),
    ],
)
def test_a_planted_fault_breaks_the_contract_that_speaks_of_it(
    trace: Trace, fault: str, contract: str
) -> None:
    assert broken(trace) == {}
    assert contract in broken(trace, fault=fault)


AHEAD = {**DRAFTER, "max_num_batched_tokens": 8}
BEHIND = trace(Add("a", 20, (Item("x", 8, 4),)), Schedule(), Update(), **AHEAD)
WITHIN = trace(
    Add("a", 20, (Item("x", 6, 4, is_embed=(False, False, True, True)),)), *STEPS[:2], **AHEAD
)
WHOLE_AHEAD = trace(
    Add("a", 20, (Item("x", 6, 4),)), *STEPS[:2], disable_chunked_mm_input=True, **AHEAD
)


@pytest.mark.parametrize(
    ("trace", "last_broken", "first_kept"),
    [(BEHIND, "0.23.0", "0.24.0"), (WITHIN, "0.27.1", "0.28.0"), (WHOLE_AHEAD, "0.16.0", "0.17.0")],
)
def test_what_a_drafter_reads_is_judged_by_what_the_release_does_without(
    trace: Trace, last_broken: str, first_kept: str
) -> None:
    assert "SC-2" in broken(trace, Semantics.of_vllm(last_broken), release=last_broken)
    assert "SC-2" not in broken(trace, Semantics.of_vllm(first_kept), release=first_kept)
    assert "WM-2" not in broken(trace, Semantics.of_vllm(last_broken), release=last_broken)


def adapter(number: int) -> Adapter:
    return Adapter(f"adapter-{number}", number, f"/adapters/{number}")


THREE = (
    Add("a", 8, max_tokens=4, lora=adapter(1)),
    Add("b", 8, lora=adapter(2)),
    Add("c", 8, lora=adapter(1)),
)
AWAITED = (
    Transfer("x", "pending"),
    Add("a", 8, (Item("x", 2, 4),)),
    Add("b", 8),
)


@pytest.mark.parametrize(
    ("overtaking", "overtaken", "overtaker"),
    [
        (trace(*THREE, *STEPS, max_loras=1), "b", "c"),
        (trace(*AWAITED, *STEPS, ec_connector=True), "a", "b"),
    ],
)
def test_a_request_may_be_overtaken_while_it_waits_for_something_of_its_own(
    overtaking: Trace, overtaken: str, overtaker: str
) -> None:
    first = ReferenceTarget().records(overtaking)[len(overtaking.events) - len(STEPS)].outcome
    assert overtaker in first["new"]
    assert overtaken in first["waiting"]
    assert broken(overtaking) == {}


def test_requests_that_are_passed_over_keep_their_order_since_0_14() -> None:
    full = {"max_loras": 1, "max_num_batched_tokens": 8}
    late = (Add("b", 8, lora=adapter(2)), Add("c", 8, lora=adapter(2)))
    waiting = trace(Add("a", 4, max_tokens=2, lora=adapter(1)), *STEPS[:2], *late, *STEPS, **full)
    reversed_ = broken(waiting, Semantics.of_vllm("0.13.0"), release="0.13.0")
    assert "for r = 'b'" in reversed_["SC-7"].why
    assert broken(waiting, Semantics.of_vllm("0.14.0"), release="0.14.0") == {}


def test_a_request_must_not_be_overtaken_otherwise() -> None:
    plain = trace(Add("a", 8), Add("b", 8), *STEPS)
    assert broken(plain) == {}
    assert "for r = 'a'" in broken(plain, fault="looks_past_the_first")["SC-7"].why


def test_an_urgent_request_must_not_be_overtaken_by_an_earlier_one() -> None:
    urgent = trace(Add("a", 8, priority=1), Add("b", 8), *STEPS, policy="priority")
    assert broken(urgent) == {}
    assert "for r = 'b'" in broken(urgent, fault="looks_past_the_first")["SC-7"].why


def test_a_request_that_computes_the_same_for_ever_is_seen_once_all_could_have_ended() -> None:
    lone = (Add("a", 20, max_tokens=2), *(Schedule(), Update()) * 30)
    computing = trace(*lone, max_num_batched_tokens=8)
    assert broken(computing) == {}
    assert broken(computing, fault="computes_the_same_again")["LV-3"].event == 2 * 23 - 1


def test_what_fits_no_step_is_refused_on_arrival_or_reported_there() -> None:
    sparse = Item("x", 2, 17, is_embed=(True,) * 16 + (False,))
    never = trace(Add("a", 20, (sparse,)), *STEPS, disable_chunked_mm_input=True)
    (refused,) = ReferenceTarget().run([never])
    assert refused.illegal == "an item of 17 tokens must be whole, and a step has 16"
    assert broken(never, without("scheduler.refuses_long_whole_items"))["LV-2"].event == 0


def test_a_request_that_never_advances_is_told_with_the_state_that_repeats() -> None:
    violation = broken(LONE, Semantics.of_vllm("0.28.0"))["LV-1"]
    assert "running=('a',)" in violation.why
    assert violation.operation == "schedule"


def test_a_paused_scheduler_is_not_expected_to_go_on() -> None:
    paused = trace(ADJACENT, Schedule(), Update(), Pause("all"), *STEPS)
    assert broken(paused) == {}


def test_requests_that_wait_in_vain_are_ended_by_updates_before_anybody_expects_more() -> None:
    vain = (*AWAITED[:2], *STEPS[:4], Transfer("x", "failed"), Schedule(), Schedule())
    assert broken(trace(*vain, async_scheduling=True, ec_connector=True)) == {}


def test_a_session_gives_back_its_items_when_its_turn_ends() -> None:
    assert broken(scheduler_trace(2110)) == {}
    kept = broken(scheduler_trace(2110), without("scheduler.releases_between_turns"))
    assert kept["SC-6"].kind == "between turns"


def test_who_was_preempted_before_and_has_allocated_since_is_between_turns() -> None:
    kept = broken(
        scheduler_trace(24807, transfers=True, release="0.33.0"),
        Semantics.of_vllm("0.33.0"),
        release="0.33.0",
    )
    assert kept["SC-6"].kind == "between turns"


@pytest.mark.parametrize(("seed", "kind"), [(15, "after the end"), (33, "after a preemption")])
def test_who_is_not_released_is_told_apart(seed: int, kind: str) -> None:
    assert broken(scheduler_trace(seed)) == {}
    assert broken(scheduler_trace(seed), fault="frees_nothing")["SC-6"].kind == kind


def test_what_a_step_gives_back_is_no_room_that_its_chunks_had_before() -> None:
    semantics = Semantics.of_vllm("0.33.0")
    given_back = scheduler_trace(6976, transfers=True, release="0.33.0")
    assert "SC-3" not in broken(given_back, semantics, release="0.33.0")


def test_slots_of_a_decoder_that_were_credited_twice_are_no_room() -> None:
    semantics = Semantics.of_vllm("0.33.0")
    credited = encoder_decoder_trace(11428, release="0.33.0")
    assert "SC-7" not in broken(credited, semantics, release="0.33.0")


def test_who_is_ended_for_a_failed_load_gives_its_items_back_behind_all_others() -> None:
    target = ReferenceTarget(Semantics.of_vllm("0.33.0"), release="0.33.0")
    trace = scheduler_trace(6184, kv_transfers=True, release="0.33.0")
    assert "EC-7" not in examine(trace, target.run([trace])[0], target).violations


@pytest.mark.parametrize("seed", [26088, 4033], ids=["ended", "thrown back"])
def test_the_ideal_gives_items_of_failed_loads_back_behind_all_others(seed: int) -> None:
    target = ReferenceTarget()
    trace = scheduler_trace(seed, kv_transfers=True)
    assert not examine(trace, target.run([trace])[0], target).violations


def test_who_holds_all_its_blocks_does_not_wait_behind_one_that_needs_another() -> None:
    load = partial(Elsewhere, later=True)
    behind = trace(
        *(Add("a", 65, max_tokens=1, priority=1), load("a", 65), Schedule(), Update()),
        *(Add("b", 25, max_tokens=1), load("b", 24), Schedule(), Received("b"), Update()),
        *(Schedule(), Received("a"), Update()),
        *(Schedule(), Update(), Schedule()),
        block_size=8,
        num_blocks=13,
        max_model_len=84,
        policy="priority",
        scheduler_reserve_full_isl=False,
        kv_connector="recompute",
    )
    assert "LV-1" in broken(behind, without("scheduler.tries_all_holders"))
    assert broken(behind) == {}


def test_who_is_rejected_is_not_overtaken() -> None:
    again = (Item("z", 0, 2), Item("x", 2, 2))
    rejected = trace(
        Add("a", 3, (Item("x", 0, 1), Item("y", 1, 2)), max_tokens=1),
        Add("b", 2, (Item("x", 0, 2),), max_tokens=1),
        Add("c", 4, again, max_tokens=1),
        *STEPS,
        capacity=4,
        compute_budget=4,
        max_num_seqs=1,
        max_num_batched_tokens=3,
        block_size=2,
        num_blocks=4,
    )
    assert states_met(rejected)["reused media id rejected"] == 1
    assert broken(rejected) == {}


def states_met(trace: Trace, semantics: Semantics | None = None) -> Counter[str]:
    target, reach = ReferenceTarget(semantics), Reachability()
    examine(trace, target.run([trace])[0], target, None, reach)
    return reach.met


def test_an_item_that_must_stay_whole_is_noted_where_it_does_not_fit() -> None:
    state = "whole item that does not fit"
    assert states_met(WHOLE)[state] == 1
    split = msgspec.structs.replace(WHOLE.header.config, disable_chunked_mm_input=False)
    header = msgspec.structs.replace(WHOLE.header, config=split)
    assert states_met(Trace(header, WHOLE.events))[state] == 0


def test_a_claim_of_a_request_that_is_not_scheduled_is_noted() -> None:
    state = "stalled after a claim"
    assert states_met(scheduler_trace(5), without("scheduler.takes_after_blocks"))[state] > 0
    assert states_met(scheduler_trace(5))[state] == 0  # the ideal claims when it has had blocks


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


@pytest.mark.full
def test_the_ideal_scheduler_breaks_nothing() -> None:
    assert [seed for seed in range(300) if broken(scheduler_trace(seed))] == []


def test_what_a_rejected_draft_computed_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter has not read past the item of a prompt's last token while its draft is rejected."""
    padded = trace(
        Add("b", 1, max_tokens=2),
        Schedule(),
        Add("a", 1, (Item("x", 0, 1),), max_tokens=2),
        Add("c", 1, (Item("y", 0, 1),)),
        Update(),
        Schedule(),
        Update(),
        **DRAFTER,
    )
    target = ReferenceTarget(Semantics.of_vllm("0.31.0"), release="0.31.0")
    result = target.run([padded])[0]
    assert result.records[5][0]["drafts"]["a"] == 1
    assert "CP-5" not in examine(padded, result, target).violations
    monkeypatch.setattr(SchedulerPosition, "follow_rejected", lambda *_: None)
    assert "CP-5" in examine(padded, result, target).violations
