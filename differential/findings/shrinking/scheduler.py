"""Makes the KV cache beside a scheduler simpler."""

from collections.abc import Iterator

from cacheproof.differential.findings.shrinking.edits import edited, remove
from cacheproof.differential.traces.kv_cache import KVCacheConfig
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.differential.traces.trace import Trace


def fewer_groups(trace: Trace) -> Iterator[Trace | None]:
    """A KV cache with fewer groups."""
    config = trace.header.config
    assert isinstance(config, KVCacheConfig | SchedulerConfig)
    for number in range(len(config.groups) if len(config.groups) > 1 else 0):
        yield edited(trace, remove(("header", "config", "groups"), number))


EDITS = (fewer_groups,)
