"""Parts of an entry, as a store writes them one after the other."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeAlias


class Late:
    """Bytes of a known length that are made while the other parts are written; `bytes` waits.

    Args:
        size: how many.
        made: of what they are made.
        finish: makes them of it.
    """

    def __init__(
        self, size: int, made: "list[Future[bytes]]", finish: Callable[[list[bytes]], bytes]
    ) -> None:
        self._size, self._made, self._finish = size, made, finish

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self._finish([one.result() for one in self._made])


Part: TypeAlias = "bytes | memoryview | Late"


def whole(parts: Iterable[Part]) -> bytes:
    """All bytes of an entry."""
    return b"".join([bytes(part) if isinstance(part, Late) else part for part in parts])
