"""Makes calls of the media hasher simpler."""

from collections.abc import Iterator

from cacheproof.differential.findings.shrinking.descriptions import smaller_calls
from cacheproof.differential.findings.shrinking.edits import edited, put
from cacheproof.differential.traces.media_hash import Hash
from cacheproof.differential.traces.trace import Trace


def simpler_values(trace: Trace) -> Iterator[Trace | None]:
    """Calls with less in them."""
    hashed = [(n, event.value) for n, event in enumerate(trace.events) if isinstance(event, Hash)]
    for values in smaller_calls([value for _, value in hashed]) if hashed else ():
        edits = zip(hashed, values, strict=True)
        yield edited(trace, *(put(("events", n, "value"), value) for (n, _), value in edits))


EDITS = (simpler_values,)
