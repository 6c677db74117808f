"""Faults in how an engine's model runners go on with a session: the first runner changes its state
of the request, the second makes a new one."""

import sys
from collections.abc import Callable
from typing import Any

from ...by_name import by_name
from ...vllm_objects.requests import MultiModalFeatureSpec
from ...vllm_objects.scheduler import NewRequestData
from ...vllm_objects.worker import CachedRequestState, GPUModelRunner, SecondModelRunner
from .engine import Change


def _change_turn(
    runner: GPUModelRunner, change: Callable[[CachedRequestState, dict[str, Any]], None]
) -> Change:
    """Let the first runner begin a turn with what `change` makes of the request's state, given its
    state before as well."""
    update = runner._update_streaming_request

    def changed(request_id: str, told: NewRequestData) -> CachedRequestState:
        before = dict(vars(runner.requests[request_id]))
        before["output_token_ids"] = list(before["output_token_ids"])
        state = update(request_id, told)
        change(state, before)
        return state

    return runner, "_update_streaming_request", changed


def keeps_what_turns_decoded(runner: GPUModelRunner) -> Change:
    """The tokens decoded in the turn before stand after the chunk too."""
    return _change_turn(
        runner, lambda state, before: state.output_token_ids.extend(before["output_token_ids"])
    )


def keeps_items_of_before(runner: GPUModelRunner) -> Change:
    """The items of a chunk are unknown."""
    return _change_turn(runner, lambda state, before: setattr(state, "mm_features", _first(before)))


def _first(before: dict[str, Any]) -> list[MultiModalFeatureSpec]:
    """The first item, in a list of its own: the request's list is the scheduler's, and grows."""
    return list(before["mm_features"][:1])


def keeps_positions_of_before(runner: GPUModelRunner) -> Change:
    """Rotary positions are those of the turn before."""

    def change(state: CachedRequestState, before: dict[str, Any]) -> None:
        state.mrope_positions = before["mrope_positions"]
        state.mrope_position_delta = before["mrope_position_delta"]

    return _change_turn(runner, change)


def goes_on_in_blocks_of_before(runner: GPUModelRunner) -> Change:
    """A session keeps the blocks of the turn before, without those for the next."""
    return _change_turn(
        runner, lambda state, before: setattr(state, "block_ids", before["block_ids"])
    )


class _LeavesPlaces(list[int]):
    """Free places, to which that of a session that goes on does not come back."""

    def append(self, place: int) -> None:
        """Take a place back, unless add_requests() is what removes the request, two calls up."""
        if sys._getframe(3).f_code.co_name != "add_requests":
            super().append(place)


def takes_a_place_for_each_turn(runner: SecondModelRunner) -> Change:
    """In the second runner, each turn of a session takes a further place, until none is left."""
    return runner.req_states, "free_indices", _LeavesPlaces(runner.req_states.free_indices)


def knows_items_of_first_turns(runner: SecondModelRunner) -> Change:
    """In the second runner, the items of a chunk are unknown."""
    cache, known = runner.encoder_cache, dict[str, list[MultiModalFeatureSpec]]()
    add = cache.add_request

    def changed(request_id: str, features: list[MultiModalFeatureSpec]) -> None:
        add(request_id, known.setdefault(request_id, list(features)))

    return cache, "add_request", changed


FIRST_SESSION_FAULTS = by_name(
    keeps_what_turns_decoded,
    keeps_items_of_before,
    keeps_positions_of_before,
    goes_on_in_blocks_of_before,
)
SECOND_SESSION_FAULTS = by_name(takes_a_place_for_each_turn, knows_items_of_first_turns)
