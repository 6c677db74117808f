"""What the reference scheduler makes of the tokens of a session, beside `stories/sessions.txt`."""

from functools import partial

import pytest

from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduled_request import RequestStatus
from cacheproof.reference.semantics import Semantics
from tests.reference.scheduler.schedulers import IDEAL, make, request

prompt = partial(request, "s", resumable=True)
"""A prompt of session s, or a chunk of one; of so many tokens."""


def test_a_chunk_follows_what_is_computed_and_its_items_with_it() -> None:
    scheduler = make()
    scheduler.add_request(prompt(6, max_tokens=2))
    for _ in range(2):
        scheduler.update_from_output(scheduler.schedule(), {"s": [7]})
    session = scheduler.requests["s"]
    assert session.status is RequestStatus.WAITING_FOR_STREAMING_REQ
    scheduler.add_request(prompt(3, MultiModalFeature("x", PlaceholderRange(1, 2), "x")))
    assert session.all_token_ids == [0, 1, 2, 3, 4, 5, 7, 0, 1, 2]
    assert session.mm_features[0].mm_position == PlaceholderRange(8, 2)


@pytest.mark.parametrize(
    ("semantics", "waiting", "tokens"), [(IDEAL, ["s"], 10), (Semantics.of_vllm("0.32.0"), [], 2)]
)
def test_a_session_that_was_preempted_when_its_turn_ended_goes_on(
    semantics: Semantics, waiting: list[str], tokens: int
) -> None:
    """Up to 0.32 it is lost, and so are its tokens."""
    scheduler = make(5, semantics=semantics, max_model_len=16, async_scheduling=True)
    scheduler.add_request(request("first", 8, max_tokens=8))
    scheduler.add_request(prompt(8, max_tokens=8, stop_token_ids=(7,)))
    in_flight = scheduler.schedule()
    scheduler.schedule()
    session = scheduler.requests["s"]
    assert session.status is RequestStatus.PREEMPTED
    scheduler.update_from_output(in_flight, {"first": [9], "s": [7]})
    scheduler.add_request(prompt(2))
    assert [one.request_id for one in scheduler.waiting] == waiting
    assert scheduler.requests["s"].num_tokens == tokens
