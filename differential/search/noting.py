"""Which breaks of a target are written down, in how many tries, and as which listed faults."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import TIMES, Finding
from cacheproof.differential.findings.shrinking.shrink import BATCHES_MAX
from cacheproof.differential.search.known import KnownFault, called
from cacheproof.differential.search.work import WriteDown

BATCHES_OF_LISTED = 100
"""Tries to minimise a listed fault's trace: somebody has looked at such traces already."""
TIMES_OF_LISTED = 2
TIMES_AS_IT_IS = 1
"""A listed fault's trace that stays as it is runs once more where it was found: it is there to be
looked at, and to start another process of the target for it takes longer than to find it."""


@dataclass(frozen=True)
class Noted:
    """A break that is to be written down, and the listed fault that it is, if any."""

    broken: Break
    listed: KnownFault | None
    batches: int
    times: int

    def job(self, until: float = math.inf) -> WriteDown:
        """What writes it down, until that moment of the monotonic clock."""
        return WriteDown(self.broken, self.batches, self.times, until)


class Noting:
    """Takes a target's breaks in their order, and picks all that are not listed, and the first of
    each listed fault and contract; this one is minimised only if the search `shrinks_listed`."""

    def __init__(self, known: Sequence[KnownFault], *, shrinks_listed: bool) -> None:
        self._known = known
        self._shrinks_listed = shrinks_listed
        self._seen: set[tuple[str, str, str]] = set()

    def note(self, broken: Break) -> Noted | None:
        """How a break is to be written down; None where its fault was noted before."""
        listed = called(self._known, broken.attributed.fault)
        if listed is None:
            return Noted(broken, None, BATCHES_MAX, TIMES)
        place = listed.place(broken.contract, broken.kind)
        if place in self._seen:
            return None
        self._seen.add(place)
        if not self._shrinks_listed:
            return Noted(broken, listed, 0, TIMES_AS_IT_IS)
        return Noted(broken, listed, BATCHES_OF_LISTED, TIMES_OF_LISTED)

    def annotated(self, found: Finding) -> Finding:
        """The finding, annotated with the listed fault that it is. What a minimised trace shows and
        no cause explains is new."""
        fault = called(self._known, found.fault)
        if fault is None:
            return found
        return found.annotated(fault.thread, fault.title, fault.name)
