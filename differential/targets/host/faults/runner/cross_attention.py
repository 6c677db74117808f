"""Faults of the torch runner where a decoder attends to an encoder's rows, planted in one that is
whole: each must be seen, and named.

One of them is how a real worker goes about it: the runner of a release that does so does as well.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...by_name import by_name
from ...stale_tables import change_resumed
from .fault import RunnerFault

if TYPE_CHECKING:
    from torch import Tensor

    from cacheproof.gpu_runner.cross_attention import CrossStep
    from cacheproof.gpu_runner.kv_store import PagedKVStore
    from cacheproof.gpu_runner.paged_attention import Window
    from cacheproof.gpu_runner.requests import RequestState
    from cacheproof.gpu_runner.runner import Gathering, Runner
    from cacheproof.reference.scheduler.output import SchedulerOutput

Scheduled = Sequence[tuple[str, "RequestState", int]]
"""The requests of a step, each with its name and how many tokens it computes."""
NOBODYS = 0
"""A slot of the null block."""


def pairs_rows_by_place(runner: "Runner") -> None:
    """Rows come in the order in which a step's requests were scheduled, and their slots in that in
    which a worker's batch lists them: who comes back after a preemption is behind who is new."""
    apply, cross = runner.batch.apply, runner._cross
    back: set[str] = set()

    def hear(step: "SchedulerOutput") -> None:
        back.clear()
        back.update(step.scheduled_cached_reqs.resumed_req_ids)
        apply(step)

    def by_place(
        store: "PagedKVStore",
        scheduled: Scheduled,
        windows: Sequence["Window"],
        gatherings: Sequence["Gathering"],
    ) -> "CrossStep":
        listed = sorted(gatherings, key=lambda one: one.read.request_id in back)
        paired = [
            replace(one, targets=place.targets)
            for one, place in zip(gatherings, listed, strict=True)
        ]
        return cross(store, scheduled, windows, paired)

    runner.batch.apply, runner._cross = hear, by_place


def _read(runner: "Runner", change: Callable[[list["Tensor"]], list["Tensor"]]) -> None:
    """Let the requests of a step attend to what `change` makes of their slots."""
    cross = runner._cross

    def read(
        store: "PagedKVStore",
        scheduled: Scheduled,
        windows: Sequence["Window"],
        gatherings: Sequence["Gathering"],
    ) -> "CrossStep":
        step = cross(store, scheduled, windows, gatherings)
        slots = change([window.slots for window in step.windows])
        changed = zip(step.windows, slots, strict=True)
        return replace(step, windows=tuple(replace(one, slots=other) for one, other in changed))

    runner._cross = read


def reads_anothers_rows(runner: "Runner") -> None:
    """Each request attends to the blocks of the one before it in the step."""
    _read(runner, lambda slots: [*slots[-1:], *slots[:-1]])


def reads_the_first_requests_rows(runner: "Runner") -> None:
    """All requests of a step attend to the blocks of the first."""
    _read(runner, lambda slots: slots[:1] * len(slots))


def reads_one_row_for_all(runner: "Runner") -> None:
    """A request attends to its first row, as often as it has rows."""
    _read(runner, lambda slots: [one[:1].expand_as(one) for one in slots])


def reads_a_slot_too_far(runner: "Runner") -> None:
    """A request attends to the slots after those of its rows."""
    _read(runner, lambda slots: [one + 1 for one in slots])


def _write(runner: "Runner", change: Callable[["Tensor"], "Tensor"]) -> None:
    """Let the rows of a request that begins go to what `change` makes of their slots."""
    gatherings = runner._gatherings
    runner._gatherings = lambda *arguments: [
        replace(one, targets=change(one.targets)) for one in gatherings(*arguments)
    ]


def leaves_out_the_last_row(runner: "Runner") -> None:
    """The last row is written where nobody reads."""
    _write(runner, lambda slots: slots.where(slots != slots[-1], NOBODYS))


def writes_half_over_the_other(runner: "Runner") -> None:
    """The second half of the rows goes to the slots of the first."""
    _write(runner, lambda slots: slots[: (len(slots) + 1) // 2].repeat(2)[: len(slots)])


def writes_rows_once(runner: "Runner") -> None:
    """Slots keep the rows that were written to them first, whichever request has their blocks
    afterwards."""
    written = set[int]()

    def fresh(slots: "Tensor") -> "Tensor":
        once = [NOBODYS if slot in written else slot for slot in slots.tolist()]
        written.update(once)
        return slots.new_tensor(once)

    _write(runner, fresh)


def forgets_rows_of_the_resumed(runner: "Runner") -> None:
    """A request that comes back after a preemption does not write its rows anew."""
    gatherings = runner._gatherings
    begun: set[str] = set()

    def once(
        request_id: str, request: "RequestState", start: int, end: int, first: int
    ) -> "Iterable[Gathering]":
        known = request_id in begun
        new = [] if known else list(gatherings(request_id, request, start, end, first))
        begun.add(request_id)
        return new

    runner._gatherings = once


def keeps_cross_blocks_of_before(runner: "Runner") -> None:
    """A request that comes back after a preemption writes and reads where its rows were before."""
    change_resumed(runner, lambda old, new: (*new[:-1], old[-1]))


CROSS_FAULTS: dict[str, RunnerFault] = by_name(
    pairs_rows_by_place,
    reads_anothers_rows,
    reads_the_first_requests_rows,
    reads_one_row_for_all,
    reads_a_slot_too_far,
    leaves_out_the_last_row,
    writes_half_over_the_other,
    writes_rows_once,
    forgets_rows_of_the_resumed,
    keeps_cross_blocks_of_before,
)
