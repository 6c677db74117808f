"""What a tier keeps and evicts, without its files: entries, their sizes, and who has them pinned.

A tier of one owner decides as this table does. Sizes and room are in bytes.
"""

from collections import OrderedDict


class EntryTable:
    """Entries of a bounded store: of those that nobody has pinned, the first used goes first.

    An entry is being written (`begin`), then finished (`publish`), and pinned as often as somebody
    reads it. One that is removed while it is pinned is found no more, and takes its room until the
    last pin is given back.

    Attributes:
        capacity: of all entries, those that are pinned or being written included.
        free: what is left of it.
        evictable: sizes of the idle entries, together.
        sizes: entry -> its size.
        pins: finished entry -> how often it is pinned.
        idle: entry that may be evicted -> its size.
        order: entry that can be found -> its size, the one that was used first in front.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = capacity
        self.evictable = 0
        self.sizes: dict[str, int] = {}
        self.pins: dict[str, int] = {}
        self.idle: dict[str, int] = {}
        self.order: OrderedDict[str, int] = OrderedDict()

    def contains(self, entry: str) -> bool:
        """Whether the entry can be found."""
        return entry in self.order

    def begin(self, entry: str, size: int) -> bool:
        """Make room for an entry that is not there; False: it would need that of others in use.
        Evicts only what it takes, and nothing where the answer is False."""
        # before the first eviction: a refusal evicts nothing
        if size > self.free + self.evictable:
            return False
        while size > self.free:
            self._drop(self._first_idle())
        self.sizes[entry] = size
        self.free -= size
        return True

    def publish(self, entry: str) -> None:
        """The entry is written: it can be found, and is the one that was used last."""
        self.pins[entry] = 0
        self.order[entry] = self.sizes[entry]
        self._rest(entry)

    def abandon(self, entry: str) -> None:
        """The entry is not written after all."""
        self.free += self.sizes.pop(entry)

    def pin(self, entry: str) -> bool:
        """Keep an entry until `unpin`, and count it as used now; False: it is not there."""
        if entry not in self.order:
            return False
        if entry in self.idle:
            self.evictable -= self.idle.pop(entry)
        self.pins[entry] += 1
        self.order.move_to_end(entry, last=True)
        return True

    def unpin(self, entry: str) -> None:
        """Give one pin back."""
        self.pins[entry] -= 1
        if self.pins[entry] > 0:
            return
        if entry in self.order:
            self._rest(entry)
        else:
            del self.pins[entry]
            self.free += self.sizes.pop(entry)

    def remove(self, entry: str) -> None:
        """Let nobody find the entry any more; a pin of it stays."""
        if entry in self.idle:
            self._drop(entry)
        else:
            self.order.pop(entry, None)

    def clear(self) -> None:
        """Let nobody find any entry; pins stay, and what is being written."""
        for entry in list(self.order):
            self.remove(entry)

    def _rest(self, entry: str) -> None:
        self.idle[entry] = self.sizes[entry]
        self.evictable += self.sizes[entry]

    def _first_idle(self) -> str:
        for entry in self.order:
            if entry in self.idle:
                return entry
        raise AssertionError("nothing is idle")

    def _drop(self, entry: str) -> None:
        """Evict an idle entry: its room is free again."""
        self.evictable -= self.idle.pop(entry)
        del self.order[entry]
        del self.pins[entry]
        self.free += self.sizes.pop(entry)
