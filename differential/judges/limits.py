"""What a scheduler's trace asks for, against the limits that releases document.

Where a limit is not known to the token (blocks that a window needs), the trace is taken to ask for
more than it does: a release is accused of a refusal only where no limit can be its reason.
"""

import re

from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.scheduler import Chunk, SchedulerConfig
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.scheduler_records import Service

_WITH_ITEMS = (Add, Chunk)


def service(trace: Trace, refused: str) -> Service:
    """What the trace asks for, and how the release refused it."""
    config = trace.header.config
    assert isinstance(config, SchedulerConfig)
    asked = [event for event in trace.events if isinstance(event, _WITH_ITEMS)]
    lengths = [item.length for event in asked for item in event.items]
    together = 1 if config.chunked_prefill else config.max_model_len
    if config.disable_chunked_mm_input:
        together = max(together, *lengths, 1)
    return Service(
        refused,
        max(config.max_num_seqs, config.max_num_active_seqs or 0),
        config.max_num_batched_tokens,
        min(config.max_num_batched_tokens, config.max_num_seqs, *lengths, 1),
        together,
        max((event.prompt for event in asked), default=0),
        config.long_prefill_token_threshold,
        config.max_model_len,
        _blocks(config),
        config.num_blocks - 1,
    )


def way_of(reason: str) -> str:
    """A refusal without its numbers: refusals that differ in nothing else are of one kind."""
    return re.sub(r"\d+", "N", reason)


def _blocks(config: SchedulerConfig) -> int:
    """KV blocks for the longest request in all groups, as if a window needed what it has passed."""
    kinds = [group.kind for group in config.groups] or ["full"]
    tokens = [
        config.max_num_batched_tokens if kind == "cross" else config.max_model_len for kind in kinds
    ]
    return sum(-(-count // config.block_size) for count in tokens)
