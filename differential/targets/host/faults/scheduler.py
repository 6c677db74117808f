"""Faults to plant in a scheduler, a release's or the reference's: canaries that a search must find.

A fault patches one scheduler instance; what it counts it keeps in the instance's `vars`. Most
change what a step says of itself once it is decided, in words that every release shares; the others
put aside what the scheduler decides from.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ..by_name import breaks, by_name
from ..protocol import RefusedByRelease
from ..scheduler.told import carrier_of
from ..vllm_objects.requests import CachedRequest, Request
from ..vllm_objects.scheduler import (
    EngineCoreOutputs,
    KVConnectorOutput,
    ModelRunnerReport,
    Scheduler,
    SchedulerOutput,
)
from .manager_calls import MANAGER_CALL_FAULTS, SchedulerFault, state_of

_QUEUES = ("waiting", "skipped_waiting", "passed_over")
_NOBODYS_BLOCK = 1 << 30


@breaks("SC-1a")
def schedules_beyond_the_budget(scheduler: Scheduler) -> None:
    """The first request of a step is said to compute more tokens than any step may."""

    def enlarge(output: SchedulerOutput) -> None:
        for request_id in list(output.num_scheduled_tokens)[:1]:
            output.num_scheduled_tokens[request_id] += 1_000_000

    _after_schedule(scheduler, enlarge)


@breaks("SC-1b")
def encodes_beyond_the_budget(scheduler: Scheduler) -> None:
    """What a step encodes it encodes a thousand times."""

    def repeat(output: SchedulerOutput) -> None:
        encodes = output.scheduled_encoder_inputs
        for request_id, inputs in list(encodes.items()):
            encodes[request_id] = list(inputs) * 1000

    _after_schedule(scheduler, repeat)


@breaks("SC-1c")
def admits_everybody(scheduler: Scheduler) -> None:
    """Behind a step whoever waited runs."""

    def admit(output: SchedulerOutput) -> None:
        state = state_of(scheduler)
        for name in _QUEUES:
            while queue := getattr(state, name, None):
                request = queue.pop_request()
                request.status = type(request.status).RUNNING
                state.running.append(request)

    _after_schedule(scheduler, admit)


@breaks("SC-4")
def splits_items(scheduler: Scheduler) -> None:
    """A step that would compute an item of two tokens or more stops behind its first."""

    def cut(output: SchedulerOutput) -> None:
        for request_id, start in _starts(output).items():
            end = start + output.num_scheduled_tokens[request_id]
            for offset, length in _items(scheduler.requests[request_id]):
                if start <= offset < offset + length <= end and length > 1:
                    output.num_scheduled_tokens[request_id] = offset + 1 - start
                    break

    _after_schedule(scheduler, cut)


@breaks("SC-2", "SC-11")
def computes_into_items(scheduler: Scheduler) -> None:
    """A chunk that ends where an item begins takes the item's first token as well."""

    def lengthen(output: SchedulerOutput) -> None:
        for request_id, (_, end, items) in _chunks(scheduler, output).items():
            if any(offset == end for offset, _ in items):
                output.num_scheduled_tokens[request_id] += 1

    _after_schedule(scheduler, lengthen)


@breaks("SC-3")
def stops_early(scheduler: Scheduler) -> None:
    """A chunk of a prompt ends one token early."""

    def shorten(output: SchedulerOutput) -> None:
        for request_id, (start, end, _) in _chunks(scheduler, output).items():
            if end - start > 1:
                output.num_scheduled_tokens[request_id] -= 1

    _after_schedule(scheduler, shorten)


@breaks("SC-5")
def encodes_again(scheduler: Scheduler) -> None:
    """A step that has nothing to encode encodes what an earlier one did."""

    def encode(output: SchedulerOutput) -> None:
        for request_id, (start, _, items) in _chunks(scheduler, output).items():
            for number, (offset, length) in enumerate(items):
                if offset < start < offset + length and not output.scheduled_encoder_inputs:
                    output.scheduled_encoder_inputs[request_id] = [number]

    _after_schedule(scheduler, encode)


@breaks("SC-9", kind="at once")
def withholds_what_is_encoded(scheduler: Scheduler) -> None:
    """Workers are told of a new request without the items that the step has them encode."""

    def withhold(output: SchedulerOutput) -> None:
        for new in output.scheduled_new_reqs:
            numbers = output.scheduled_encoder_inputs.get(new.req_id, ())
            if hasattr(new, "withheld_inputs"):
                new.withheld_inputs.extend(numbers)
                continue
            carrier = carrier_of(new)
            items = list(getattr(new, carrier))
            for number in numbers:
                is_feature = carrier == "mm_features"
                items[number] = replace(items[number], data=None) if is_feature else None
            setattr(new, carrier, items)

    _after_schedule(scheduler, withhold)


@breaks("SC-9", kind="while it runs")
def drops_what_is_encoded(scheduler: Scheduler) -> None:
    """Workers are told to drop the data of the items that the step has them encode, be it sent
    again with it or not."""

    def drop(output: SchedulerOutput) -> None:
        if hasattr(output, "encoder_input_updates"):
            for request_id, numbers in output.scheduled_encoder_inputs.items():
                updates = output.encoder_input_updates.setdefault(request_id, {})
                updates.update(dict.fromkeys(numbers))

    _after_schedule(scheduler, drop)


@breaks("SC-7")
def looks_past_the_first(scheduler: Scheduler) -> None:
    """A step does not look at the first of several that wait; it goes behind the others."""
    schedule = scheduler.schedule

    def patched(*arguments: bool) -> SchedulerOutput:
        queue = state_of(scheduler).waiting
        first = queue.pop_request() if len(queue) > 1 else None
        try:
            return schedule(*arguments)
        finally:
            if first is not None:
                queue.add_request(first)

    scheduler.schedule = patched


@breaks("DF-1")
def drops_what_is_read(scheduler: Scheduler) -> None:
    """A step that computes the first half of an item has the workers drop it."""

    def drop(output: SchedulerOutput) -> None:
        for request_id, (_, end, items) in _chunks(scheduler, output).items():
            for number, (offset, length) in enumerate(items):
                if offset < end < offset + length:
                    _notice(scheduler.requests[request_id], number, output)

    _after_schedule(scheduler, drop)


@breaks("SC-14", "LV-3")
def computes_the_same_again(scheduler: Scheduler) -> None:
    """A chunk before the end of a prompt is forgotten as soon as it is scheduled."""

    def forget(output: SchedulerOutput) -> None:
        for request_id, (start, _, _) in _chunks(scheduler, output).items():
            scheduler.requests[request_id].num_computed_tokens = start

    _after_schedule(scheduler, forget)


@breaks("LV-1")
def stops(scheduler: Scheduler) -> None:
    """From the third step on no request is looked at."""
    schedule = scheduler.schedule
    counted = vars(scheduler)
    counted["steps_seen"] = 0

    def patched(*arguments: bool) -> SchedulerOutput:
        counted["steps_seen"] = min(counted["steps_seen"] + 1, 3)
        if counted["steps_seen"] < 3:
            return schedule(*arguments)
        state = state_of(scheduler)
        names = ["running", *(name for name in _QUEUES if getattr(state, name, None))]
        put_aside = {name: getattr(state, name) for name in names}
        for name, queue in put_aside.items():
            setattr(state, name, type(queue)())
        try:
            return schedule(*arguments)
        finally:
            for name, queue in put_aside.items():
                setattr(state, name, queue)

    scheduler.schedule = patched


@breaks("SC-8", kind="KeyError in update")
def raises_in_update(scheduler: Scheduler) -> None:
    """The second output of a step that comes back raises."""
    update = scheduler.update_from_output
    counted = vars(scheduler)
    counted["updates_seen"] = 0

    def patched(output: SchedulerOutput, *executed: object) -> dict[int, EngineCoreOutputs]:
        counted["updates_seen"] += 1
        if counted["updates_seen"] == 2:
            raise KeyError(counted["updates_seen"])
        return update(output, *executed)

    scheduler.update_from_output = patched


@breaks("SC-19")
def forgets_who_waits(scheduler: Scheduler) -> None:
    """Whoever is first of those that wait behind a step is not there any more."""

    def forget(output: SchedulerOutput) -> None:
        state = state_of(scheduler)
        for name in _QUEUES:
            if queue := getattr(state, name, None):
                queue.pop_request()
                break

    _after_schedule(scheduler, forget)


@breaks("SC-18", kind="it is the second")
def refuses_requests(scheduler: Scheduler) -> None:
    """The second request is refused as if it were malformed."""
    add_request = scheduler.add_request
    counted = vars(scheduler)
    counted["requests_seen"] = 0

    def patched(request: Request) -> None:
        counted["requests_seen"] += 1
        if counted["requests_seen"] == 2:
            raise RefusedByRelease(ValueError(), "it is the second")
        add_request(request)

    scheduler.add_request = patched


@breaks("SC-10")
def calls_all_tokens_drafts(scheduler: Scheduler) -> None:
    """All tokens that a step computes of the first request that went on are said to be drafts."""
    schedule = scheduler.schedule

    def patched(*arguments: bool) -> SchedulerOutput:
        ran = [request.request_id for request in state_of(scheduler).running]
        output = schedule(*arguments)
        counts = output.num_scheduled_tokens
        for request_id in [name for name in ran if name in counts][:1]:
            output.scheduled_spec_decode_tokens[request_id] = [0] * counts[request_id]
        return output

    scheduler.schedule = patched


def keeps_drafts(scheduler: Scheduler) -> None:
    """The drafts of a step's first request stay in the next one."""
    held = vars(scheduler)
    held["drafts_kept"] = {}

    def keep(output: SchedulerOutput) -> None:
        drafts, kept = output.scheduled_spec_decode_tokens, held["drafts_kept"]
        held["drafts_kept"] = dict(list(drafts.items())[:1])
        drafts.update({name: tokens for name, tokens in kept.items() if name not in drafts})

    _after_schedule(scheduler, keep)


@breaks("SC-12")
def offers_less(scheduler: Scheduler) -> None:
    """Admission is told of an embedding less than is left of the compute budget."""
    manager = scheduler.encoder_cache_manager
    can_allocate = manager.can_allocate

    def patched(request: CachedRequest, input_id: int, *limits: int) -> bool:
        budget, pending = limits
        return can_allocate(request, input_id, budget - 1, pending)

    manager.can_allocate = patched


@breaks("SC-13")
def preempts_the_most_urgent(scheduler: Scheduler) -> None:
    """While a step is decided, whoever runs is as urgent as it was not, and ran in reverse."""
    schedule = scheduler.schedule

    def patched(*arguments: bool) -> SchedulerOutput:
        running = state_of(scheduler).running
        ranks = [(request, request.priority, request.arrival_time) for request in running]
        running.reverse()
        for request, priority, arrival in ranks:
            request.priority, request.arrival_time = -priority, -arrival
        try:
            return schedule(*arguments)
        finally:
            for request, priority, arrival in ranks:
                request.priority, request.arrival_time = priority, arrival

    scheduler.schedule = patched


@breaks("SC-16")
def counts_a_block_too_few(scheduler: Scheduler) -> None:
    """A free KV block is not counted."""
    pool = scheduler.kv_cache_manager.block_pool
    get_num_free_blocks = pool.get_num_free_blocks
    pool.get_num_free_blocks = lambda: max(0, get_num_free_blocks() - 1)


@breaks("SC-17")
def tells_of_a_block_too_few(scheduler: Scheduler) -> None:
    """The last KV block of a new request is not told."""

    def drop(output: SchedulerOutput) -> None:
        for new in output.scheduled_new_reqs:
            del new.block_ids[0][-1:]

    _after_schedule(scheduler, drop)


@breaks("KT-1")
def hands_out_what_is_loaded(scheduler: Scheduler) -> None:
    """The last block of a new request is said to be one into which the KV of another is loaded."""
    loading: list[int] = []

    def share(output: SchedulerOutput) -> None:
        for new in output.scheduled_new_reqs:
            if loading:
                new.block_ids[0][-1] = loading[0]
        for _, later, block_ids in output.kv_connector_metadata["kv_loads"].values():
            if later:
                loading[:] = block_ids[-1:]

    _after_schedule(scheduler, share)


@breaks("KT-4")
def sends_from_the_second(scheduler: Scheduler) -> None:
    """Of the KV blocks that are sent the first is not told."""

    def leave_out(output: SchedulerOutput) -> None:
        for _, block_ids in output.kv_connector_metadata["kv_sends"]:
            del block_ids[:1]

    _after_schedule(scheduler, leave_out)


@breaks("SC-20")
def begins_before_the_first(scheduler: Scheduler) -> None:
    """A new request that begins at its first token is said to begin at the one before."""

    def move(output: SchedulerOutput) -> None:
        requests = output.scheduled_new_reqs
        for number, new in enumerate(requests):
            if new.num_computed_tokens == 0:
                changed = getattr(new, "_replace", partial(replace, new))
                requests[number] = changed(num_computed_tokens=-1)

    _after_schedule(scheduler, move)


@breaks("SC-15", "KT-2")
def reads_what_nobody_wrote(scheduler: Scheduler) -> None:
    """The first block of a new request with computed tokens is said to be one of nobody's."""

    def mislead(output: SchedulerOutput) -> None:
        for new in output.scheduled_new_reqs:
            if new.num_computed_tokens > 0:
                new.block_ids[0][0] = _NOBODYS_BLOCK

    _after_schedule(scheduler, mislead)


@breaks("KT-3")
def overlooks_failed_loads(scheduler: Scheduler) -> None:
    """Reports of KV that was not loaded right are overlooked."""
    update = scheduler.update_from_output

    def patched(
        output: SchedulerOutput, *executed: ModelRunnerReport | KVConnectorOutput
    ) -> dict[int, EngineCoreOutputs]:
        return update(output, *map(_without_failures, executed))

    scheduler.update_from_output = patched


def _without_failures(
    executed: ModelRunnerReport | KVConnectorOutput,
) -> ModelRunnerReport | KVConnectorOutput:
    """What was executed, or reported with it, as if all loads had been right."""
    report = getattr(executed, "kv_connector_output", executed)
    if not getattr(report, "invalid_block_ids", None):
        return executed
    right = replace(report, invalid_block_ids=set())
    return right if report is executed else replace(executed, kv_connector_output=right)


@breaks("SC-21")
def has_a_slot_too_many(scheduler: Scheduler) -> None:
    """Its encoder cache is larger by a slot than it should be."""
    manager = scheduler.encoder_cache_manager
    for name in ("cache_size", "num_free_slots", "num_freeable_slots"):
        if hasattr(manager, name):
            setattr(manager, name, getattr(manager, name) + 1)


SCHEDULER_FAULTS: dict[str, SchedulerFault] = by_name(
    schedules_beyond_the_budget,
    encodes_beyond_the_budget,
    admits_everybody,
    splits_items,
    computes_into_items,
    stops_early,
    encodes_again,
    withholds_what_is_encoded,
    drops_what_is_encoded,
    looks_past_the_first,
    drops_what_is_read,
    computes_the_same_again,
    stops,
    raises_in_update,
    refuses_requests,
    forgets_who_waits,
    calls_all_tokens_drafts,
    keeps_drafts,
    offers_less,
    preempts_the_most_urgent,
    counts_a_block_too_few,
    tells_of_a_block_too_few,
    hands_out_what_is_loaded,
    begins_before_the_first,
    reads_what_nobody_wrote,
    overlooks_failed_loads,
    sends_from_the_second,
    has_a_slot_too_many,
    *MANAGER_CALL_FAULTS.values(),
)


def _after_schedule(scheduler: Scheduler, then: Callable[[SchedulerOutput], None]) -> None:
    """Let `then(output)` change what a step says."""
    schedule = scheduler.schedule

    def patched(*arguments: bool) -> SchedulerOutput:
        output = schedule(*arguments)
        then(output)
        return output

    scheduler.schedule = patched


def _starts(output: SchedulerOutput) -> dict[str, int]:
    """Where each request's computed tokens begin."""
    cached = output.scheduled_cached_reqs
    starts = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    return {**starts, **dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))}


def _chunks(
    scheduler: Scheduler, output: SchedulerOutput
) -> dict[str, tuple[int, int, list[tuple[int, int]]]]:
    """Start and end of each chunk that does not end a prompt, and the request's items."""
    chunks = {}
    for request_id, start in _starts(output).items():
        request = scheduler.requests[request_id]
        end = start + output.num_scheduled_tokens[request_id]
        if end < request.num_prompt_tokens:
            chunks[request_id] = (start, end, _items(request))
    return chunks


def _notice(request: Request, number: int, output: SchedulerOutput) -> None:
    """Have the workers drop the entry of an item; older releases keep one for each request."""
    if hasattr(output, "free_encoder_mm_hashes"):
        output.free_encoder_mm_hashes.append(request.mm_features[number].identifier)
    else:
        output.free_encoder_input_ids.append((request.request_id, number))


def _items(request: Request) -> list[tuple[int, int]]:
    """Offset and length of each item; older releases keep the positions by themselves."""
    has_features = hasattr(request, "mm_features")
    positions = (
        [one.mm_position for one in request.mm_features] if has_features else request.mm_positions
    )
    return [(position.offset, position.length) for position in positions]
