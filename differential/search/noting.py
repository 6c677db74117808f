"""Which breaks of a target are written down, in how many tries, and as which listed faults."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import TIMES, Finding
from cacheproof.differential.findings.register import FaultRecord, record_of
from cacheproof.differential.findings.register_file import day_of
from cacheproof.differential.findings.shrinking.edits import cost
from cacheproof.differential.findings.shrinking.shrink import BATCHES_MAX
from cacheproof.differential.search.known import KnownFault, called
from cacheproof.differential.search.seeded import SearchOutcome
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
        """What writes it down, until that moment of the clock."""
        return WriteDown(self.broken, self.batches, self.times, until)


class Noting:
    """Takes a target's breaks in their order, and picks all that are not listed, and the first of
    each listed fault and contract; this one is minimised only if the search `shrinks_listed`."""

    def __init__(self, known: Sequence[KnownFault], *, shrinks_listed: bool) -> None:
        self._known = known
        self._shrinks_listed = shrinks_listed
        self._seen: set[tuple[str, str, str]] = set()
        self.noted: list[Noted] = []

    @property
    def listed(self) -> set[str]:
        """The listed faults among what was noted, by name."""
        return {one.listed.name for one in self.noted if one.listed is not None}

    def merge(
        self, whole: SearchOutcome, part: SearchOutcome, began: float, kept: int
    ) -> list[Noted]:
        """Take the next part of a search into the whole; returns what is to be written down because
        of it. `began` and `kept` are those of `SearchOutcome.merge`."""
        breaks = whole.merge(part, began, kept)
        news = [noted for one in breaks if (noted := self.note(one)) is not None]
        self.noted += news
        return news

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


class Conclusions:
    """What the breaks of a target came to when they were written down: of findings that are one the
    smallest. `one_of` says which are one: they have that equal."""

    def __init__(self, one_of: Callable[[Finding], object]) -> None:
        self._one_of = one_of
        self._kept: dict[object, tuple[Finding, str, float]] = {}

    def take(self, found: Finding, lane: str, at: float) -> bool:
        """Take in the next finding, written down so many seconds after 1970; returns whether it is
        kept."""
        one = self._one_of(found)
        if one in self._kept and cost(self._kept[one][0].trace) <= cost(found.trace):
            return False
        self._kept[one] = found, lane, at
        return True

    @property
    def findings(self) -> list[Finding]:
        """The findings, in the order in which their first was taken in."""
        return [found for found, _, _ in self._kept.values()]

    @property
    def lanes_of(self) -> dict[tuple[str, str], str]:
        """The lane of each finding, by its key."""
        return {found.key: lane for found, lane, _ in self._kept.values()}

    @property
    def records(self) -> list[FaultRecord]:
        """What a register keeps of the findings. One that is not small yet has no identity and is
        left out."""
        return [
            record_of(found, lane, day_of(at))
            for found, lane, at in self._kept.values()
            if not found.stopped_early
        ]


def face_of(found: Finding) -> object:
    """Findings of a search are one where this is equal: it tells every face of a cause. What is
    listed never stands for what is not."""
    return found.key, found.fault
