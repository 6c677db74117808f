"""Copies that are copies under CrossHair too."""

from collections.abc import Iterable
from typing import TypeVar

Member = TypeVar("Member")


def frozen(members: Iterable[Member]) -> frozenset[Member]:
    """A frozen copy of a set. CrossHair takes frozenset(a_set) for the set itself: a state before a
    call would change with it, and what the call breaks would go unseen."""
    return frozenset([one for one in members])  # noqa: C416
