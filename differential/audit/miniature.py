"""A trace at a smaller scale: all lengths, budgets and the number of steps divided by one number.

An engine needs hundreds of steps to fill a KV block and thousands to fill its memory. In miniature
the same requests meet each other in the same order after a few, and a trace that breaks a contract
is minimised in seconds instead of an hour.
"""

from collections.abc import Iterable, Iterator

import msgspec

from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Schedule, SchedulerConfig
from cacheproof.differential.traces.trace import AnyEvent, Trace

SCALES = (32, 16, 8, 4, 2)
_BUDGETS = ("capacity", "compute_budget", "max_num_batched_tokens", "block_size")


def miniatures(trace: Trace) -> Iterator[Trace]:
    """The trace at each scale that its blocks allow, the smallest first, and as it is."""
    config = trace.header.config
    assert isinstance(config, SchedulerConfig)
    for scale in SCALES:
        if config.block_size % scale == 0 and not config.groups:
            yield miniature(trace, scale)
    yield trace


def miniature(trace: Trace, scale: int) -> Trace:
    """The trace with everything divided by `scale`, which divides the size of a KV block."""
    config = trace.header.config
    assert isinstance(config, SchedulerConfig)
    events = list(_fewer_steps(trace.events, scale))
    events = [_shorter(one, scale) if isinstance(one, Add) else one for one in events]
    longest = [one.prompt + one.max_tokens for one in events if isinstance(one, Add)]
    smaller: dict[str, int] = {name: max(1, getattr(config, name) // scale) for name in _BUDGETS}
    smaller["max_num_batched_tokens"] = max(
        smaller["max_num_batched_tokens"], config.max_num_seqs
    )  # releases refuse fewer tokens than requests
    smaller["max_model_len"] = max([-(-config.max_model_len // scale), *longest])
    smaller["long_prefill_token_threshold"] = -(-config.long_prefill_token_threshold // scale)
    header = msgspec.structs.replace(
        trace.header, config=msgspec.structs.replace(config, **smaller)
    )
    return Trace(header, tuple(events))


def _fewer_steps(events: Iterable[AnyEvent], scale: int) -> Iterator[AnyEvent]:
    """One in `scale` of the steps and one in `scale` of the updates, and all other events, in
    order."""
    steps = updates = 0
    for event in events:
        if isinstance(event, Schedule):
            steps += 1
            if steps % scale == 0:
                yield event
        elif isinstance(event, Update):
            updates += 1
            if updates % scale == 0:
                yield Update()
        else:
            yield event


def _shorter(added: Add, scale: int) -> Add:
    end = 0
    items = []
    for item in added.items:
        offset, length = max(end, item.offset // scale), max(1, item.length // scale)
        items.append(Item(item.identifier, offset, length))
        end = offset + length
    return msgspec.structs.replace(
        added,
        prompt=max(1, end, added.prompt // scale),
        items=tuple(items),
        max_tokens=-(-added.max_tokens // scale),
        stop_after=None if added.stop_after is None else -(-added.stop_after // scale),
    )
