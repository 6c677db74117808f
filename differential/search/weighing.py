"""What the pairs of a review amount to: partings by what parted, breaks by contract and fault."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from cacheproof.differential.findings.faces import causes_of
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.search.known import HARMS, KnownFault, covering_anywhere
from cacheproof.differential.search.paired import Broken, Pair, Parted, SmallParting
from cacheproof.differential.search.verdict import is_unlisted
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.registry import by_id

CANDIDATES = 20
"""Of so many traces that show one thing the shortest is made small."""
KEPT = "kept traces"
"""Where a trace is found that is of no lane."""


@dataclass
class PartedGroup:
    """Traces that part in the same field after the same operation, and by the same known change
    where one explains them."""

    parted: Parted
    change: str | None
    traces: int = 0
    lanes: list[str] = field(default_factory=list)
    candidates: list[Trace] = field(default_factory=list)
    small: SmallParting | None = None

    @property
    def shortest(self) -> Trace:
        """What is made small."""
        return min(self.candidates, key=lambda one: len(one.events))


@dataclass
class Tally:
    """How often a contract broke in a kind, as the listed `fault` or as none: on base, on head, and
    on each alone where the other ran the trace and kept the contract.

    `of_base` and `of_head`: the fault is listed for their release as well. `names` are kept traces
    that show it on base alone.
    """

    contract: str
    kind: str
    fault: str | None
    of_base: bool = False
    of_head: bool = False
    base: int = 0
    head: int = 0
    base_alone: int = 0
    head_alone: int = 0
    names: list[str] = field(default_factory=list)
    candidates: list[Trace] = field(default_factory=list)
    small: Finding | None = None

    @property
    def harm(self) -> str:
        """Of the contract."""
        return by_id(self.contract).harm

    @property
    def broken(self) -> Broken:
        return self.contract, self.kind

    @property
    def shortest(self) -> Trace:
        """What is made small."""
        return min(self.candidates, key=lambda one: len(one.events))


@dataclass(frozen=True)
class Told:
    """What is told as one fault: the break that shows it best, and its other faces."""

    head: Tally
    faces: tuple[Tally, ...] = ()

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return self.head, *self.faces


def told_together(several: Sequence[Tally], changed_once: Collection[str] = ()) -> list[Told]:
    """Breaks that have one cause, in the order in which their first comes: those of a listed fault,
    and those that no list covers and whose small traces have one, as the findings of a search do.
    `changed_once` is that of `causes_of`. What was not made small stands alone."""
    small = [one.small for one in several if one.fault is None and one.small is not None]
    places = {
        id(finding): (number, place)
        for number, cause in enumerate(causes_of(small, is_unlisted, changed_once))
        for place, finding in enumerate(cause.findings)
    }
    groups: dict[object, list[Tally]] = {}
    for one in several:
        number, _ = places.get(id(one.small), (None, 0))
        alone = id(one) if number is None else ("cause", number)
        groups.setdefault(one.fault or alone, []).append(one)
    told = []
    for group in groups.values():
        head, *faces = sorted(
            group,
            key=lambda one: (
                places.get(id(one.small), (0, 0)),
                HARMS.index(one.harm),
                -one.base - one.head,
            ),
        )
        told.append(Told(head, tuple(faces)))
    return told


def parted_groups(pairs: Iterable[Pair]) -> list[PartedGroup]:
    """The partings, those first that no known change explains, then by how many traces show them.
    One that was not held against the changes counts where the first in its field does."""
    groups: dict[tuple[str, str, str | None], PartedGroup] = {}
    first: dict[tuple[str, str], PartedGroup] = {}
    unasked: list[tuple[Pair, Parted]] = []
    for pair in pairs:
        parted = pair.parted
        if parted is None:
            continue
        if parted.changes is None:
            unasked.append((pair, parted))
            continue
        changes: list[str | None] = [*sorted(parted.changes)]
        for change in changes or [None]:
            key = ("", "", change) if change else (*parted.place, None)
            group = groups.setdefault(key, PartedGroup(parted, change))
            first.setdefault(parted.place, group)
            _count(group, pair)
            if parted.place == group.parted.place and len(group.candidates) < CANDIDATES:
                group.candidates.append(pair.trace)
    for pair, parted in unasked:
        _count(first[parted.place], pair)
    return sorted(groups.values(), key=lambda one: (one.change is not None, -one.traces))


def _count(group: PartedGroup, pair: Pair) -> None:
    group.traces += 1
    where = pair.lane or KEPT
    if where not in group.lanes:
        group.lanes.append(where)


def tallies(
    pairs: Iterable[Pair],
    known: Sequence[KnownFault],
    base_release: str | None,
    head_release: str | None,
) -> list[Tally]:
    """What broke on either target, in the order of the register."""
    found: dict[tuple[str, str, str | None], Tally] = {}
    releases = base_release, head_release
    for pair in pairs:
        for broken in sorted(pair.base | pair.head):
            on_base, on_head = broken in pair.base, broken in pair.head
            ours, theirs = (_listed(pair, broken, known, one) for one in releases)
            name = _likeliest(pair, ours if on_base else theirs, theirs if on_base else ours,
                              is_in_both=on_base and on_head)  # fmt: skip
            tally = found.setdefault((*broken, name), Tally(*broken, name))
            tally.of_base |= name in ours
            tally.of_head |= name in theirs
            tally.base += on_base
            tally.head += on_head
            if on_base and not on_head and not pair.head_refuses:
                tally.base_alone += 1
                if pair.lane is None:
                    tally.names.append(pair.name)
            if on_head and not on_base and not pair.base_refuses:
                tally.head_alone += 1
                if len(tally.candidates) < CANDIDATES:
                    tally.candidates.append(pair.trace)
    return sorted(found.values(), key=lambda one: (one.contract, one.kind, one.fault or ""))


def _listed(
    pair: Pair, broken: Broken, known: Sequence[KnownFault], release: str | None
) -> list[str]:
    """The listed faults of a release that a break may be. A kept trace may be of any lane of its
    depth."""
    contract, kind = broken
    trace, lane = pair.trace, pair.lane
    if lane is None:
        return [one.name for one in covering_anywhere(known, trace, contract, release, kind)]
    covers = (one for one in known if one.covers(contract, release, lane, kind, trace.runner))
    return list(dict.fromkeys(one.name for one in covers))


def _likeliest(
    pair: Pair, listed: Sequence[str], beside: Sequence[str], *, is_in_both: bool
) -> str | None:
    """Which of the listed faults a break is: the one that a kept trace is called after; else one
    that the other release is listed for as well where both break, and is not where one does."""
    named = (one for one in listed if pair.lane is None and pair.name.startswith(one))
    fitting = (one for one in listed if (one in beside) == is_in_both)
    return next(named, next(fitting, listed[0] if listed else None))
