"""Faults of a worker's encoder store, planted in an engine or a runner: what a canary is."""

from collections.abc import Callable
from typing import Any

Store = dict[str, Any]


class NeverFrees(Store):
    """Keeps what it is told to drop."""

    def pop(self, *arguments: Any) -> Any:
        return None


class MisreadsNowAndThen(Store):
    """Every third read gets other rows."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reads = 0

    def get(self, identifier: str, default: Any = None) -> Any:
        rows = super().get(identifier, default)
        self._reads += 1
        return rows if rows is None or self._reads % 3 else self.misread(rows)

    def misread(self, rows: Any) -> Any:
        """What is read in the place of these rows."""
        raise NotImplementedError


class ReadsTheRowBefore(MisreadsNowAndThen):
    """Now and then a read gets every row from the place before it."""

    def misread(self, rows: Any) -> Any:
        return rows.roll(1, dims=0)


class ReadsOneRow(MisreadsNowAndThen):
    """Now and then a read gets the first row in the place of every other: where a decoder attends
    to all of them, their order does not matter, and what they are does."""

    def misread(self, rows: Any) -> Any:
        return rows[:1].expand_as(rows)


class KeepsWhatItCutOff(Store):
    """Entries are small parts of large tensors."""

    def __setitem__(self, identifier: str, rows: Any) -> None:
        super().__setitem__(identifier, rows.repeat(8, 1)[: len(rows)])


ENGINE_FAULTS: dict[str, Callable[[Store], Store]] = {
    "keeps_what_it_cut_off": KeepsWhatItCutOff,
    "never_frees": NeverFrees,
    "reads_one_row": ReadsOneRow,
    "reads_the_row_before": ReadsTheRowBefore,
}
