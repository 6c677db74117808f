"""Makes a KV cache alone simpler."""

from collections.abc import Iterator

from cacheproof.differential.findings.shrinking.edits import edited, lower_values, put, remove
from cacheproof.differential.findings.shrinking.scheduler import fewer_groups
from cacheproof.differential.traces.kv_cache import Arrive, KVCacheConfig
from cacheproof.differential.traces.trace import Trace


def simpler_groups(trace: Trace) -> Iterator[Trace | None]:
    """Fewer groups, plain settings and shorter texts."""
    config = trace.header.config
    assert isinstance(config, KVCacheConfig)
    yield from fewer_groups(trace)
    for number, group in enumerate(config.groups):
        if group.has_drafter:
            yield edited(trace, put(("header", "config", "groups", number, "has_drafter"), False))
    for name in ("use_eagle", "kv_events", "async_scheduling"):
        if getattr(config, name):
            yield edited(trace, put(("header", "config", name), False))
    for position, event in enumerate(trace.events):
        path = ("events", position)
        if isinstance(event, Arrive):
            for number, (_, count) in enumerate(event.text):
                if len(event.text) > 1:
                    yield edited(trace, remove((*path, "text"), number))
                for lower in lower_values(count, 1):
                    yield edited(trace, put((*path, "text", number, 1), lower))
        for name in ("delay", "must_fit", "others", "defer"):
            if getattr(event, name, False):
                yield edited(trace, put((*path, name), False))


EDITS = (simpler_groups,)
