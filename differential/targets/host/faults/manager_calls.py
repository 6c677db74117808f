"""Faults to plant in how a scheduler calls its encoder cache manager: canaries of its promises.

Calls that a fault makes are recorded as the scheduler's own. It patches one scheduler instance, a
release's or the reference's, and what that calls: the manager behind the recorder stays as it is.
"""

from collections.abc import Callable
from typing import Any

from ..by_name import breaks, by_name

SchedulerFault = Callable[[Any], None]


def state_of(scheduler: Any) -> Any:
    """Where queues and managers are: the reference keeps them apart from its methods."""
    return getattr(scheduler, "state", scheduler)


@breaks("CP-1", "CP-6")
def allocates_again(scheduler: Any) -> None:
    """Every item is allocated twice."""
    manager = state_of(scheduler).encoder_cache_manager
    allocate = manager.allocate

    def patched(*arguments: Any) -> None:
        allocate(*arguments)
        allocate(*arguments)

    manager.allocate = patched


@breaks("CP-2")
def releases_ahead(scheduler: Any) -> None:
    """What a step encodes is released before any of it is computed."""

    def release(manager: Any, output: Any) -> None:
        for request_id, inputs in _encodes(output).items():
            for number in inputs:
                manager.free_encoder_input(scheduler.requests[request_id], number)

    _behind_schedule(scheduler, release)


@breaks("CP-3")
def frees_who_runs(scheduler: Any) -> None:
    """Behind each step the first request that runs gives up what it holds."""

    def free(manager: Any, output: Any) -> None:
        for request in state_of(scheduler).running[:1]:
            manager.free(request)

    _behind_schedule(scheduler, free)


@breaks("CP-4")
def drops_whom_it_encodes_for(scheduler: Any) -> None:
    """A new request that a step encodes for gives up what it holds, and runs no more."""

    def drop(manager: Any, output: Any) -> None:
        new = {one.req_id for one in output.scheduled_new_reqs} & _encodes(output).keys()
        running = state_of(scheduler).running
        for request in [one for one in running if one.request_id in new][:1]:
            manager.free(request)
            running.remove(request)

    _behind_schedule(scheduler, drop)


@breaks("CP-5")
def gives_back_in_reverse(scheduler: Any) -> None:
    """What the requests of a step give back comes back in reverse."""
    manager = state_of(scheduler).encoder_cache_manager
    release, free = manager.free_encoder_input, manager.free
    manager.is_freeing, manager.is_updating, manager.late = False, False, []

    def patched_release(*arguments: Any) -> None:
        if manager.is_freeing:  # which calls this for each input
            release(*arguments)
        else:
            manager.late.append(arguments)

    def free_now(request: Any) -> None:
        manager.is_freeing = True
        free(request)
        manager.is_freeing = False

    def patched_free(request: Any) -> None:
        if manager.is_updating:
            manager.late.append((request,))
        else:
            free_now(request)

    def give_back(answer: Any) -> Any:
        while manager.late:
            arguments = manager.late.pop()
            (release if len(arguments) > 1 else free_now)(*arguments)
        return answer

    manager.free_encoder_input, manager.free = patched_release, patched_free
    schedule, update = scheduler.schedule, scheduler.update_from_output

    def patched_update(*arguments: Any) -> Any:
        manager.is_updating = True
        answer = update(*arguments)
        manager.is_updating = False
        return give_back(answer)

    scheduler.schedule = lambda *arguments: give_back(schedule(*arguments))
    scheduler.update_from_output = patched_update


MANAGER_CALL_FAULTS: dict[str, SchedulerFault] = by_name(
    allocates_again,
    releases_ahead,
    frees_who_runs,
    drops_whom_it_encodes_for,
    gives_back_in_reverse,
)


def _encodes(output: Any) -> dict[str, list[int]]:
    """The inputs that a step encodes, by request."""
    encodes: dict[str, list[int]] = output.scheduled_encoder_inputs
    return encodes


def _behind_schedule(scheduler: Any, then: Callable[[Any, Any], None]) -> None:
    """Let `then(manager, output)` make calls behind a step, as if it belonged to it."""
    schedule = scheduler.schedule

    def patched(*arguments: Any) -> Any:
        output = schedule(*arguments)
        then(state_of(scheduler).encoder_cache_manager, output)
        return output

    scheduler.schedule = patched
