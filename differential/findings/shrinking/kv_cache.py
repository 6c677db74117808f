"""Makes the texts of a KV cache alone simpler."""

from collections.abc import Iterator

from cacheproof.differential.findings.shrinking.edits import edited, lower_values, put, remove
from cacheproof.differential.traces.kv_cache import Arrive
from cacheproof.differential.traces.trace import Trace


def simpler_texts(trace: Trace) -> Iterator[Trace | None]:
    """Texts of fewer and shorter runs, and all of lower tokens."""
    sites = [
        (("events", position, "text", number), first, count)
        for position, event in enumerate(trace.events)
        if isinstance(event, Arrive)
        for number, (first, count) in enumerate(event.text)
    ]
    for path, _, count in sites:
        yield edited(trace, remove(path))
        for lower in lower_values(count, 1):
            yield edited(trace, put((*path, 1), lower))
    least = min((first for _, first, _ in sites), default=0)
    yield edited(trace, *(put((*path, 0), first - least) for path, first, _ in sites))
    for path, first, _ in sites:
        for lower in lower_values(first, 0):
            yield edited(trace, put((*path, 0), lower))


EDITS = (simpler_texts,)
