"""Processed media items, kept once: a sender in the front end, a receiver in the engine core.

The sender keeps names and sizes alone. It takes for granted that the receiver has whatever it has
itself, and sends such an item without its data. Both evict the item that was used longest ago
until a new one fits, so they agree as long as both see the same items in the same order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from cacheproof.reference.semantics.front_end import FrontEndSemantics

Value = TypeVar("Value")


class CacheMiss(Exception):
    """Items that were sent without data are not there; `names` has each of them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = tuple(names)


class Processed(NamedTuple):
    """An item as a processor has made it: what it says, in `size` bytes."""

    content: str
    size: int


class Sent(NamedTuple):
    """An item in a message: its name, and what was processed, None where the receiver has it."""

    name: str
    item: Processed | None


class EvictsForEver(Exception):
    """The oldest name has no value, so that to evict it makes no room: the release never ends."""


class Message(NamedTuple):
    """A request's items as they are sent, in the order of its prompt, how often the sender had been
    emptied, and what each of them is where they are of several modalities."""

    items: tuple[Sent, ...]
    resets: int = 0
    modalities: tuple[str, ...] = ()


MODALITIES = ("image", "audio", "video")
"""In the order in which a server of chats hands the items of a request to its processor."""


class LeastRecentlyUsed(Generic[Value]):
    """Values by name, `size_of` bytes each and `capacity` together, in the order of their use.

    `touches_nothing` lets a name that nothing is kept under count as used: it has its place in the
    order then, with None for a value.
    """

    def __init__(
        self, capacity: int, size_of: Callable[[Value], int], *, touches_nothing: bool = False
    ) -> None:
        self.capacity = capacity
        self.size = 0
        self._size_of = size_of
        self._touches_nothing = touches_nothing
        self._values: dict[str, Value | None] = {}

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        """The names of the values, what was used longest ago first."""
        return (name for name, value in self._values.items() if value is not None)

    def touch(self, name: str) -> None:
        """Count the value as used, if it is there."""
        if name in self._values or self._touches_nothing:
            self._values[name] = self._values.pop(name, None)

    def get(self, name: str) -> Value | None:
        """The value, which counts as used; None where it is not there."""
        value = self._values.get(name)
        if value is not None:
            self.touch(name)
        return value

    def put(self, name: str, value: Value) -> None:
        """Keep a value under a name that has none; the oldest make room for it.

        Raises:
            ValueError: it is larger than the whole cache.
            EvictsForEver: there is no room, and the oldest name has no value.
        """
        size = self._size_of(value)
        if size > self.capacity:
            raise ValueError("value too large")
        while self.size + size > self.capacity:
            self._drop_oldest()
        self._values.pop(name, None)
        self._values[name] = value
        self.size += size

    def drop(self, name: str) -> None:
        """Forget the value, if it is there."""
        value = self._values.get(name)
        if value is not None:
            self.size -= self._size_of(value)
            del self._values[name]

    def clear(self) -> None:
        """Forget all values.

        Raises:
            EvictsForEver: the oldest name has no value.
        """
        while any(value is not None for value in self._values.values()):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._values))
        if oldest not in self:
            raise EvictsForEver(oldest)
        self.drop(oldest)


class Sender:
    """The front end's half. Of an item that it keeps it needs the size alone, but where its
    semantics send data with each name."""

    def __init__(self, capacity: int, semantics: FrontEndSemantics | None = None) -> None:
        self.semantics = semantics or FrontEndSemantics()
        self.cache = _cache(capacity, self.semantics)
        self._resets = 0

    def send(
        self,
        names: Sequence[str],
        process: Callable[[int], Processed],
        modalities: Sequence[str] = (),
    ) -> Message:
        """The items of a request as they are sent; `process` processes the item of that number.

        Raises:
            KeyError: the request's own items have evicted one that was not processed.
            ValueError: an item is larger than the cache, and may not be passed on.
            EvictsForEver: the release would not end.
        """
        looked_up = _looked_up(self.cache, names, process, modalities, self.semantics)
        keeps_data = not self.semantics.sends_names_alone
        sent = tuple(
            Sent(name, new or known if keeps_data else new) for name, known, new in looked_up
        )
        return Message(sent, self._resets, tuple(modalities))

    def send_unlooked(
        self,
        names: Sequence[str],
        process: Callable[[int], Processed],
        modalities: Sequence[str] = (),
    ) -> Message:
        """The items of a request whose processor leaves this cache out, with data each."""
        items = [process(at) for at in range(len(names))]
        message = Message(tuple(map(Sent, names, items)), self._resets, tuple(modalities))
        if self.semantics.keeps_what_skips_it:
            order = order_of_sender(len(names), modalities, self.semantics)
            if self.semantics.touches_all_first:
                for at in order:
                    self.cache.touch(names[at])
            for at in order:
                _taken(self.cache, names[at], items[at], self.semantics)
        return message

    def forget(self, names: Iterable[str]) -> None:
        """The receiver has reported that it lacks these."""
        for name in names:
            self.cache.drop(name)

    def clear(self) -> None:
        """Forget every item."""
        self._resets += 1
        self.cache.clear()


class ProcessorOnly:
    """Caches that have no counterpart, one of each API server: they keep items, and all go with
    data."""

    def __init__(
        self, capacity: int, semantics: FrontEndSemantics | None = None, servers: int = 1
    ) -> None:
        self.semantics = semantics or FrontEndSemantics()
        self.caches = [_cache(capacity, self.semantics) for _ in range(servers)]

    def send(
        self,
        names: Sequence[str],
        process: Callable[[int], Processed],
        modalities: Sequence[str] = (),
        server: int = 0,
    ) -> Message:
        """The items of that server's request as they are sent, as `Sender.send`, with data each."""
        sent = _looked_up(self.caches[server], names, process, modalities, self.semantics)
        return Message(tuple(Sent(name, known or new) for name, known, new in sent))

    def clear(self, server: int = 0) -> None:
        """Forget every item, as that server is told to."""
        one = self.caches[server]
        for cache in self.caches if self.semantics.resets_all_servers else [one]:
            cache.clear()


class Receiver:
    """The engine core's half."""

    def __init__(self, capacity: int, semantics: FrontEndSemantics | None = None) -> None:
        self.semantics = semantics or FrontEndSemantics()
        self.cache = _cache(capacity, self.semantics)
        self._resets = 0

    def receive(self, message: Message, process: Callable[[int], Processed]) -> list[Processed]:
        """The items of a request, with data each; `process` has the front end process the item of
        that number again.

        Raises:
            CacheMiss: some came without data and are not there: all of them, or the first where
                the semantics report none.
            ValueError: an item is larger than the cache, and may not be passed on.
            EvictsForEver: the release would not end.
        """
        if message.resets > self._resets and self.semantics.counts_resets:
            self._resets = message.resets
            self.clear()
        is_late = message.resets < self._resets
        order = _order_of_receiver(message, self.semantics)
        if self.semantics.touches_all_first and not is_late:
            for at in order:
                self.cache.touch(message.items[at].name)
        found: dict[int, Processed] = {}
        missing: list[str] = []
        for at in order:
            name, item = message.items[at]
            known = item if is_late else _taken(self.cache, name, item, self.semantics)
            if known is None and self.semantics.processes_again:
                known = process(at)
                if not is_late:
                    known = _taken(self.cache, name, known, self.semantics)
            if known is not None:
                found[at] = known
            elif self.semantics.reports_misses:
                missing.append(name)
            else:
                raise CacheMiss([name])
        if missing:
            raise CacheMiss(missing)
        return [found[at] for at in range(len(found))]

    def clear(self) -> None:
        """Forget every item."""
        self.cache.clear()


def _cache(capacity: int, semantics: FrontEndSemantics) -> LeastRecentlyUsed[Processed]:
    """A cache of items that touches what the semantics say."""
    return LeastRecentlyUsed(
        capacity,
        lambda item: item.size,
        touches_nothing=not semantics.touches_what_is_there,
    )


def _looked_up(
    cache: LeastRecentlyUsed[Processed],
    names: Sequence[str],
    process: Callable[[int], Processed],
    modalities: Sequence[str],
    semantics: FrontEndSemantics,
) -> list[tuple[str, Processed | None, Processed | None]]:
    """Of each item its name, and what the cache has of it, or what was processed and is kept."""
    order = order_of_sender(len(names), modalities, semantics)
    processed = [process(at) if name not in cache else None for at, name in enumerate(names)]
    if semantics.touches_all_first:
        for at in order:
            cache.touch(names[at])
    held = {} if semantics.sends_names_alone else {name: cache.get(name) for name in names}
    found: dict[int, tuple[str, Processed | None, Processed | None]] = {}
    for at in order:
        name, item = names[at], processed[at]
        known = cache.get(name)
        if known is not None:
            found[at] = name, known, None
            continue
        if item is None and not semantics.processes_again:
            raise KeyError(name)
        item = item or held.get(name) or process(at)
        _keep(cache, name, item, semantics)
        found[at] = name, None, item
    return [found[at] for at in range(len(names))]


def order_of_sender(
    count: int, modalities: Sequence[str], semantics: FrontEndSemantics
) -> Sequence[int]:
    """The numbers of so many items, in the order in which a front end takes them: modality by
    modality."""
    if not modalities:
        return range(count)
    if semantics.takes_in_one_order:
        return sorted(range(count), key=modalities.__getitem__)
    return sorted(range(count), key=lambda at: MODALITIES.index(modalities[at]))


def _order_of_receiver(message: Message, semantics: FrontEndSemantics) -> Sequence[int]:
    """The same of an engine core: as they stand in the prompt."""
    if semantics.takes_in_one_order:
        return order_of_sender(len(message.items), message.modalities, semantics)
    return range(len(message.items))


def _taken(
    cache: LeastRecentlyUsed[Processed],
    name: str,
    item: Processed | None,
    semantics: FrontEndSemantics,
) -> Processed | None:
    """What is had of an item that comes with its data or, without, is taken to be there."""
    if item is not None and semantics.keeps_what_is_sent:
        cache.drop(name)
    elif (known := cache.get(name)) is not None:
        return known
    if item is not None:
        _keep(cache, name, item, semantics)
    return item


def _keep(
    cache: LeastRecentlyUsed[Processed], name: str, item: Processed, semantics: FrontEndSemantics
) -> None:
    """Keep an item that fits, or try to, as the semantics say."""
    if item.size <= cache.capacity or not semantics.skips_oversize:
        cache.put(name, item)
