"""What the reference scheduler decides, on a few requests that can be followed by hand."""

from typing import Any

import pytest

from cacheproof.differential.targets.host.scheduler.encoder_transfers import EncoderTransfers
from cacheproof.reference.request import LoRARequest, MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.output import SchedulerOutput
from cacheproof.reference.scheduler.scheduler import Scheduler
from cacheproof.reference.scheduler.state import PauseState
from tests.reference.scheduler.schedulers import HASHER, IDEAL, make

BEFORE_RESETS = {"scheduler.tells_preemptions_by_reset": False}


def request(name: str, tokens: int, *items: tuple[str, int, int], **options: Any) -> Any:
    """A request whose text no other has; `items` are (identifier, offset, length)."""
    features = [
        MultiModalFeature(identifier, PlaceholderRange(offset, length), identifier)
        for identifier, offset, length in items
    ]
    first = int.from_bytes(name.encode()) % 1000
    text = list(range(first, first + tokens))
    return ScheduledRequest(name, text, features, block_hasher=HASHER, **options)


def step(scheduler: Scheduler) -> SchedulerOutput:
    """Schedule, execute and update: every request at its end samples token 7."""
    output = scheduler.schedule()
    finish(scheduler, output)
    return output


def finish(scheduler: Scheduler, output: SchedulerOutput) -> None:
    reached = {
        name: scheduler.requests[name].num_computed_tokens >= scheduler.requests[name].num_tokens
        for name in output.num_scheduled_tokens
    }
    scheduler.update_from_output(output, {name: [7] * end for name, end in reached.items()})


def test_a_long_prompt_takes_several_steps_and_then_decodes() -> None:
    scheduler = make()
    scheduler.add_request(request("r", 20, max_tokens=2))
    steps = [dict(step(scheduler).num_scheduled_tokens) for _ in range(4)]
    assert steps == [{"r": 16}, {"r": 4}, {"r": 1}, {}]
    assert not scheduler.requests


def test_running_requests_go_before_waiting_ones() -> None:
    scheduler = make()
    scheduler.add_request(request("first", 20, max_tokens=3))
    step(scheduler)
    scheduler.add_request(request("second", 20))
    assert step(scheduler).num_scheduled_tokens == {"first": 4, "second": 12}


def test_one_id_at_a_time() -> None:
    scheduler = make()
    scheduler.add_request(request("r", 4))
    with pytest.raises(ValueError, match="r is there already"):
        scheduler.add_request(request("r", 4))


def test_without_chunked_prefill_a_prompt_waits_for_a_step_of_its_own() -> None:
    scheduler = make(enable_chunked_prefill=False, max_num_batched_tokens=20)
    scheduler.add_request(request("first", 12))
    scheduler.add_request(request("second", 12))
    assert step(scheduler).num_scheduled_tokens == {"first": 12}
    assert step(scheduler).num_scheduled_tokens == {"second": 12}


def test_the_threshold_spares_a_request_that_is_alone() -> None:
    scheduler = make(long_prefill_token_threshold=4)
    scheduler.add_request(request("first", 12))
    assert step(scheduler).num_scheduled_tokens == {"first": 12}
    for name in ("second", "third"):
        scheduler.add_request(request(name, 12))
    assert step(scheduler).num_scheduled_tokens == {"second": 4, "third": 4}


def test_an_item_is_encoded_in_the_step_that_reaches_it_and_released_behind_it() -> None:
    scheduler = make()
    scheduler.add_request(request("r", 20, ("x", 14, 4)))
    assert step(scheduler).scheduled_encoder_inputs == {"r": [0]}
    manager = scheduler.state.encoder_cache_manager
    assert manager.cached == {"x": {"r"}}
    assert step(scheduler).scheduled_encoder_inputs == {}
    assert manager.cached == {"x": set()}


def test_tokens_stop_before_an_item_that_cannot_be_encoded() -> None:
    scheduler = make(encoder_compute_budget=4)
    scheduler.add_request(request("r", 16, ("x", 2, 4), ("y", 8, 4)))
    assert step(scheduler).num_scheduled_tokens == {"r": 8}
    assert step(scheduler).scheduled_encoder_inputs == {"r": [1]}


def test_a_request_that_cannot_go_on_lets_others_pass() -> None:
    scheduler = make(encoder_compute_budget=4)
    scheduler.add_request(request("first", 8, ("x", 0, 4)))
    scheduler.add_request(request("second", 8, ("y", 0, 4)))
    scheduler.add_request(request("third", 4))
    assert step(scheduler).num_scheduled_tokens == {"first": 8, "third": 4}
    assert [one.request_id for one in scheduler.waiting] == ["second"]


def test_an_item_is_not_split_where_that_is_not_wanted() -> None:
    scheduler = make(disable_chunked_mm_input=True)
    scheduler.add_request(request("r", 24, ("x", 12, 8)))
    assert step(scheduler).num_scheduled_tokens == {"r": 12}
    assert step(scheduler).num_scheduled_tokens == {"r": 12}


def test_two_requests_share_what_one_encoded() -> None:
    scheduler = make(max_num_batched_tokens=32)
    scheduler.add_request(request("first", 12, ("x", 0, 4)))
    scheduler.add_request(request("second", 12, ("x", 4, 4)))
    assert step(scheduler).scheduled_encoder_inputs == {"first": [0]}


def with_idle(capacity: int) -> Scheduler:
    """A scheduler whose encoder cache has x, then z, of four embeddings each, and nobody else."""
    scheduler = make(capacity=capacity)
    for identifier in ("x", "z"):
        scheduler.add_request(request(identifier, 5, (identifier, 0, 4), max_tokens=1))
        step(scheduler)
    return scheduler


def test_an_item_that_is_admitted_evicts_no_entry_that_its_request_hits() -> None:
    scheduler = with_idle(capacity=8)
    scheduler.add_request(request("r", 12, ("y", 0, 4), ("x", 6, 4)))
    output = scheduler.schedule()
    assert output.scheduled_encoder_inputs == {"r": [0]}
    assert output.free_encoder_mm_hashes == ["z"]
    assert output.num_scheduled_tokens == {"r": 12}


def test_tokens_stop_before_an_entry_that_cannot_be_kept() -> None:
    scheduler = with_idle(capacity=7)  # z has evicted x
    scheduler.add_request(request("r", 12, ("y", 0, 4), ("z", 6, 4)))
    output = scheduler.schedule()
    assert output.num_scheduled_tokens == {"r": 6}
    assert output.scheduled_encoder_inputs == {"r": [0]}
    assert output.free_encoder_mm_hashes == ["z"]


def test_the_last_that_was_admitted_gives_its_blocks_back() -> None:
    scheduler = make(blocks=5, max_model_len=16)
    for name in ("first", "second"):
        scheduler.add_request(request(name, 8, max_tokens=8))
    assert step(scheduler).num_scheduled_tokens == {"first": 8, "second": 8}
    output = step(scheduler)
    assert output.num_scheduled_tokens == {"first": 1}
    assert scheduler.requests["second"].status is RequestStatus.PREEMPTED
    assert [one.request_id for one in scheduler.waiting] == ["second"]


def test_under_priorities_the_least_urgent_gives_its_blocks_back() -> None:
    scheduler = make(blocks=5, max_model_len=16, policy="priority")
    scheduler.add_request(request("idle", 8, max_tokens=8, priority=2))
    scheduler.add_request(request("urgent", 8, max_tokens=8, priority=1))
    step(scheduler)
    assert step(scheduler).num_scheduled_tokens == {"urgent": 1}
    assert scheduler.requests["idle"].status is RequestStatus.PREEMPTED


def test_a_victims_output_in_flight_is_delivered_before_it_comes_back() -> None:
    scheduler = make(blocks=5, max_model_len=16, async_scheduling=True)
    for name in ("first", "second"):
        scheduler.add_request(request(name, 8, max_tokens=8))
    in_flight = scheduler.schedule()
    scheduler.schedule()
    victim = scheduler.requests["second"]
    assert victim.status is RequestStatus.PREEMPTED
    answers = scheduler.update_from_output(in_flight, {"first": [7], "second": [7]})
    assert {answer.request_id for answer in answers} == {"first", "second"}
    assert victim.num_output_tokens == 1
    assert victim.num_computed_tokens == 0


def test_an_aborted_request_leaves_nothing_behind() -> None:
    scheduler = make()
    scheduler.add_request(request("r", 20, ("x", 4, 4)))
    output = scheduler.schedule()
    scheduler.finish_requests(["r", "nobody"], RequestStatus.FINISHED_ABORTED)
    scheduler.update_from_output(output, {"r": []})
    assert scheduler.kv_cache_manager.usage == 0.0
    assert scheduler.state.encoder_cache_manager.cached == {"x": set()}
    assert scheduler.schedule().finished_req_ids == {"r"}


def test_rejected_drafts_are_taken_back() -> None:
    scheduler = make(num_speculative_tokens=3)
    scheduler.add_request(request("r", 4, max_tokens=9))
    step(scheduler)
    scheduler.update_draft_token_ids({"r": [1, 2, 3]})
    output = scheduler.schedule()
    assert output.scheduled_spec_decode_tokens == {"r": [1, 2, 3]}
    scheduler.update_from_output(output, {"r": [1, 9]})
    running = scheduler.requests["r"]
    assert (running.num_computed_tokens, running.num_tokens) == (6, 7)


def test_a_stop_token_ends_a_request_and_what_follows_is_dropped() -> None:
    scheduler = make(num_speculative_tokens=2)
    scheduler.add_request(request("r", 4, max_tokens=9, stop_token_ids=(5,)))
    step(scheduler)
    scheduler.update_draft_token_ids({"r": [5, 6]})
    (answer,) = scheduler.update_from_output(scheduler.schedule(), {"r": [5, 6, 7]})
    assert (answer.new_token_ids, answer.finish_reason) == ([5], "stopped")


def test_adapters_beyond_the_limit_wait() -> None:
    scheduler = make(max_loras=1)
    for number in (1, 2):
        adapter = LoRARequest(f"a{number}", number)
        scheduler.add_request(request(f"r{number}", 4, lora_request=adapter))
    assert step(scheduler).num_scheduled_tokens == {"r1": 4}
    assert step(scheduler).num_scheduled_tokens == {"r2": 4}


def test_a_pause_lets_running_requests_go_on_or_nobody() -> None:
    scheduler = make()
    scheduler.add_request(request("first", 20))
    step(scheduler)
    scheduler.add_request(request("second", 4))
    scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert scheduler.schedule().num_scheduled_tokens == {}
    scheduler.set_pause_state(PauseState.PAUSED_NEW)
    assert step(scheduler).num_scheduled_tokens == {"first": 4}
    scheduler.set_pause_state(PauseState.UNPAUSED)
    assert step(scheduler).num_scheduled_tokens == {"second": 4}


def test_a_reset_of_the_prefix_cache_is_refused_while_blocks_are_held_unless_all_start_over() -> (
    None
):
    scheduler = make()
    scheduler.add_request(request("r", 20))
    step(scheduler)
    assert not scheduler.reset_prefix_cache()
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    assert step(scheduler).num_scheduled_tokens == {"r": 16}


def test_prompts_are_held_back_in_favour_of_requests_that_decode() -> None:
    scheduler = make(prefill_schedule_interval=3)
    scheduler.add_request(request("first", 4, max_tokens=9))
    step(scheduler)
    scheduler.add_request(request("second", 8))
    tokens = [set(step(scheduler).num_scheduled_tokens) for _ in range(3)]
    assert tokens == [{"first"}, {"first"}, {"first", "second"}]


def elsewhere(**states: str) -> EncoderTransfers:
    """A connector to encoder outputs in these states."""
    connector = EncoderTransfers()
    for identifier, state in states.items():
        connector.transfer(identifier, state)
    return connector


def test_what_is_ready_elsewhere_is_loaded_and_takes_no_compute() -> None:
    scheduler = make(encoder_compute_budget=4, ec_connector=elsewhere(x="ready"))
    scheduler.add_request(request("r", 12, ("x", 0, 4), ("y", 4, 4), ("x", 8, 4)))
    output = step(scheduler)
    assert output.num_scheduled_tokens == {"r": 12}
    assert output.scheduled_encoder_inputs == {"r": [1]}
    assert output.ec_connector_metadata["loads"] == {"r": [0]}
    assert scheduler.state.encoder_cache_manager.num_embeds_by_hash == {"x": 4, "y": 4}


def test_a_load_takes_its_slots_in_the_cache() -> None:
    scheduler = make(capacity=4, ec_connector=elsewhere(x="ready"))
    scheduler.add_request(request("r", 12, ("x", 0, 4), ("y", 6, 4)))
    output = step(scheduler)
    assert output.num_scheduled_tokens == {"r": 6}
    assert output.scheduled_encoder_inputs == {}


def test_what_is_cached_is_not_loaded() -> None:
    connector = elsewhere()
    scheduler = make(ec_connector=connector)
    scheduler.add_request(request("first", 8, ("x", 0, 4)))
    assert step(scheduler).scheduled_encoder_inputs == {"first": [0]}
    connector.transfer("x", "ready")
    scheduler.add_request(request("second", 8, ("x", 0, 4)))
    assert step(scheduler).ec_connector_metadata["loads"] == {}


def test_a_request_waits_for_what_is_on_its_way_and_lets_others_pass() -> None:
    connector = elsewhere(x="pending")
    scheduler = make(ec_connector=connector)
    scheduler.add_request(request("first", 8, ("x", 4, 4)))
    scheduler.add_request(request("second", 8))
    output = step(scheduler)
    assert output.num_scheduled_tokens == {"second": 8}
    assert output.ec_connector_metadata["awaiting"] == ["first"]
    connector.transfer("x", "ready")
    assert step(scheduler).ec_connector_metadata["loads"] == {"first": [0]}


def test_a_running_request_waits_until_it_is_past_the_item() -> None:
    connector = elsewhere()
    scheduler = make(ec_connector=connector, max_num_batched_tokens=8)
    scheduler.add_request(request("r", 24, ("x", 0, 4), ("y", 12, 4)))
    assert step(scheduler).num_scheduled_tokens == {"r": 8}
    connector.transfer("x", "pending")
    assert step(scheduler).num_scheduled_tokens == {"r": 8}
    connector.transfer("y", "pending")
    assert step(scheduler).num_scheduled_tokens == {"r": 8}


def test_a_request_whose_item_cannot_come_ends_with_an_error() -> None:
    connector = elsewhere(x="pending")
    scheduler = make(ec_connector=connector)
    scheduler.add_request(request("r", 8, ("x", 0, 4)))
    step(scheduler)
    assert connector.transfer("x", "failed") == ["r"]
    output = scheduler.schedule()
    (answer,) = scheduler.update_from_output(output, {"r": [7]})
    assert (answer.request_id, answer.finish_reason) == ("r", "error")
    assert not scheduler.requests


def test_the_end_of_a_request_is_the_end_of_its_wait() -> None:
    connector = elsewhere(x="pending")
    scheduler = make(ec_connector=connector)
    scheduler.add_request(request("r", 8, ("x", 0, 4)))
    step(scheduler)
    scheduler.finish_requests(["r"], RequestStatus.FINISHED_ABORTED)
    assert connector.transfer("x", "failed") == []


@pytest.mark.parametrize(
    ("changes", "withheld"), [({"scheduler.sends_all_items": False}, [0, 1]), ({}, [])]
)
def test_items_of_a_cached_prefix_stay_behind_in_releases(
    changes: dict[str, bool], withheld: list[int]
) -> None:
    scheduler = make(semantics=IDEAL.changed(changes))
    items = (("x", 0, 4), ("y", 6, 2), ("z", 8, 1))
    scheduler.add_request(request("r", 9, *items))
    step(scheduler)
    again = request("r", 9, *items)
    again.request_id = "again"
    scheduler.add_request(again)
    (new,) = step(scheduler).scheduled_new_reqs
    assert (new.num_computed_tokens, new.withheld_inputs) == (8, withheld)


@pytest.mark.parametrize("told_anew", [False, True])
def test_the_second_model_runner_is_told_anew_of_who_is_resumed(told_anew: bool) -> None:
    scheduler = make(v2_model_runner=told_anew)
    scheduler.add_request(request("r", 4, max_tokens=3))
    step(scheduler)
    scheduler.reset_prefix_cache(reset_running_requests=True)
    output = step(scheduler)
    assert output.scheduled_cached_reqs.resumed_req_ids == (set() if told_anew else {"r"})
    assert [new.req_id for new in output.scheduled_new_reqs] == (["r"] if told_anew else [])


def test_the_second_model_runner_is_told_all_tokens_of_who_is_resumed() -> None:
    scheduler = make(v2_model_runner=True)
    scheduler.add_request(request("r", 4, max_tokens=3))
    (first,) = step(scheduler).scheduled_new_reqs
    scheduler.reset_prefix_cache(reset_running_requests=True)
    (again,) = step(scheduler).scheduled_new_reqs
    assert first.prefill_token_ids == first.prompt_token_ids == again.prompt_token_ids
    assert again.prefill_token_ids == [*first.prompt_token_ids, 7]


def test_the_first_model_runner_is_told_all_tokens_of_whom_the_last_step_left_out() -> None:
    scheduler = make()
    scheduler.add_request(request("r", 4, max_tokens=4))
    (first,) = step(scheduler).scheduled_new_reqs
    goes_on = step(scheduler).scheduled_cached_reqs
    scheduler.reset_prefix_cache(reset_running_requests=True)
    resumed = step(scheduler).scheduled_cached_reqs
    assert first.prefill_token_ids is None
    assert (goes_on.all_token_ids, goes_on.num_output_tokens) == ({}, [1])
    assert resumed.all_token_ids == {"r": [*first.prompt_token_ids, 7, 7]}
    assert resumed.num_output_tokens == [2]


@pytest.mark.parametrize(("changes", "told"), [({}, {"r"}), (BEFORE_RESETS, set())])
def test_workers_are_told_whom_a_reset_has_preempted(
    changes: dict[str, bool], told: set[str]
) -> None:
    scheduler = make(semantics=IDEAL.changed(changes))
    scheduler.add_request(request("r", 4, max_tokens=3))
    step(scheduler)
    scheduler.reset_prefix_cache(reset_running_requests=True)
    assert step(scheduler).preempted_req_ids == told
    assert step(scheduler).preempted_req_ids == set()


@pytest.mark.parametrize(("v2", "dropped"), [(False, {}), (True, {"r": {0: None}})])
def test_the_second_model_runner_drops_the_data_of_items_that_are_computed(
    v2: bool, dropped: dict[str, Any]
) -> None:
    scheduler = make(v2_model_runner=v2)
    scheduler.add_request(request("r", 20, ("x", 0, 4), max_tokens=2))
    updates = [step(scheduler).encoder_input_updates for _ in range(3)]
    assert updates == [{}, dropped, {}]


@pytest.mark.parametrize(("several_axes", "dropped"), [(False, {}), (True, {"r": {0: None}})])
def test_part_of_an_item_that_is_hit_is_sent_and_dropped_where_positions_follow_from_it(
    several_axes: bool, dropped: dict[str, Any]
) -> None:
    """Only releases that withhold an item's data have such items."""
    semantics = IDEAL.changed({"scheduler.sends_all_items": False})
    scheduler = make(semantics=semantics, v2_model_runner=True, uses_mrope=several_axes)
    outputs = []
    for _ in range(2):
        scheduler.add_request(request("r", 20, ("x", 0, 4), max_tokens=1))
        outputs += [step(scheduler), step(scheduler), step(scheduler)]
    (hit,) = outputs[3].scheduled_new_reqs
    assert (hit.num_computed_tokens, hit.withheld_inputs) == (16, [0])
    assert outputs[3].encoder_input_updates == dropped
