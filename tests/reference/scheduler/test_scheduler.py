"""What the reference scheduler decides, on a few requests that can be followed by hand."""

from typing import Any

import pytest

from cacheproof.differential.targets.host.scheduler.encoder_transfers import EncoderTransfers
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.output import SchedulerOutput
from cacheproof.reference.scheduler.scheduler import Scheduler
from tests.reference.scheduler.schedulers import HASHER, IDEAL, make


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


def test_one_id_at_a_time() -> None:
    scheduler = make()
    scheduler.add_request(request("r", 4))
    with pytest.raises(ValueError, match="r is there already"):
        scheduler.add_request(request("r", 4))


def test_a_stop_token_ends_a_request_and_what_follows_is_dropped() -> None:
    scheduler = make(num_speculative_tokens=2)
    scheduler.add_request(request("r", 4, max_tokens=9, stop_token_ids=(5,)))
    step(scheduler)
    scheduler.update_draft_token_ids({"r": [5, 6]})
    (answer,) = scheduler.update_from_output(scheduler.schedule(), {"r": [5, 6, 7]})
    assert (answer.new_token_ids, answer.finish_reason) == ([5], "stopped")


def elsewhere(**states: str) -> EncoderTransfers:
    """A connector to encoder outputs in these states."""
    connector = EncoderTransfers()
    for identifier, state in states.items():
        connector.transfer(identifier, state)
    return connector


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
