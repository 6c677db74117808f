"""What the reference scheduler does with KV that comes from elsewhere, or is sent there."""

from collections.abc import Sequence
from typing import Any

import pytest

from cacheproof.differential.targets.host.scheduler.kv_transfers import KVTransfers
from cacheproof.reference.scheduled_request import RequestStatus, ScheduledRequest
from cacheproof.reference.scheduler.output import (
    EngineCoreOutput,
    KVConnectorOutput,
    SchedulerOutput,
)
from cacheproof.reference.semantics import Semantics
from tests.reference.scheduler.schedulers import HASHER, IDEAL, make

NUM_BLOCKS = 16
"""Without the null block."""
NEWEST = Semantics.of_vllm("0.33.0")


class Scene:
    """A scheduler, with a connector that is told what is elsewhere."""

    def __init__(self, semantics: Semantics = IDEAL, **options: Any) -> None:
        self.connector = KVTransfers()
        self.scheduler = make(
            NUM_BLOCKS + 1, kv_connector=self.connector, semantics=semantics, **options
        )

    def add(self, name: str, tokens: int, elsewhere: int = 0, *, later: bool = False) -> None:
        """A request whose text is the beginning of everybody's."""
        text = list(range(tokens))
        self.connector.elsewhere(name, elsewhere, later)
        self.scheduler.add_request(
            ScheduledRequest(name, text, block_hasher=HASHER, max_tokens=4, stop_token_ids=(9,))
        )

    def update(
        self, output: SchedulerOutput, token: int = 7, **transfers: Any
    ) -> Sequence[EngineCoreOutput]:
        """Every request at its end samples the token."""
        requests = self.scheduler.requests
        sampled = {
            name: [token] * (requests[name].num_computed_tokens >= requests[name].num_tokens)
            for name in output.num_scheduled_tokens
            if name in requests
        }
        return self.scheduler.update_from_output(output, sampled, KVConnectorOutput(**transfers))

    def step(self, token: int = 7, **transfers: Any) -> dict[str, int]:
        """Schedule, execute and update."""
        output = self.scheduler.schedule()
        self.update(output, token, **transfers)
        return dict(output.num_scheduled_tokens)

    def status(self, name: str) -> RequestStatus:
        return self.scheduler.requests[name].status

    @property
    def num_free_blocks(self) -> int:
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()


def test_a_load_within_the_step_leaves_the_rest_to_compute() -> None:
    scene = Scene()
    scene.add("r", 10, elsewhere=8)
    output = scene.scheduler.schedule()
    (begun,) = output.scheduled_new_reqs
    assert (begun.num_computed_tokens, begun.block_ids) == (8, ([1, 2, 3],))
    assert output.num_scheduled_tokens == {"r": 2}
    assert output.kv_connector_metadata["kv_loads"] == {"r": [8, False, [1, 2, 3]]}


def test_only_what_lies_behind_the_hit_is_loaded() -> None:
    scene = Scene()
    scene.add("first", 10)
    scene.step()
    scene.add("r", 14, elsewhere=12)
    output = scene.scheduler.schedule()
    (begun,) = output.scheduled_new_reqs
    assert (begun.num_computed_tokens, begun.block_ids) == (12, ([1, 2, 4, 5],))
    assert output.kv_connector_metadata["kv_asked"] == [["r", 8]]
    assert output.kv_connector_metadata["kv_loads"] == {"r": [4, False, [1, 2, 4, 5]]}


def test_a_later_load_holds_blocks_and_computes_nothing_until_it_has_ended() -> None:
    scene = Scene()
    scene.add("r", 10, elsewhere=8, later=True)
    assert [scene.step(), scene.step()] == [{}, {}]
    assert scene.status("r") is RequestStatus.WAITING_FOR_REMOTE_KVS
    assert scene.num_free_blocks == NUM_BLOCKS - 2
    assert scene.step(finished_recving=["r"]) == {}
    assert scene.step() == {"r": 2}
    assert scene.status("r") is RequestStatus.RUNNING


def test_of_a_load_of_everything_the_last_token_is_computed_all_the_same() -> None:
    scene = Scene()
    scene.add("r", 8, elsewhere=8, later=True)
    scene.step(finished_recving=["r"])
    assert scene.step() == {"r": 1}


def failed_within_a_step(**options: Any) -> tuple[Scene, Sequence[EngineCoreOutput]]:
    """Of two blocks that a step loads the second comes out wrong."""
    scene = Scene(**options)
    scene.add("r", 10, elsewhere=8)
    output = scene.scheduler.schedule()
    return scene, scene.update(output, invalid_block_ids=[2])


@pytest.mark.parametrize("semantics", [IDEAL, NEWEST])
def test_a_request_goes_on_before_the_first_block_that_failed_within_its_step(
    semantics: Semantics,
) -> None:
    scene, answers = failed_within_a_step(semantics=semantics)
    assert answers == []
    assert scene.scheduler.requests["r"].num_computed_tokens == 4
    assert scene.step() == {"r": 6}


@pytest.mark.parametrize(("semantics", "computes"), [(IDEAL, 10), (NEWEST, 6)])
def test_or_it_ends_and_what_failed_is_not_found(semantics: Semantics, computes: int) -> None:
    """Nor is what came, but in releases, which cache it at once."""
    scene, answers = failed_within_a_step(semantics=semantics, recomputes_failed_loads=False)
    assert answers == [EngineCoreOutput("r", (), "error")]
    assert scene.num_free_blocks == NUM_BLOCKS
    scene.add("same", 10)
    assert scene.step() == {"same": computes}


def failed_later(first_wrong: int, **options: Any) -> tuple[Scene, Sequence[EngineCoreOutput]]:
    """Of two blocks that come later one is reported to be wrong."""
    scene = Scene(**options)
    scene.add("r", 10, elsewhere=8, later=True)
    output = scene.scheduler.schedule()
    return scene, scene.update(output, finished_recving=["r"], invalid_block_ids=[first_wrong])


def test_of_a_later_load_that_fails_the_blocks_before_are_kept_and_found() -> None:
    scene, answers = failed_later(first_wrong=2)
    assert answers == []
    scene.add("same", 10)
    output = scene.scheduler.schedule()
    computed = {one.req_id: one.num_computed_tokens for one in output.scheduled_new_reqs}
    assert computed == {"r": 4, "same": 8}  # the second block is computed in this very step
    assert output.num_scheduled_tokens == {"r": 6, "same": 2}


def test_a_later_load_of_which_nothing_came_is_asked_for_again() -> None:
    scene, _ = failed_later(first_wrong=1)
    output = scene.scheduler.schedule()
    assert output.num_scheduled_tokens == {}
    assert output.kv_connector_metadata["kv_loads"] == {"r": [8, True, [2, 1]]}


def two_that_hit_a_failed_load(semantics: Semantics) -> Scene:
    """What one loads within its step fails. Two that hit it wait for what comes behind; the load
    of the second has ended."""
    scene = Scene(semantics=semantics)
    scene.add("first", 8, elsewhere=4)
    scene.add("r", 8, elsewhere=8, later=True)
    scene.add("s", 8, elsewhere=8, later=True)
    output = scene.scheduler.schedule()
    scene.update(output, finished_recving=["s"], invalid_block_ids=[1])
    return scene


@pytest.mark.parametrize(("release", "start"), [("0.18.0", -1), ("0.31.0", 7), ("0.33.0", 7)])
def test_of_two_that_hit_a_failed_load_the_second_relies_on_the_first(
    release: str, start: int
) -> None:
    scene = two_that_hit_a_failed_load(Semantics.of_vllm(release))
    (begun,) = scene.scheduler.schedule().scheduled_new_reqs
    assert (begun.req_id, begun.num_computed_tokens) == ("s", start)


def test_or_it_has_nothing_left_to_compute() -> None:
    scene = two_that_hit_a_failed_load(Semantics.of_vllm("0.30.0"))
    with pytest.raises(AssertionError):
        scene.scheduler.schedule()


def test_or_nobody_hits_a_load_before_it_is_known_to_be_right() -> None:
    scene = two_that_hit_a_failed_load(IDEAL)
    shared = [
        scene.scheduler.kv_cache_manager.get_block_ids(name)[0][0] for name in ("first", "r", "s")
    ]
    assert len(set(shared)) == 3


def test_or_the_request_ends_with_its_later_load() -> None:
    scene, answers = failed_later(first_wrong=2, recomputes_failed_loads=False)
    assert answers == [EngineCoreOutput("r", (), "error")]
    assert scene.num_free_blocks == NUM_BLOCKS


def test_what_a_later_load_brings_is_found_once_it_has_ended() -> None:
    scene = Scene()
    scene.add("r", 10, elsewhere=8, later=True)
    scene.step()
    scene.add("early", 6)
    assert scene.step(finished_recving=["r"]) == {"early": 6}
    scene.step()
    scene.add("late", 10)
    assert scene.step()["late"] == 2


@pytest.mark.parametrize(("semantics", "computes"), [(IDEAL, 10), (NEWEST, 2)])
def test_what_a_step_loads_is_found_once_it_is_known_to_be_right(
    semantics: Semantics, computes: int
) -> None:
    """In vLLM 0.33.0 the next request of that step builds on it."""
    scene = Scene(semantics)
    scene.add("r", 10, elsewhere=8)
    scene.add("same", 10)
    assert scene.step() == {"r": 2, "same": computes}
    scene.add("late", 10)
    assert scene.step()["late"] == 2


def test_blocks_that_are_sent_are_kept_until_they_have_been() -> None:
    scene = Scene()
    scene.connector.send("r")
    scene.add("r", 10)
    scene.step(token=9)
    assert scene.status("r") is RequestStatus.FINISHED_STOPPED
    output = scene.scheduler.schedule()
    assert output.kv_connector_metadata["kv_sends"] == [["r", [1, 2, 3]]]
    assert scene.num_free_blocks == NUM_BLOCKS - 3
    scene.update(output, finished_sending=["r"])
    assert scene.num_free_blocks == NUM_BLOCKS
    assert "r" not in scene.scheduler.requests


def aborted_in_flight(semantics: Semantics) -> list[int]:
    """Free blocks after an abort beside two steps in flight, and after the output of each."""
    scene = Scene(semantics, async_scheduling=True)
    scene.add("r", 10)
    steps = [scene.scheduler.schedule(), scene.scheduler.schedule()]
    scene.scheduler.finish_requests(["r"], RequestStatus.FINISHED_ABORTED)
    free = [scene.num_free_blocks]
    for output in steps:
        scene.update(output)
        free.append(scene.num_free_blocks)
    return free


def test_blocks_that_steps_in_flight_write_are_given_back_after_them() -> None:
    held = NUM_BLOCKS - 3
    assert aborted_in_flight(IDEAL) == [held, held, NUM_BLOCKS]


def test_before_0_24_they_were_given_back_at_once() -> None:
    assert aborted_in_flight(IDEAL.without("kv_cache.defers_frees")) == [NUM_BLOCKS] * 3


def test_a_request_that_ends_while_its_kv_is_loaded_gives_its_blocks_back_afterwards() -> None:
    scene = Scene()
    scene.add("r", 10, elsewhere=8, later=True)
    scene.step()
    scene.scheduler.finish_requests(["r"], RequestStatus.FINISHED_ABORTED)
    assert scene.num_free_blocks == NUM_BLOCKS - 2
    scene.step(finished_recving=["r"])
    assert scene.num_free_blocks == NUM_BLOCKS
