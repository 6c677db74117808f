"""Items as requests have them, and what names them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class Item(NamedTuple):
    """An item of a request: its content, and its client's id for it; None without."""

    modality: str
    content: int | None
    uuid: str | None


class Namer(Protocol):
    """A server of an engine, in one of its lives."""

    def name(
        self, request: str, items: Sequence[Item], adapter: str | None, options: int
    ) -> list[str]:
        """The identifiers of a request's items."""


Name = Callable[[str, Sequence[Item], str | None, int], list[str]]
"""`Namer.name`, as it is or with a fault."""
