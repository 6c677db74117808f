"""Processed media items in shared memory: a front end writes them, workers read them there.

Memory is a ring of chunks, one for each item, given back in the order in which they were written. A
chunk is given back once each worker has read it as often as it was sent. A message has addresses.

Source: SingleWriterShmRingBuffer and SingleWriterShmObjectStorage of vLLM 0.11.0 to 0.33.0.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cacheproof.reference.processor_cache import Processed, order_of_sender
from cacheproof.reference.semantics.front_end import FrontEndSemantics

COUNT = struct.Struct("<i")
HEADER = struct.Struct("<ii")
"""Of a chunk: its number, and its bytes with this header."""


class Handle(NamedTuple):
    """Where an item lies: an address, which grows for ever and counts modulo the ring's bytes, and
    the number of its chunk."""

    address: int
    chunk: int


class SentShared(NamedTuple):
    """An item in a message: its name, and where it lies, or what was processed where it has found
    no room."""

    name: str
    handle: Handle | None
    item: Processed | None


class Moved(Exception):
    """Another chunk lies at an address, or none."""


class NoRoom(Exception):
    """The ring has no room for a chunk in one piece."""


class Ring:
    """`capacity` bytes of shared memory, and which chunks lie in them, the oldest first."""

    def __init__(
        self, capacity: int, *, follows_next: bool = True, numbers_on: bool = True
    ) -> None:
        self.memory = bytearray(capacity)
        self.capacity = capacity
        self.start = self.end = 0
        self.chunks: dict[int, int] = {}
        self._next = 0
        self._follows_next = follows_next
        self._numbers_on = numbers_on

    def write(self, data: bytes) -> Handle:
        """Write a chunk behind the newest, or at the beginning where it would not fit in one piece.

        Raises:
            NoRoom: chunks are in the way.
        """
        size = HEADER.size + len(data)
        begin = self.end
        if begin % self.capacity + size > self.capacity:
            begin = (begin // self.capacity + 1) * self.capacity
        if begin + size - self.start > self.capacity:
            raise NoRoom
        at = begin % self.capacity
        self.memory[at : at + size] = HEADER.pack(self._next, size) + data
        handle = Handle(begin, self._next)
        self.chunks[self._next] = begin
        self.end, self._next = begin + size, self._next + 1
        return handle

    def read(self, handle: Handle) -> bytes:
        """What is written in the chunk. Raises Moved where another one lies there."""
        at = handle.address % self.capacity
        chunk, size = HEADER.unpack_from(self.memory, at)
        if chunk != handle.chunk:
            raise Moved(handle)
        return bytes(self.memory[at + HEADER.size : at + size])

    def count(self, address: int) -> int:
        """The number that what lies at that address begins with, whatever it is."""
        return int.from_bytes(self._data_at(address)[: COUNT.size], "little", signed=True)

    def count_one_more(self, address: int) -> None:
        """Add one to that number. Raises Moved where what lies there is too short to have one."""
        data = self._data_at(address)
        if len(data) < COUNT.size:
            raise Moved(address)
        data[: COUNT.size] = COUNT.pack(self.count(address) + 1)

    def give_back(self, is_free: Callable[[int], bool], wanted: int) -> list[int]:
        """Give back chunks, the oldest first, until so many bytes are had or one is not free."""
        given: list[int] = []
        had = 0
        while self.chunks and had < wanted:
            chunk, address = next(iter(self.chunks.items()))
            if not is_free(chunk):
                break
            del self.chunks[chunk]
            given.append(chunk)
            had += HEADER.unpack_from(self.memory, address % self.capacity)[1]
            if not self._follows_next:
                self.start = address
            elif self.chunks:
                self.start += (next(iter(self.chunks.values())) - self.start) % self.capacity
            else:
                self.start = self.end = 0
        if self.start >= self.capacity:
            self.start -= self.capacity
            self.end -= self.capacity
        return given

    def clear(self) -> None:
        """Give back all chunks, read or not."""
        self.chunks.clear()
        self.start = self.end = 0
        if not self._numbers_on:
            self._next = 0

    def _data_at(self, address: int) -> memoryview:
        """What is written behind a header at that address, as long as the header says."""
        at = address % self.capacity
        _, size = HEADER.unpack_from(self.memory, at)
        return memoryview(self.memory)[at + HEADER.size : at + size]


class SharedMedia:
    """The store of one front end and `workers` that read it. No item has more than `largest` bytes,
    the count of its reads among them."""

    def __init__(
        self,
        capacity: int,
        largest: int,
        workers: int,
        semantics: FrontEndSemantics | None = None,
    ) -> None:
        self.semantics = semantics or FrontEndSemantics()
        self.ring = Ring(
            capacity,
            follows_next=self.semantics.follows_next_chunk,
            numbers_on=self.semantics.numbers_on,
        )
        self.workers = workers
        self._largest = largest
        self._of: dict[str, Handle] = {}
        self._names: dict[int, str] = {}
        self._sent: dict[int, int] = {}
        self._touched: set[int] = set()

    def send(
        self,
        names: Sequence[str],
        process: Callable[[int], Processed],
        modalities: Sequence[str] = (),
        samples: int = 1,
    ) -> list[SentShared]:
        """The items of a request as they are sent, once for each of `samples` answers; `process`
        processes the item of that number.

        Raises:
            KeyError: the request's own items have taken the place of one that was not processed.
        """
        order = order_of_sender(len(names), modalities, self.semantics)
        processed = [process(at) if name not in self._of else None for at, name in enumerate(names)]
        if self.semantics.touches_all_first:
            for at in order:
                self._touch(names[at])
        times = samples if self.semantics.counts_samples else 1
        # A front end that keeps data, so that it need not process again, keeps none beside shared
        # memory.
        processes_again = self.semantics.processes_again and self.semantics.sends_names_alone
        sent: dict[int, SentShared] = {}
        for at in order:
            name, item = names[at], processed[at]
            handle = self._of.get(name)
            if handle is not None:
                self._sent[handle.chunk] += times
                self._touched.discard(handle.chunk)
                sent[at] = SentShared(name, handle, None)
                continue
            if item is None and not processes_again:
                self._end_of_touches()
                raise KeyError(name)
            item = item or process(at)
            handle = self._put(name, item, times)
            sent[at] = SentShared(name, handle, item if handle is None else None)
        self._end_of_touches()
        return [sent[at] for at in range(len(names))]

    def withdraw(self, message: Sequence[SentShared], samples: int = 1) -> None:
        """The message is never sent, and nobody will read what it refers to."""
        if self.semantics.returns_what_is_not_sent:
            for _, handle, _ in message:
                if handle is not None and handle.chunk in self._sent:
                    self._sent[handle.chunk] -= samples if self.semantics.counts_samples else 1

    def receive(self, message: Sequence[SentShared]) -> list[str]:
        """The items of a request as a worker reads them: what each says.

        Raises:
            Moved: another item lies where one of them was.
        """
        handles = [handle for _, handle, _ in message]
        for handle in filter(None, handles):
            self._touch_by_reader(handle)
        return [
            item.content if item is not None else self._read(handle)
            for _, handle, item in message
            if handle is not None or item is not None
        ]

    def clear(self) -> None:
        """Forget every item; what is still to be read may lie on."""
        self._of.clear()
        self._touched.clear()
        if not self.semantics.keeps_what_is_to_be_read:
            self._names.clear()
            self._sent.clear()
            self.ring.clear()

    def chunks(self) -> list[tuple[str, int, int]]:
        """Of each chunk, the oldest first: its item, how often it was read, and is to be read."""
        return [
            (self._names[chunk], self.ring.count(address), self._sent[chunk] * self.workers)
            for chunk, address in self.ring.chunks.items()
        ]

    def names(self) -> list[str]:
        """The names that the front end knows, the oldest first."""
        return list(self._of)

    def _put(self, name: str, item: Processed, times: int) -> Handle | None:
        data = COUNT.pack(0) + item.content.encode().ljust(item.size, b".")
        if len(data) > self._largest:
            return None
        try:
            handle = self.ring.write(data)
        except NoRoom:
            self._give_back()
            try:
                handle = self.ring.write(data)
            except NoRoom:
                return None
        self._of[name], self._names[handle.chunk], self._sent[handle.chunk] = handle, name, times
        return handle

    def _give_back(self) -> None:
        for chunk in self.ring.give_back(self._is_free, 2 * self._largest):
            name = self._names.pop(chunk)
            del self._sent[chunk]
            if self._of.get(name, Handle(0, -1)).chunk == chunk:
                del self._of[name]

    def _is_free(self, chunk: int) -> bool:
        read = self.ring.count(self.ring.chunks[chunk])
        return chunk not in self._touched and read >= self._sent[chunk] * self.workers

    def _touch(self, name: str) -> None:
        handle = self._of.get(name)
        if handle is None:
            return
        if self.semantics.protects_what_is_touched:
            self._touched.add(handle.chunk)
        else:
            self._sent[handle.chunk] += 1

    def _end_of_touches(self) -> None:
        self._touched.clear()

    def _touch_by_reader(self, handle: Handle) -> None:
        if not self.semantics.touches_all_first:
            return
        if self.semantics.protects_what_is_touched:
            self.ring.read(handle)
        elif self.ring.count(handle.address) >= self.workers:
            self.ring.count_one_more(handle.address)

    def _read(self, handle: Handle | None) -> str:
        assert handle is not None
        data = self.ring.read(handle)
        self.ring.count_one_more(handle.address)
        return data[COUNT.size :].rstrip(b".").decode(errors="replace")
