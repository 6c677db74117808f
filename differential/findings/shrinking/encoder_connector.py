"""Makes traces for connectors simpler."""

from collections.abc import Iterator

from cacheproof.differential.findings.shrinking.edits import (
    PLAIN_NAMES,
    Edit,
    Lines,
    edited,
    engines,
)
from cacheproof.differential.traces.encoder_connector import (
    EncoderConnectorConfig,
)
from cacheproof.differential.traces.trace import Trace

NAMING = ("items", "refused", "preempted")
"""Fields of events that are lists of items."""


def fewer_items(trace: Trace) -> Iterator[Trace | None]:
    """Steps that read fewer items, of fewer rows, with plainer names; models that are one."""
    config = trace.header.config
    if not isinstance(config, EncoderConnectorConfig):
        return
    plain = [name for name in PLAIN_NAMES if name not in {one.identifier for one in config.items}]
    for item in config.items:
        if item.identifier not in PLAIN_NAMES and plain:
            yield edited(trace, _renamed(item.identifier, plain[0]))
    for item in config.items[1:]:
        yield edited(trace, _renamed(item.identifier, config.items[0].identifier))
    first, *others = engines(trace) or [""]
    for engine in others:
        yield edited(trace, _renamed(engine, first, "engine"))


def _renamed(name: str, other: str, of: str = "item") -> Edit:
    """Another name for an item, which may be that of another item; or for an engine."""

    def edit(lines: Lines) -> None:
        for event in lines["events"]:
            for field in ("engine",) if of == "engine" else ("item", "other"):
                if event.get(field) == name:
                    event[field] = other
            for field in NAMING if of == "item" else ():
                if field in event:
                    renamed = [other if one == name else one for one in event[field]]
                    event[field] = list(dict.fromkeys(renamed))
        if of == "item":
            items = lines["header"]["config"]["items"]
            known = {item["identifier"] for item in items}
            for item in [item for item in items if item["identifier"] == name]:
                if other in known:
                    items.remove(item)
                else:
                    item["identifier"] = other

    return edit


EDITS = (fewer_items,)
