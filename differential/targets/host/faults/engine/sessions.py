"""Faults in how an engine's model runners go on with a session: the first changes the state that it
has of the request, the second takes a new one."""

import sys
from collections.abc import Callable
from typing import Any

from ...by_name import by_name
from .engine import Change


def _change_turn(runner: Any, change: Callable[[Any, Any], None]) -> Change:
    """Let a turn of the first begin with what `change` makes of the state, beside what some of it
    was before."""
    update = runner._update_streaming_request

    def changed(request_id: str, told: Any) -> Any:
        before = dict(vars(runner.requests[request_id]))
        before["output_token_ids"] = list(before["output_token_ids"])
        state = update(request_id, told)
        change(state, before)
        return state

    return runner, "_update_streaming_request", changed


def keeps_what_turns_decoded(runner: Any) -> Change:
    """What the turn before has decoded stands behind the chunk as well."""
    return _change_turn(
        runner, lambda state, before: state.output_token_ids.extend(before["output_token_ids"])
    )


def keeps_items_of_before(runner: Any) -> Change:
    """A chunk's items are not known."""
    return _change_turn(runner, lambda state, before: setattr(state, "mm_features", _first(before)))


def _first(before: dict[str, Any]) -> list[Any]:
    """The first item alone: the list itself is the scheduler's, and grows."""
    return list(before["mm_features"][:1])


def keeps_positions_of_before(runner: Any) -> Change:
    """Rotary positions of the prompt before count on behind it."""

    def change(state: Any, before: dict[str, Any]) -> None:
        state.mrope_positions = before["mrope_positions"]
        state.mrope_position_delta = before["mrope_position_delta"]

    return _change_turn(runner, change)


def goes_on_in_blocks_of_before(runner: Any) -> Change:
    """Blocks that a session gets for its next turn are not its own."""
    return _change_turn(
        runner, lambda state, before: setattr(state, "block_ids", before["block_ids"])
    )


class _LeavesPlaces(list[int]):
    """Free places, to which none comes back of a session that goes on."""

    def append(self, place: int) -> None:
        """A request leaves its place: behind remove_request() and _remove_request() stands why."""
        if sys._getframe(3).f_code.co_name != "add_requests":
            super().append(place)


def takes_a_place_for_each_turn(runner: Any) -> Change:
    """In the second, a session that goes on leaves its place behind, until there is none."""
    return runner.req_states, "free_indices", _LeavesPlaces(runner.req_states.free_indices)


def knows_items_of_first_turns(runner: Any) -> Change:
    """In the second, a chunk's items are not known."""
    cache, known = runner.encoder_cache, dict[str, list[Any]]()
    add = cache.add_request

    def changed(request_id: str, features: Any) -> None:
        add(request_id, known.setdefault(request_id, list(features)))

    return cache, "add_request", changed


FIRST_SESSION_FAULTS = by_name(
    keeps_what_turns_decoded,
    keeps_items_of_before,
    keeps_positions_of_before,
    goes_on_in_blocks_of_before,
)
SECOND_SESSION_FAULTS = by_name(takes_a_place_for_each_turn, knows_items_of_first_turns)
