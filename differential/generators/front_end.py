"""Seeded requests with pictures at a front end: a pure function of `GENERATOR`, settings and seed.

What is rare in service is common here: messages that overtake each other, requests that are refused
when their items are processed already, items that do not fit, names that are given to another
picture, and resets that come to one half alone.
"""

from functools import cache
from itertools import combinations, product
from random import Random
from typing import get_args

import msgspec

from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.front_end import (
    Deliver,
    FrontEndConfig,
    FrontEndEvent,
    FrontEndHeader,
    Given,
    Half,
    MediaItem,
    Modality,
    Process,
    Report,
    ResetMedia,
    Withdraw,
)
from cacheproof.differential.traces.trace import Trace

GENERATOR = "front-end/1"
EVENTS = (12, 60)
UNDER_WAY_MAX = 4
MODALITIES: tuple[Modality, ...] = get_args(Modality)
HALVES: tuple[Half, ...] = ("both", "both", "sender", "receiver")


def front_end_trace(seed: int) -> Trace:
    """A front end and an engine core. In a third of the traces nothing is lost or overtaken, and
    halves have to agree; in two thirds the items of a request fit together; in a quarter a name is
    given to another picture now and then."""
    random = Random(f"{GENERATOR}:{seed}")
    orderly, roomy = random.randrange(3) == 0, random.randrange(3) > 0
    renames = random.randrange(4) == 0
    capacity = random.choice((8, 12, 20))
    items = tuple(
        MediaItem(f"h{number}", tuple(_size(random, capacity, roomy) for _ in range(contents)))
        for number in range(random.randint(1, 2) if renames else random.randint(2, 7))
        for contents in (1 + renames,)
    )
    waiting: list[str] = []
    sent: list[str] = []
    events: list[FrontEndEvent] = []
    for number in range(random.randint(*EVENTS)):
        kinds = ["process"] * (4 * (len(waiting) < UNDER_WAY_MAX)) + ["deliver"] * (
            4 * len(waiting)
        )
        kinds += ["report"] * bool(sent) + ["reset"] * (random.randrange(8 if renames else 20) == 0)
        match random.choice(kinds or ["process"]):
            case "process":
                count = random.choice((1, 1, 1, 2, 2, 3))
                chosen = [random.choice(items) for _ in range(count)]
                events.append(Process(f"r{number}", tuple(_given(random, one) for one in chosen)))
                waiting.append(f"r{number}")
            case "deliver":
                one = waiting.pop(0 if orderly else random.randrange(len(waiting)))
                is_lost = not orderly and random.randrange(10) == 0
                events.append(Withdraw(one) if is_lost else Deliver(one))
                if not is_lost:
                    sent.append(one)
            case "report":
                events.append(Report(sent.pop(random.randrange(len(sent)))))
            case "reset":
                half = "both" if orderly or renames else random.choice(HALVES)
                events.append(ResetMedia(half))
    header = FrontEndHeader(SCHEMA, FrontEndConfig(items, capacity), seed=seed, generator=GENERATOR)
    return Trace(header, tuple(events))


def _size(random: Random, capacity: int, roomy: bool) -> int:
    """Bytes of an item: three of a request fit together where the cache is roomy."""
    largest = capacity // 3
    return (
        random.randint(1, largest)
        if roomy
        else random.choice((2, largest, capacity // 2 + 1, capacity, capacity + 1))
    )


def _given(random: Random, item: MediaItem) -> Given:
    return Given(item.name, random.randrange(len(item.sizes)))


def processor_only_trace(seed: int) -> Trace:
    """The same requests, at a front end whose cache has no counterpart."""
    trace = front_end_trace(seed)
    assert isinstance(trace.header, FrontEndHeader)
    config = msgspec.structs.replace(trace.header.config, store="processor")
    header = msgspec.structs.replace(
        trace.header, config=config, generator=f"{GENERATOR}, processor only"
    )
    return Trace(header, trace.events)


MIXED = "front-end-mixed/1"


def mixed_media_trace(seed: int) -> Trace:
    """The same requests, with items of several modalities in half of the traces; in half some leave
    the front end's cache out, and now and then a processor raises an error."""
    return mixed(front_end_trace(seed), MIXED)


def mixed(trace: Trace, generator: str) -> Trace:
    """The same trace with mixed media."""
    assert isinstance(trace.header, FrontEndHeader)
    random = Random(f"{generator}:{trace.header.seed}")
    modalities = random.choice((MODALITIES, MODALITIES[:1]))
    skips = random.choice((0.0, 0.2))
    items = tuple(
        msgspec.structs.replace(item, modality=random.choice(modalities))
        for item in trace.header.config.items
    )
    config = msgspec.structs.replace(trace.header.config, items=items)
    header = msgspec.structs.replace(trace.header, config=config, generator=generator)
    events = tuple(
        msgspec.structs.replace(
            event, skips_cache=random.random() < skips, fails=random.random() < 0.1
        )
        if isinstance(event, Process)
        else event
        for event in trace.events
    )
    return Trace(header, events)


SERVERS = "front-end-servers/1"


def several_servers_trace(seed: int) -> Trace:
    """The same requests, at two API servers or three. A reset comes to any of them."""
    trace = processor_only_trace(seed)
    assert isinstance(trace.header, FrontEndHeader)
    random = Random(f"{SERVERS}:{seed}")
    servers = random.choice((2, 2, 3))
    config = msgspec.structs.replace(trace.header.config, servers=servers)
    header = msgspec.structs.replace(trace.header, config=config, generator=SERVERS)
    events = tuple(
        msgspec.structs.replace(event, server=random.randrange(servers))
        if isinstance(event, Process | ResetMedia)
        else event
        for event in trace.events
    )
    return Trace(header, events)


SHARED, SEVERAL = "front-end-shared/1", "front-end-answers/1"
TEXT = 5
"""Bytes of an item in shared memory, at least: what it says."""
BESIDE = 12
"""Bytes of a chunk beside its item's: its number, its size, and how often it was read."""


def shared_memory_trace(seed: int) -> Trace:
    """A front end and one worker or two that read its items in shared memory. In half of the traces
    nothing is withdrawn, and in half the caches are never reset."""
    return _shared(seed, SHARED)


def several_answers_trace(seed: int) -> Trace:
    """The same with requests that ask for up to two answers."""
    return _shared(seed, SEVERAL, samples=(1, 2))


def _shared(seed: int, generator: str, samples: tuple[int, ...] = ()) -> Trace:
    random = Random(f"{generator}:{seed}")
    workers, withdraws, resets = (
        random.choice((1, 1, 2)),
        random.random() < 0.5,
        random.random() < 0.5,
    )
    count = random.randint(2, 5)
    sizes = [random.choice((TEXT, TEXT, 8, 12, 20)) for _ in range(count)]
    largest = random.choice((16, 24, 40))
    capacity = max(largest + BESIDE, random.choice((40, 64, 100, 160)))
    items = tuple(MediaItem(f"h{number}", (size,)) for number, size in enumerate(sizes))
    waiting: list[tuple[str, list[int]]] = []
    whole: dict[str, int] = {}
    events: list[FrontEndEvent] = []
    for number in range(random.randint(*EVENTS)):
        kinds = ["process"] * (3 * (len(waiting) < UNDER_WAY_MAX)) + ["deliver"] * (
            4 * len(waiting)
        )
        kinds += ["reset"] * (resets and random.randrange(8) == 0)
        match random.choice(kinds or ["process"]):
            case "process":
                some = [random.choice(items) for _ in range(random.choice((1, 1, 2, 3)))]
                times = random.choice(samples) if samples else 1
                given = tuple(Given(one.name) for one in some)
                events.append(Process(f"r{number}", given, times))
                waiting.append((f"r{number}", [*range(workers)] * times))
                whole[f"r{number}"] = workers * times
            case "deliver":
                at = random.randrange(min(2, len(waiting)))
                request, left = waiting[at]
                if withdraws and len(left) == whole[request] and random.randrange(8) == 0:
                    events.append(Withdraw(request))
                    left.clear()
                else:
                    events.append(Deliver(request, left.pop(random.randrange(len(left)))))
                if not left:
                    del waiting[at]
            case "reset":
                events.append(ResetMedia("both"))
    for request, left in waiting:
        events += [Deliver(request, worker) for worker in left]
    config = FrontEndConfig(items, capacity, store="shm", workers=workers, largest=largest)
    return Trace(FrontEndHeader(SCHEMA, config, seed=seed, generator=generator), tuple(events))


EVERY_ORDER = "front-end-orders/1"
STRIDE = 7_919
"""A prime: seeds that follow each other are of other items, orders and resets."""
ITEMS = (("x",), ("y",), ("x", "y"), ("y", "x"))
ROOMS = (1, 2)


def every_order_trace(seed: int) -> Trace:
    """One of the `orders_in_all` traces of two items and two requests, each processed once and then
    delivered or withdrawn, in every order, with a reset of one half or both anywhere or none, in a
    cache of one item or two; a third request asks for both items at the end. Seeds from 0 on give
    each of them once, and then again."""
    number = seed * STRIDE % orders_in_all()
    number, room = divmod(number, len(ROOMS))
    number, first = divmod(number, len(ITEMS))
    number, second = divmod(number, len(ITEMS))
    steps = (*_orders()[number], Process("c", _given_once(ITEMS[-1])), Deliver("c"))
    given = {"a": ITEMS[first], "b": ITEMS[second]}
    events = tuple(
        step if not isinstance(step, str) else Process(step, _given_once(given[step]))
        for step in steps
    )
    config = FrontEndConfig((MediaItem("x", (1,)), MediaItem("y", (1,))), ROOMS[room])
    return Trace(FrontEndHeader(SCHEMA, config, seed=seed, generator=EVERY_ORDER), events)


def orders_in_all() -> int:
    """How many traces of every order there are."""
    return len(_orders()) * len(ITEMS) ** 2 * len(ROOMS)


def _given_once(names: tuple[str, ...]) -> tuple[Given, ...]:
    return tuple(map(Given, names))


Step = FrontEndEvent | str
"""An event, or the request that is processed, whose items are not chosen yet."""


@cache
def _orders() -> tuple[tuple[Step, ...], ...]:
    """All orders of two requests' lives, and each with a reset at any place."""
    found: list[tuple[Step, ...]] = []
    for one, other in product(_lives("a"), _lives("b")):
        for places in combinations(range(len(one) + len(other)), len(one)):
            ours, theirs = iter(one), iter(other)
            order = tuple(
                next(ours if at in places else theirs) for at in range(len(one) + len(other))
            )
            found.append(order)
            found += [
                (*order[:at], reset, *order[at:])
                for at in range(len(order) + 1)
                for reset in (ResetMedia("both"), ResetMedia("sender"), ResetMedia("receiver"))
            ]
    return tuple(found)


def _lives(request: str) -> tuple[tuple[Step, ...], ...]:
    """What can become of a request that is processed."""
    return (
        (request, Deliver(request)),
        (request, Withdraw(request)),
        (request, Deliver(request), Report(request)),
    )
