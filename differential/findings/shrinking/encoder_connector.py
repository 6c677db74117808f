"""Makes traces for connectors simpler."""

from collections.abc import Iterator

from cacheproof.differential.findings.shrinking.edits import (
    PLAIN_NAMES,
    Edit,
    Lines,
    edited,
    put,
    remove,
)
from cacheproof.differential.traces.encoder_connector import (
    EncoderConnectorConfig,
    Execute,
    Forget,
    Plan,
)
from cacheproof.differential.traces.trace import Trace

NAMING = ("items", "refused", "preempted")
"""Fields of events that are lists of items."""


def fewer_items(trace: Trace) -> Iterator[Trace | None]:
    """Steps that read fewer items, of fewer rows, with plainer names; models that are one."""
    config = trace.header.config
    if not isinstance(config, EncoderConnectorConfig):
        return
    for position, event in enumerate(trace.events):
        for name in NAMING if isinstance(event, Plan | Forget) else ():
            for number in range(len(getattr(event, name, ()))):
                yield edited(trace, remove(("events", position, name), number))
        if isinstance(event, Plan):
            for number in range(len(event.apart)):
                yield edited(trace, remove(("events", position, "apart"), number))
        if isinstance(event, Execute) and event.late:
            for late in {0, event.late - 1}:
                yield edited(trace, put(("events", position, "late"), late))
    plain = [name for name in PLAIN_NAMES if name not in {one.identifier for one in config.items}]
    for item in config.items:
        if item.identifier not in PLAIN_NAMES and plain:
            yield edited(trace, _renamed(item.identifier, plain[0]))
    for item in config.items[1:]:
        yield edited(trace, _renamed(item.identifier, config.items[0].identifier))
    engines = list(dict.fromkeys(getattr(event, "engine", "1") for event in trace.events))
    for engine in engines[1:]:
        yield edited(trace, _renamed(engine, engines[0], "engine"))
    used = {name for event in trace.events for name in getattr(event, "items", ())}
    used |= {getattr(event, name, None) for event in trace.events for name in ("item", "other")}
    at = ("header", "config")
    for number, item in enumerate(config.items):
        if item.identifier not in used and len(config.items) > 1:
            yield edited(trace, remove((*at, "items"), number))
        for rows in {1, 2, item.rows - 1} - {item.rows, 0}:
            yield edited(trace, put((*at, "items", number, "rows"), rows))
        for gaps in {0, 1} if item.gaps else ():
            if gaps < item.gaps:
                yield edited(trace, put((*at, "items", number, "gaps"), gaps))
    if config.capacity is not None:
        for lower in {config.capacity // 2, config.capacity - 16, 64, 48, 32, 16}:
            if 0 < lower < config.capacity:
                yield edited(trace, put((*at, "capacity"), lower))
    for number, model in enumerate(config.models):
        if model.width > 4:
            yield edited(trace, put((*at, "models", number, "width"), 4))
        if model.dtype != "float32":
            yield edited(trace, put((*at, "models", number, "dtype"), "float32"))
        for layers in range(1, model.layers):
            yield edited(trace, put((*at, "models", number, "layers"), layers))
    for ranks in range(1, config.ranks):
        yield edited(trace, put((*at, "ranks"), ranks))


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
