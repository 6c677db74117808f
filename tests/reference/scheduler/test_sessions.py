"""What the reference scheduler does with requests whose prompt comes in chunks."""

from typing import Any

import pytest

from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.scheduler import Scheduler
from cacheproof.reference.scheduler.state import PauseState
from cacheproof.reference.semantics import Semantics
from tests.reference.scheduler import schedulers
from tests.reference.scheduler.schedulers import HASHER, IDEAL


def make(semantics: Semantics = IDEAL, blocks: int = 17, **options: Any) -> Scheduler:
    """A scheduler of two requests over so many blocks."""
    return schedulers.make(blocks, semantics=semantics, **{"max_num_seqs": 2, **options})


def prompt(name: str, tokens: int, *items: tuple[str, int, int], **options: Any) -> Any:
    """A prompt, or a chunk of one, of a session; `items` are (identifier, offset, length)."""
    features = [
        MultiModalFeature(identifier, PlaceholderRange(offset, length), identifier)
        for identifier, offset, length in items
    ]
    options = {"resumable": True, **options}
    return ScheduledRequest(name, list(range(tokens)), features, block_hasher=HASHER, **options)


def end_of(name: str) -> Any:
    """Word that no more prompt will come."""
    return prompt(name, 1, resumable=False)


def step(scheduler: Scheduler, token: int = 7) -> dict[str, int]:
    """Schedule, execute and update: every request at its end samples the token."""
    output = scheduler.schedule()
    reached = {
        name: scheduler.requests[name].num_computed_tokens >= scheduler.requests[name].num_tokens
        for name in output.num_scheduled_tokens
    }
    scheduler.update_from_output(output, {name: [token] * end for name, end in reached.items()})
    return dict(output.num_scheduled_tokens)


def test_a_session_waits_for_its_next_chunk_and_goes_on_behind_what_it_has_computed() -> None:
    scheduler = make()
    scheduler.add_request(prompt("s", 6, max_tokens=2))
    assert [step(scheduler), step(scheduler), step(scheduler)] == [{"s": 6}, {"s": 1}, {}]
    session = scheduler.requests["s"]
    assert session.status is RequestStatus.WAITING_FOR_STREAMING_REQ
    scheduler.add_request(prompt("s", 3, ("x", 1, 2)))
    assert session.all_token_ids == [0, 1, 2, 3, 4, 5, 7, 0, 1, 2]
    assert session.mm_features[0].mm_position == PlaceholderRange(8, 2)
    assert step(scheduler) == {"s": 3}


def test_a_chunk_that_came_early_is_waiting_when_the_turn_ends() -> None:
    scheduler = make()
    scheduler.add_request(prompt("s", 6))
    scheduler.add_request(prompt("s", 2))
    scheduler.add_request(end_of("s"))
    assert [step(scheduler), step(scheduler)] == [{"s": 6}, {"s": 2}]
    assert not scheduler.requests


def test_a_session_that_waits_ends_with_the_word_that_no_more_will_come() -> None:
    scheduler = make()
    scheduler.add_request(prompt("s", 6))
    step(scheduler)
    scheduler.add_request(end_of("s"))
    assert not scheduler.requests
    assert scheduler.kv_cache_manager.usage == 0.0


def test_each_turn_has_its_own_length() -> None:
    scheduler = make()
    scheduler.add_request(prompt("s", 6))
    scheduler.add_request(prompt("s", 2, max_tokens=3))
    assert [step(scheduler) for _ in range(5)] == [{"s": 6}, {"s": 2}, {"s": 1}, {"s": 1}, {}]


def test_a_session_that_waits_keeps_its_place_among_those_that_run() -> None:
    scheduler = make(max_num_seqs=1)
    scheduler.add_request(prompt("s", 6))
    scheduler.add_request(prompt("r", 4, resumable=False))
    assert step(scheduler) == {"s": 6}
    assert step(scheduler) == {}
    old = make(IDEAL.without("scheduler.counts_listening_sessions"), max_num_seqs=1)
    old.add_request(prompt("s", 6))
    old.add_request(prompt("r", 4, resumable=False))
    assert [step(old), step(old)] == [{"s": 6}, {"r": 4}]


def test_a_pause_lets_sessions_go_on_that_hold_blocks() -> None:
    scheduler = make()
    scheduler.add_request(prompt("s", 6))
    step(scheduler)
    scheduler.set_pause_state(PauseState.PAUSED_NEW)
    scheduler.add_request(prompt("s", 2))
    scheduler.add_request(prompt("r", 4, resumable=False))
    assert step(scheduler) == {"s": 2}


def test_output_in_flight_when_a_turn_ends_is_dropped() -> None:
    scheduler = make(async_scheduling=True)
    scheduler.add_request(prompt("s", 6, max_tokens=9, stop_token_ids=(7,)))
    scheduler.add_request(prompt("s", 3, max_tokens=9))
    first, second = scheduler.schedule(), scheduler.schedule()
    scheduler.update_from_output(first, {"s": [7]})
    session = scheduler.requests["s"]
    assert (session.num_tokens, session.num_computed_tokens) == (9, 6)
    assert scheduler.update_from_output(second, {"s": [8]}) == []
    assert session.num_tokens == 9


def preempted_turn(semantics: Semantics) -> Scheduler:
    """A session that is preempted while the step is in flight whose output ends its turn."""
    scheduler = make(semantics, blocks=5, max_model_len=16, async_scheduling=True)
    scheduler.add_request(prompt("first", 8, max_tokens=8, resumable=False))
    scheduler.add_request(prompt("s", 8, max_tokens=8, stop_token_ids=(7,)))
    in_flight = scheduler.schedule()
    scheduler.schedule()
    assert scheduler.requests["s"].status is RequestStatus.PREEMPTED
    scheduler.update_from_output(in_flight, {"first": [9], "s": [7]})
    scheduler.add_request(prompt("s", 2))
    return scheduler


def test_a_session_that_was_preempted_when_its_turn_ended_goes_on() -> None:
    scheduler = preempted_turn(IDEAL)
    assert [one.request_id for one in scheduler.waiting] == ["s"]
    assert scheduler.requests["s"].num_tokens == 10


def test_up_to_0_32_it_is_lost_and_so_are_its_tokens() -> None:
    """Red twin, and what vLLM 0.32.0 does."""
    scheduler = preempted_turn(Semantics.of_vllm("0.32.0"))
    assert list(scheduler.waiting) == []
    assert scheduler.requests["s"].num_tokens == 2


def drafted_turn(semantics: Semantics) -> Scheduler:
    """A session whose turn ends with the second of three drafts that were right."""
    scheduler = make(semantics, num_speculative_tokens=3)
    scheduler.add_request(prompt("s", 4, max_tokens=9, stop_token_ids=(5,)))
    step(scheduler)
    scheduler.update_draft_token_ids({"s": [6, 5, 8]})
    scheduler.update_from_output(scheduler.schedule(), {"s": [6, 5, 8, 9]})
    scheduler.add_request(prompt("s", 1))
    return scheduler


def test_drafts_behind_the_end_of_a_turn_are_not_computed_tokens_of_the_next() -> None:
    scheduler = drafted_turn(IDEAL)
    assert scheduler.requests["s"].num_computed_tokens == 6
    assert step(scheduler) == {"s": 4}  # padded with drafts


def test_up_to_0_32_they_are_and_schedule_fails() -> None:
    """Red twin, and what vLLM 0.32.0 does."""
    scheduler = drafted_turn(Semantics.of_vllm("0.32.0"))
    assert scheduler.requests["s"].num_computed_tokens == 8
    with pytest.raises(AssertionError):
        scheduler.schedule()


def waiting_session(semantics: Semantics) -> Scheduler:
    scheduler = make(semantics)
    scheduler.add_request(prompt("s", 6))
    step(scheduler)
    return scheduler


def test_a_reset_that_lets_requests_start_over_includes_sessions_that_wait() -> None:
    scheduler = waiting_session(IDEAL)
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    scheduler.add_request(prompt("s", 3))
    assert step(scheduler) == {"s": 9}


def test_in_releases_such_a_reset_fails() -> None:
    """Red twin, and what vLLM 0.33.0 does."""
    scheduler = waiting_session(Semantics.of_vllm("0.33.0"))
    with pytest.raises(RuntimeError, match="KV blocks are held"):
        scheduler.reset_prefix_cache(reset_running_requests=True)


def test_under_priorities_a_session_takes_the_place_of_its_last_arrival() -> None:
    scheduler = make(policy="priority", max_num_seqs=4)
    for arrival, name in enumerate(("s", "t")):
        scheduler.add_request(prompt(name, 4, arrival_time=float(arrival)))
    step(scheduler)
    scheduler.add_request(prompt("s", 2, arrival_time=2.0))
    assert [one.request_id for one in scheduler.waiting] == ["t", "s"]
