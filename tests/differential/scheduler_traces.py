"""Traces of schedulers that a test writes by hand."""

import msgspec

from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.scheduler import SchedulerConfig, SchedulerHeader
from cacheproof.differential.traces.trace import AnyEvent, Trace

CONFIG = SchedulerConfig(
    capacity=8,
    compute_budget=8,
    max_num_batched_tokens=16,
    max_num_seqs=4,
    max_model_len=64,
    block_size=16,
    num_blocks=9,
)


def trace(*events: AnyEvent, manager: str = "encoder_cache", **changes: object) -> Trace:
    """A trace of these events under `CONFIG`, changed in these fields."""
    config = msgspec.structs.replace(CONFIG, **changes)
    return Trace(SchedulerHeader(SCHEMA, manager, config), events)
