"""Makes traces for connectors simpler."""

from collections.abc import Iterator

from cacheproof.differential.shrinking.edits import edited, put, remove
from cacheproof.differential.traces.encoder_connector import (
    EncoderConnectorConfig,
    Execute,
    Forget,
    Plan,
)
from cacheproof.differential.traces.trace import Trace

PLAIN_NAMES = "abcdefghi"


def fewer_items(trace: Trace) -> Iterator[Trace | None]:
    """Steps that read fewer items, of fewer rows, with plainer names; models that are one."""
    config = trace.header.config
    if not isinstance(config, EncoderConnectorConfig):
        return
    for position, event in enumerate(trace.events):
        for name in ("items", "refused") if isinstance(event, Plan | Forget) else ():
            for number in range(len(getattr(event, name, ()))):
                yield edited(trace, remove(("events", position, name), number))
        if isinstance(event, Execute) and event.dies_at:
            for lower in (0, 1, event.dies_at // 2):
                yield edited(trace, put(("events", position, "dies_at"), lower))
    used = {name for event in trace.events for name in getattr(event, "items", ())}
    used |= {getattr(event, name, None) for event in trace.events for name in ("item", "other")}
    at = ("header", "config")
    for number, item in enumerate(config.items):
        if item.identifier not in used and len(config.items) > 1:
            yield edited(trace, remove((*at, "items"), number))
        for rows in {1, 2, item.rows - 1} - {item.rows, 0}:
            yield edited(trace, put((*at, "items", number, "rows"), rows))
    if config.capacity is not None:
        for lower in {config.capacity // 2, config.capacity - 16, 64, 48, 32, 16}:
            if 0 < lower < config.capacity:
                yield edited(trace, put((*at, "capacity"), lower))
    for number, model in enumerate(config.models):
        if model.width > 4:
            yield edited(trace, put((*at, "models", number, "width"), 4))
        if model.dtype != "float32":
            yield edited(trace, put((*at, "models", number, "dtype"), "float32"))


EDITS = (fewer_items,)
