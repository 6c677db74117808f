"""Faults of the table of entries."""

from cacheproof.reference.encoder_connector.entry_table import EntryTable


class EvictedIsCreditedTwice(EntryTable):
    """What an entry takes is given back a second time when it is evicted."""

    def _drop(self, entry: str) -> None:
        self.free += self.sizes[entry]
        super()._drop(entry)


class PinnedStaysIdle(EntryTable):
    """An entry that is pinned may still be evicted."""

    def pin(self, entry: str) -> bool:
        pinned = super().pin(entry)
        if pinned and entry not in self.idle:
            self._rest(entry)
        return pinned


class SecondPinIsNotCounted(EntryTable):
    """An entry is idle when the first of several pins is given back."""

    def pin(self, entry: str) -> bool:
        return super().pin(entry) if not self.pins.get(entry) else entry in self.order


class RefusesAfterEvicting(EntryTable):
    """Idle entries go before it is asked whether that makes room enough."""

    def begin(self, entry: str, size: int) -> bool:
        while size > self.free and self.idle:
            self._drop(self._first_idle())
        return super().begin(entry, size)


class EvictsByTheTimeOfWriting(EntryTable):
    """A pin is no use: entries go in the order in which they were written."""

    def pin(self, entry: str) -> bool:
        before = list(self.order)
        pinned = super().pin(entry)
        for each in before:
            self.order.move_to_end(each)
        return pinned


class RemovedIsForgotten(EntryTable):
    """The room of an entry that was removed while it is pinned is free at once."""

    def remove(self, entry: str) -> None:
        super().remove(entry)
        if entry in self.pins and entry not in self.order:
            del self.pins[entry]
            self.free += self.sizes.pop(entry)


class RaisesWhereNothingIsIdle(EntryTable):
    """Where nothing can be evicted an entry fails instead of being refused."""

    def begin(self, entry: str, size: int) -> bool:
        if size > self.free:
            self._first_idle()
        return super().begin(entry, size)


TABLES = {
    one.__name__: one
    for one in (
        EvictedIsCreditedTwice,
        PinnedStaysIdle,
        SecondPinIsNotCounted,
        RefusesAfterEvicting,
        EvictsByTheTimeOfWriting,
        RemovedIsForgotten,
        RaisesWhereNothingIsIdle,
    )
}
