"""Faults of the torch runner, planted in a sound one: each must be seen, and named.

A fault takes a runner and changes one thing that it does.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...by_name import by_name
from ...stale_tables import change_resumed
from .fault import RunnerFault, replace_in_model

if TYPE_CHECKING:
    from torch import Tensor

    from cacheproof.gpu_runner.encoder_store import StoreRead
    from cacheproof.gpu_runner.requests import RunnerPrompt
    from cacheproof.gpu_runner.rotary import RotaryPositions
    from cacheproof.gpu_runner.runner import Gathering, Runner, Sampled
    from cacheproof.reference.scheduler.output import SchedulerOutput


def frees_after_encodes(runner: "Runner") -> None:
    """Entries that a step encodes anew are dropped by that step's notices."""
    execute, free = runner.execute, runner.encoder_store.free
    runner.encoder_store.free = lambda identifiers: None

    def late(step: "SchedulerOutput") -> dict[str, list["Sampled"]]:
        encode = runner._encode

        def encode_and_free(step: "SchedulerOutput") -> None:
            encode(step)
            free(step.free_encoder_mm_hashes)

        runner._encode = encode_and_free
        try:
            return execute(step)
        finally:
            runner._encode = encode

    runner.execute = late


def never_frees(runner: "Runner") -> None:
    """Notices are not heard, and the store takes what does not fit."""
    runner.encoder_store.capacity *= 100
    runner.encoder_store.free = lambda identifiers: None


def drops_one_more(runner: "Runner") -> None:
    """Each notice drops the oldest of the other entries too."""
    store = runner.encoder_store
    free = store.free

    def more(identifiers: Iterable[str]) -> None:
        names = list(identifiers)
        free([*names, *([name for name in store.sizes if name not in names][:1] if names else ())])

    store.free = more


def reads_the_next_rows(runner: "Runner") -> None:
    """Windows that do not end with their item read a row too late."""

    def late(one: "Gathering") -> "Gathering":
        read = one.read
        size = runner.encoder_store.sizes.get(one.identifier, 0)
        shift = int(read.end < size)
        return one.__class__(
            one.identifier,
            read._replace(start=read.start + shift, end=read.end + shift),
            one.targets,
        )

    _change_gatherings(runner, late)


def puts_rows_a_token_late(runner: "Runner") -> None:
    """The rows of a window stand a token late, the last one at the first place."""
    _change_gatherings(
        runner,
        lambda one: one.__class__(
            one.identifier, one.read, one.indices(runner.model.device).roll(-1)
        ),
    )


def _change_gatherings(runner: "Runner", change: Callable[["Gathering"], "Gathering"]) -> None:
    gatherings = runner._gatherings
    runner._gatherings = lambda *arguments: map(change, gatherings(*arguments))


def keeps_the_first_output(runner: "Runner") -> None:
    """An item keeps the rows to which it was encoded first, even in another model's run."""
    store = runner.encoder_store
    put = store.put
    first: dict[str, tuple[Tensor, dict[str, Tensor]]] = {}

    def stale(identifier: str, rows: "Tensor", **beside: "Tensor") -> None:
        old_rows, old_beside = first.setdefault(identifier, (rows.flip(0), beside))
        put(identifier, old_rows, **old_beside)

    store.put = stale


def takes_items_in_reverse(runner: "Runner") -> None:
    """The outputs of a batch go to its items in reverse."""
    model = runner.model

    replace_in_model(runner, encode=lambda items: model.encode(items)[::-1])


def keeps_blocks_of_before(runner: "Runner") -> None:
    """A request that comes back after a preemption reads the blocks that it had before."""
    change_resumed(
        runner,
        lambda old, new: tuple(
            (before + now)[: max(len(now), 1)] for before, now in zip(old, new, strict=True)
        ),
    )


def writes_a_slot_too_far(runner: "Runner") -> None:
    """The KV of a window's last token goes where that of the next would."""
    slots = runner.kv_store.slots

    def shifted(block_ids: Sequence[int], start: int, end: int) -> "Tensor":
        own = slots(block_ids, start, end)
        own[-1] = (own[-1] + 1) % (runner.kv_store.num_blocks * runner.kv_store.block_size)
        return own

    runner.kv_store.slots = shifted


def forgets_new_blocks(runner: "Runner") -> None:
    """A running request takes its first block for the one that it gets."""
    apply = runner.batch.apply

    def deaf(step: "SchedulerOutput") -> None:
        apply(step)
        cached = step.scheduled_cached_reqs
        for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if blocks is None or name in cached.resumed_req_ids:
                continue
            for own, new in zip(runner.batch.requests[name].block_ids, blocks, strict=True):
                if new:
                    own[-1] = own[0]

    runner.batch.apply = deaf


def swaps_sides(runner: "Runner") -> None:
    """The position of a row in height is taken for that in width, and the other way."""
    _change_positions(runner, lambda own: own._replace(of_prompt=own.of_prompt[[0, 2, 1]]))


def forgets_time(runner: "Runner") -> None:
    """Every frame of a video stands where its first does."""

    def flatten(own: "RotaryPositions") -> "RotaryPositions":
        of_prompt = own.of_prompt.clone()
        of_prompt[0] = of_prompt[1:].amin(dim=0).minimum(of_prompt[0])
        return own._replace(of_prompt=of_prompt)

    _change_positions(runner, flatten)


def goes_on_too_early(runner: "Runner") -> None:
    """Decoded tokens have positions one too low."""
    _change_positions(runner, lambda own: own._replace(behind=own.behind - 1))


def places_the_next_rows(runner: "Runner") -> None:
    """Positions of a pruned video's rows are read a row late, the last one's from the first."""
    store = runner.encoder_store
    gather = store.gather_beside

    def late(kind: str, identifier: str, read: "StoreRead") -> "Tensor":
        found = gather(kind, identifier, read)
        return found.roll(-1, 0) if kind == "positions" else found

    store.gather_beside = late


def _change_positions(
    runner: "Runner", change: Callable[["RotaryPositions"], "RotaryPositions"]
) -> None:
    add = runner.add

    def added(request_id: str, prompt: "RunnerPrompt") -> None:
        add(request_id, prompt)
        request = runner.batch.requests[request_id]
        assert request.positions is not None
        request.positions = change(request.positions)

    runner.add = added


ROTARY_FAULTS: dict[str, RunnerFault] = by_name(
    swaps_sides, forgets_time, goes_on_too_early, places_the_next_rows
)
"""Faults in the positions of a model with three rotary axes."""
RUNNER_FAULTS: dict[str, RunnerFault] = by_name(
    frees_after_encodes,
    never_frees,
    drops_one_more,
    reads_the_next_rows,
    puts_rows_a_token_late,
    keeps_the_first_output,
    takes_items_in_reverse,
    keeps_blocks_of_before,
    writes_a_slot_too_far,
    forgets_new_blocks,
)
