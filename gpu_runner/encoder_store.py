"""The encoder store: outputs of the encoder, by identifier, as an engine's worker keeps them.

Which entries there are is decided elsewhere; the store does what it is told, and says what it
cannot.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch


class EncoderCacheMiss(LookupError):
    """A gather reads an output that is not in the store."""

    def __init__(self, identifier: str, read: "StoreRead") -> None:
        super().__init__(
            f"request {read.request_id} reads row {read.start} of {identifier} at position "
            f"{read.position} in step {read.step}, and the encoder store does not hold it"
        )
        self.identifier = identifier
        self.read = read


class StoreOverflow(RuntimeError):
    """An output does not fit what the store may hold."""


class StoreRead(NamedTuple):
    """Which rows of an item a step gathers, and for whom: rows [start, end) for the tokens of
    `request_id` from `position` on, counted from the start of its prompt."""

    request_id: str
    position: int
    step: int
    start: int
    end: int


class EncoderStore:
    """Identifier to rows of [rows, hidden]. Beside them, by kind, what goes with each row: tags of
    [rows, 3] where rows are tagged, positions of [rows, axes] where they have their own.

    It never holds more than `capacity` rows. Every entry owns its memory: a slice of a batch would
    keep the whole batch alive after its neighbours were freed, which no count of rows shows.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_rows = 0
        self.peak_bytes = 0
        self._rows: dict[str, torch.Tensor] = {}
        self._beside: dict[str, Mapping[str, torch.Tensor]] = {}

    @property
    def entries(self) -> Mapping[str, torch.Tensor]:
        """Identifier to rows, of every entry."""
        return self._rows

    @property
    def sizes(self) -> Mapping[str, int]:
        """Identifier to number of rows, of every entry."""
        return {identifier: len(rows) for identifier, rows in self._rows.items()}

    @property
    def num_bytes(self) -> int:
        """Memory that the entries keep alive, without what is beside."""
        return sum(rows.untyped_storage().nbytes() for rows in self._rows.values())

    def free(self, identifiers: Iterable[str]) -> None:
        """Drop entries; what is not there stays so, since a notice may come twice."""
        for identifier in identifiers:
            rows = self._rows.pop(identifier, None)
            if rows is not None:
                self.num_rows -= len(rows)
            self._beside.pop(identifier, None)

    def put(self, identifier: str, rows: torch.Tensor, **beside: torch.Tensor) -> None:
        """Keep an encoder's output of [rows, hidden], in place of an older one.

        Raises:
            StoreOverflow: it does not fit; nothing is kept or dropped then.
        """
        replaced = len(self._rows[identifier]) if identifier in self._rows else 0
        total = self.num_rows - replaced + len(rows)
        if total > self.capacity:
            raise StoreOverflow(
                f"{identifier} has {len(rows)} rows, and {self.num_rows - replaced} of the store's "
                f"{self.capacity} are taken"
            )
        self._rows[identifier] = _owned(rows)
        self._beside[identifier] = {kind: _owned(one) for kind, one in beside.items()}
        self.num_rows = total
        self.peak_bytes = max(self.peak_bytes, self.num_bytes)

    def gather(self, identifier: str, read: StoreRead) -> torch.Tensor:
        """Rows [read.start, read.end) of an entry: a view, no copy.

        Raises:
            EncoderCacheMiss: it is not there.
        """
        if identifier not in self._rows:
            raise EncoderCacheMiss(identifier, read)
        return self._rows[identifier][read.start : read.end]

    def gather_beside(self, kind: str, identifier: str, read: StoreRead) -> torch.Tensor:
        """The values of one kind that go with the rows that `gather` returns.

        Raises:
            EncoderCacheMiss: the entry is not there.
            KeyError: nothing of that kind does.
        """
        if identifier not in self._beside:
            raise EncoderCacheMiss(identifier, read)
        return self._beside[identifier][kind][read.start : read.end]


def _owned(rows: torch.Tensor) -> torch.Tensor:
    rows = rows.detach().contiguous()
    owns = rows.untyped_storage().nbytes() == rows.numel() * rows.element_size()
    return rows if owns else rows.clone()
