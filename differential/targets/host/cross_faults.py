"""Faults of the torch runner where a decoder attends to an encoder's rows, planted in one that is
whole: each must be seen, and named.

One of them is how a real worker goes about it: the runner of a release that does so does as well.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .by_name import by_name
from .stale_tables import change_resumed


def pairs_rows_by_place(runner: Any) -> None:
    """Rows come in the order in which a step's requests were scheduled, and their slots in that in
    which a worker's batch lists them: who comes back after a preemption is behind who is new."""
    apply, cross = runner.batch.apply, runner._cross
    back: set[str] = set()

    def hear(step: Any) -> None:
        back.clear()
        back.update(step.scheduled_cached_reqs.resumed_req_ids)
        apply(step)

    def by_place(store: Any, scheduled: Any, windows: Any, gatherings: Any) -> Any:
        listed = sorted(gatherings, key=lambda one: one.read.request_id in back)
        paired = [
            replace(one, targets=place.targets)
            for one, place in zip(gatherings, listed, strict=True)
        ]
        return cross(store, scheduled, windows, paired)

    runner.batch.apply, runner._cross = hear, by_place


def reads_anothers_rows(runner: Any) -> None:
    """Each request attends to the blocks of the one before it in the step."""
    cross = runner._cross

    def shifted(*arguments: Any) -> Any:
        step = cross(*arguments)
        slots = [window.slots for window in step.windows]
        windows = zip(step.windows, [*slots[-1:], *slots[:-1]], strict=True)
        return replace(step, windows=tuple(replace(one, slots=other) for one, other in windows))

    runner._cross = shifted


def forgets_rows_of_the_resumed(runner: Any) -> None:
    """A request that comes back after a preemption does not write its rows anew."""
    gatherings = runner._gatherings
    begun: set[str] = set()

    def once(request_id: str, *arguments: Any) -> Any:
        new = [] if request_id in begun else list(gatherings(request_id, *arguments))
        begun.add(request_id)
        return new

    runner._gatherings = once


def keeps_cross_blocks_of_before(runner: Any) -> None:
    """A request that comes back after a preemption writes and reads where its rows were before."""
    change_resumed(runner, lambda old, new: (*new[:-1], old[-1]))


CROSS_FAULTS: dict[str, Callable[[Any], None]] = by_name(
    pairs_rows_by_place,
    reads_anothers_rows,
    forgets_rows_of_the_resumed,
    keeps_cross_blocks_of_before,
)
