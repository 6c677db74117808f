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
    """A request's items as they are sent, and how often the sender had been emptied."""

    items: tuple[Sent, ...]
    resets: int = 0


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

    def send(self, names: Sequence[str], process: Callable[[int], Processed]) -> Message:
        """The items of a request as they are sent; `process` processes the item of that number.

        Raises:
            KeyError: the request's own items have evicted one that was not processed.
            ValueError: an item is larger than the cache, and may not be passed on.
            EvictsForEver: the release would not end.
        """
        sent = _looked_up(self.cache, names, process, self.semantics)
        keeps_data = not self.semantics.sends_names_alone
        return Message(
            tuple(Sent(name, new or known if keeps_data else new) for name, known, new in sent),
            self._resets,
        )

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
        self, names: Sequence[str], process: Callable[[int], Processed], server: int = 0
    ) -> Message:
        """The items of that server's request as they are sent, as `Sender.send`, with data each."""
        sent = _looked_up(self.caches[server], names, process, self.semantics)
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
        if self.semantics.touches_all_first and not is_late:
            for name, _ in message.items:
                self.cache.touch(name)
        found: list[Processed] = []
        missing: list[str] = []
        for at, (name, item) in enumerate(message.items):
            known = item if is_late else self._known(name, item)
            if known is None and self.semantics.processes_again:
                known = process(at) if is_late else self._known(name, process(at))
            if known is not None:
                found.append(known)
            elif self.semantics.reports_misses:
                missing.append(name)
            else:
                raise CacheMiss([name])
        if missing:
            raise CacheMiss(missing)
        return found

    def _known(self, name: str, item: Processed | None) -> Processed | None:
        if item is not None and self.semantics.keeps_what_is_sent:
            self.cache.drop(name)
        elif (known := self.cache.get(name)) is not None:
            return known
        if item is not None:
            _keep(self.cache, name, item, self.semantics)
        return item

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
    semantics: FrontEndSemantics,
) -> Iterator[tuple[str, Processed | None, Processed | None]]:
    """Of each item its name, and what the cache has of it, or what was processed and is kept."""
    missing = [name not in cache for name in names]
    processed = [process(at) if is_missing else None for at, is_missing in enumerate(missing)]
    if semantics.touches_all_first:
        for name in names:
            cache.touch(name)
    held = {} if semantics.sends_names_alone else {name: cache.get(name) for name in names}
    for at, (name, item) in enumerate(zip(names, processed, strict=True)):
        known = cache.get(name)
        if known is not None:
            yield name, known, None
            continue
        if item is None and not semantics.processes_again:
            raise KeyError(name)
        item = item or held.get(name) or process(at)
        _keep(cache, name, item, semantics)
        yield name, None, item


def _keep(
    cache: LeastRecentlyUsed[Processed], name: str, item: Processed, semantics: FrontEndSemantics
) -> None:
    """Keep an item that fits, or try to, as the semantics say."""
    if item.size <= cache.capacity or not semantics.skips_oversize:
        cache.put(name, item)
