"""Faults to plant in how a scheduler calls its encoder cache manager: canaries of its promises.

Calls that a fault makes are recorded as the scheduler's own. It patches one scheduler instance, a
release's or the reference's, and what that calls: the manager behind the recorder stays as it is.
"""

from collections.abc import Callable
from typing import TypeVar

from ..by_name import breaks, by_name
from ..vllm_objects.encoder_cache import EncoderCacheManager
from ..vllm_objects.requests import CachedRequest
from ..vllm_objects.scheduler import EngineCoreOutputs, Scheduler, SchedulerOutput, SchedulerState

Answer = TypeVar("Answer")

SchedulerFault = Callable[[Scheduler], None]


def state_of(scheduler: Scheduler) -> SchedulerState:
    """Where queues and managers are: the reference keeps them apart from its methods."""
    state: SchedulerState = vars(scheduler).get("state", scheduler)
    return state


@breaks("CP-1", "CP-6")
def allocates_again(scheduler: Scheduler) -> None:
    """Every item is allocated twice."""
    manager = state_of(scheduler).encoder_cache_manager
    allocate = manager.allocate

    def patched(request: CachedRequest, input_id: int) -> None:
        allocate(request, input_id)
        allocate(request, input_id)

    manager.allocate = patched


@breaks("CP-2")
def releases_ahead(scheduler: Scheduler) -> None:
    """What a step encodes is released before any of it is computed."""

    def release(manager: EncoderCacheManager, output: SchedulerOutput) -> None:
        for request_id, inputs in _encodes(output).items():
            for number in inputs:
                manager.free_encoder_input(scheduler.requests[request_id], number)

    _behind_schedule(scheduler, release)


@breaks("CP-3")
def frees_who_runs(scheduler: Scheduler) -> None:
    """Behind each step the first request that runs gives up what it holds."""

    def free(manager: EncoderCacheManager, output: SchedulerOutput) -> None:
        for request in state_of(scheduler).running[:1]:
            manager.free(request)

    _behind_schedule(scheduler, free)


@breaks("CP-4")
def drops_whom_it_encodes_for(scheduler: Scheduler) -> None:
    """A new request that a step encodes for gives up what it holds, and runs no more."""

    def drop(manager: EncoderCacheManager, output: SchedulerOutput) -> None:
        new = {one.req_id for one in output.scheduled_new_reqs} & _encodes(output).keys()
        running = state_of(scheduler).running
        for request in [one for one in running if one.request_id in new][:1]:
            manager.free(request)
            running.remove(request)

    _behind_schedule(scheduler, drop)


@breaks("CP-5")
def gives_back_in_reverse(scheduler: Scheduler) -> None:
    """What the requests of a step give back comes back in reverse."""
    manager = state_of(scheduler).encoder_cache_manager
    release, free = manager.free_encoder_input, manager.free
    held = vars(manager)
    held |= {"is_freeing": False, "is_updating": False, "late": []}

    def patched_release(request: CachedRequest, input_id: int) -> None:
        if held["is_freeing"]:  # which calls this for each input
            release(request, input_id)
        else:
            held["late"].append((request, input_id))

    def free_now(request: CachedRequest) -> None:
        held["is_freeing"] = True
        free(request)
        held["is_freeing"] = False

    def patched_free(request: CachedRequest) -> None:
        if held["is_updating"]:
            held["late"].append((request,))
        else:
            free_now(request)

    def give_back(answer: Answer) -> Answer:
        while held["late"]:
            arguments = held["late"].pop()
            (release if len(arguments) > 1 else free_now)(*arguments)
        return answer

    manager.free_encoder_input, manager.free = patched_release, patched_free
    schedule, update = scheduler.schedule, scheduler.update_from_output

    def patched_update(output: SchedulerOutput, *executed: object) -> dict[int, EngineCoreOutputs]:
        held["is_updating"] = True
        answer = update(output, *executed)
        held["is_updating"] = False
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


def _encodes(output: SchedulerOutput) -> dict[str, list[int]]:
    """The inputs that a step encodes, by request."""
    return output.scheduled_encoder_inputs


def _behind_schedule(
    scheduler: Scheduler, then: Callable[[EncoderCacheManager, SchedulerOutput], None]
) -> None:
    """Let `then(manager, output)` make calls behind a step, as if it belonged to it."""
    schedule = scheduler.schedule

    def patched(*arguments: bool) -> SchedulerOutput:
        output = schedule(*arguments)
        then(state_of(scheduler).encoder_cache_manager, output)
        return output

    scheduler.schedule = patched
