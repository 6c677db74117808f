"""What the callers of a store's table have done: the ghost beside a table of entries.

It is told of calls and of answers alone, and never sees a table.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class TableGhost:
    """What the callers of a table have done, folded from their calls alone.

    Attributes:
        writing: entries that somebody writes.
        pins: pinned entry -> how often; no zeros.
        used: entry -> number of the call that used it last.
    """

    writing: set[str] = field(default_factory=set)
    pins: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    _clock: int = 0

    def begin(self, entry: str) -> None:
        """There is room for the entry, and somebody writes it."""
        self.writing.add(entry)

    def end(self, entry: str) -> None:
        """Nobody writes the entry any more."""
        self.writing.discard(entry)

    def pin(self, entry: str) -> None:
        """The entry is pinned, once more."""
        self.pins[entry] = self.pins.get(entry, 0) + 1

    def unpin(self, entry: str) -> None:
        """One pin of the entry is given back."""
        self.pins[entry] -= 1
        if self.pins[entry] == 0:
            del self.pins[entry]

    def use(self, entry: str) -> None:
        """The entry is the one that was used last."""
        self._clock += 1
        self.used[entry] = self._clock
