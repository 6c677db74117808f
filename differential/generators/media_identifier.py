"""Seeded requests whose items are named: a pure function of `GENERATOR` and seed.

What is rare in service is common here: ids of clients that equal an identifier, names of adapters
that run into ids, one request's id that comes twice, restarts, and servers that name at once.
"""

from random import Random

import msgspec

from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.media_identifier import (
    MediaIdentifierConfig,
    MediaIdentifierEvent,
    MediaIdentifierHeader,
    Modality,
    Model,
    NamedItem,
    NameItems,
    RestartEngine,
)
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.versions import release_key

GENERATOR = "media-identifier/1"
EVENTS = (6, 40)
IDS = ("u", "v", "a:u", "b:a:u", "b:id:u")
ADAPTERS = ("a", "b", "b:a", "a:id:b")
"""Whichever way an id is marked, some adapter's name may run into some id."""
CONTENTS = 4
FIRST_WITH_ADAPTERS = "0.14.0"
"""The first release with a switch that lets adapters reach the encoder."""
MODALITIES: tuple[Modality, ...] = ("image", "image", "image", "audio")


def media_identifier_trace(seed: int, *, release: str | None = None) -> Trace:
    """Requests to up to two engines of up to two servers each. In half of the traces no cache is
    on that needs digests; in half an external store is beside; in half adapters reach the encoder,
    where the release has a switch for that (None: any release)."""
    random = Random(f"{GENERATOR}:{seed}")
    uncached = random.randrange(2) == 0
    on = "neither" if uncached else random.choice(("prefix", "both", "both", "processor"))
    config = MediaIdentifierConfig(
        processor_cache=on in ("both", "processor"),
        prefix_caching=on in ("both", "prefix"),
        adapters_reach=random.randrange(2) == 0 and _has_switch(release),
        external_store=random.randrange(2) == 0,
    )
    engines, servers = random.randint(1, 2), random.randint(1, 2)
    if not uncached:
        config = msgspec.structs.replace(config, settings=_settings(seed, engines))
    config = msgspec.structs.replace(config, model=_model(seed))
    named = 0
    rows = Random(f"{GENERATOR}, rows:{seed}")
    events: list[MediaIdentifierEvent] = []
    for number in range(random.randint(*EVENTS)):
        if random.randrange(10) == 0:
            events.append(RestartEngine(random.randrange(engines)))
            continue
        items = tuple(_item(random, named) for _ in range(random.choice((1, 1, 2, 3))))
        if rows.randrange(6) == 0:
            items = _as_rows(items)
        named += len(items)
        events.append(
            NameItems(
                # A client may choose the id of its request, and choose it twice.
                random.choice((f"r{number}", "r")),
                items,
                random.randrange(engines),
                random.randrange(servers),
                random.choice((None, *ADAPTERS)) if config.adapters_reach else None,
                random.choice((0, 0, 0, 1, 2)),
            )
        )
    header = MediaIdentifierHeader(SCHEMA, config, seed=seed, generator=GENERATOR)
    return Trace(header, tuple(events))


def _as_rows(items: tuple[NamedItem, ...]) -> tuple[NamedItem, ...]:
    """The same items with pictures as an encoder's rows, where all of them have a content."""
    if any(item.modality == "image" and item.content is None for item in items):
        return items
    return tuple(
        msgspec.structs.replace(item, modality="image_embeds") if item.modality == "image" else item
        for item in items
    )


def _settings(seed: int, engines: int) -> tuple[int, ...]:
    """What each engine tells its processor: nothing in two traces of three."""
    random = Random(f"{GENERATOR}, settings:{seed}")
    if random.randrange(3):
        return ()
    return tuple(random.choice((0, 1, 2)) for _ in range(engines))


def _model(seed: int) -> Model:
    """In half of the traces one to which it is all the same how many pictures a request has."""
    return Random(f"{GENERATOR}, model:{seed}").choice(("tiny", "tiny", "deepseek_vl2", "h2ovl"))


def _has_switch(release: str | None) -> bool:
    return release is None or release_key(release) >= release_key(FIRST_WITH_ADAPTERS)


def _item(random: Random, named: int) -> NamedItem:
    """An item after so many that were named."""
    modality, content = random.choice(MODALITIES), random.randrange(CONTENTS)
    match random.randrange(6):
        case 0 | 1:
            # A client that keeps its promise gives one id to one content.
            at = random.randrange(len(IDS))
            return NamedItem(random.choice((at, None)), IDS[at], modality)
        case 2 if named:
            return NamedItem(content, random.randrange(named), modality)
        case _:
            return NamedItem(content, None, modality)
