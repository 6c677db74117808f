"""What the reference scheduler refuses, and why requests end; `stories/` has what it decides."""

import pytest

from cacheproof.differential.targets.host.scheduler.encoder_transfers import EncoderTransfers
from cacheproof.differential.targets.host.scheduler.kv_transfers import KVTransfers
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange
from cacheproof.reference.scheduler.output import (
    EngineCoreOutput,
    KVConnectorOutput,
    SchedulerOutput,
)
from cacheproof.reference.scheduler.scheduler import Scheduler
from cacheproof.reference.semantics import Semantics
from tests.reference.scheduler.schedulers import IDEAL, make, request

ITEM = MultiModalFeature("x", PlaceholderRange(0, 4), "x")


def step(scheduler: Scheduler) -> SchedulerOutput:
    """Schedule, execute and update: every request at its end samples token 7."""
    output = scheduler.schedule()
    reached = {
        name: scheduler.requests[name].num_computed_tokens >= scheduler.requests[name].num_tokens
        for name in output.num_scheduled_tokens
    }
    scheduler.update_from_output(output, {name: [7] * end for name, end in reached.items()})
    return output


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


def test_a_request_whose_item_cannot_come_ends_with_an_error() -> None:
    connector = EncoderTransfers()
    connector.transfer("x", "pending")
    scheduler = make(ec_connector=connector)
    scheduler.add_request(request("r", 8, ITEM))
    step(scheduler)
    assert connector.transfer("x", "failed") == ["r"]
    output = scheduler.schedule()
    (answer,) = scheduler.update_from_output(output, {"r": [7]})
    assert (answer.request_id, answer.finish_reason) == ("r", "error")
    assert not scheduler.requests


@pytest.mark.parametrize("semantics", [IDEAL, Semantics.of_vllm("0.33.0")])
@pytest.mark.parametrize("later", [False, True])
def test_a_request_whose_load_fails_ends_with_an_error_where_that_is_configured(
    later: bool, semantics: Semantics
) -> None:
    """A load within the step, or one between steps, of two blocks of which the second is wrong."""
    connector = KVTransfers()
    connector.elsewhere("r", 8, later)
    scheduler = make(kv_connector=connector, semantics=semantics, recomputes_failed_loads=False)
    scheduler.add_request(request("r", 10, max_tokens=4))
    output = scheduler.schedule()
    sampled = {name: [7] for name in output.num_scheduled_tokens}
    report = KVConnectorOutput(["r"] * later, [], [2])
    answers = scheduler.update_from_output(output, sampled, report)
    assert answers == [EngineCoreOutput("r", (), "error")]


@pytest.mark.parametrize(("several_axes", "dropped"), [(False, {}), (True, {"r": {0: None}})])
def test_part_of_an_item_that_is_hit_is_sent_and_dropped_where_positions_follow_from_it(
    several_axes: bool, dropped: dict[str, dict[int, None]]
) -> None:
    """Only releases that withhold an item's data have such items."""
    semantics = IDEAL.changed({"scheduler.sends_all_items": False})
    scheduler = make(semantics=semantics, v2_model_runner=True, uses_mrope=several_axes)
    outputs = []
    for _ in range(2):
        scheduler.add_request(request("r", 20, ITEM, max_tokens=1))
        outputs += [step(scheduler), step(scheduler), step(scheduler)]
    (hit,) = outputs[3].scheduled_new_reqs
    assert (hit.num_computed_tokens, hit.withheld_inputs) == (16, [0])
    assert outputs[3].encoder_input_updates == dropped
