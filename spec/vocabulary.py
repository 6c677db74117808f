"""The few words that a contract may call. Each is total on its arguments and has no side effect.

Maps are read-only mappings from identifier to a number of embeddings; a queue is such a map whose
iteration order is the order of eviction.
"""

from collections.abc import Hashable, Mapping, Sequence, Set
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def total(sizes: Mapping[Key, int]) -> int:
    """Sum of a map's values, in embeddings."""
    return sum(sizes.values())


def total_unheld(sizes: Mapping[str, int], holders: Mapping[str, Set[str]]) -> int:
    """Sum of the sizes of the identifiers that nobody holds, in embeddings."""
    return sum([size for identifier, size in sizes.items() if not holders[identifier]])


def within(part: Mapping[Key, int], whole: Mapping[Key, int]) -> bool:
    """True when every key of `part` is in `whole` and has the same value there."""
    return part.items() <= whole.items()


def drops_prefix(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """True when the queue `after` is the queue `before` with some entries gone from its front."""
    gone = len(before) - len(after)
    return gone >= 0 and list(before)[gone:] == list(after)


def last_dropped(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Size of the last entry that left the front of the queue; 0 when none left."""
    gone = len(before) - len(after)
    return list(before.values())[gone - 1] if gone > 0 else 0


def distinct(queue: Sequence[Key]) -> bool:
    """True when no entry of the queue occurs twice."""
    return len(set(queue)) == len(queue)


WORDS = frozenset({"total", "total_unheld", "within", "drops_prefix", "last_dropped", "distinct"})
