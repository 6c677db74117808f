"""What the pairs of a review amount to: partings by what parted, breaks by contract and fault."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from cacheproof.differential.findings.faces import causes_of
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.search.known import HARMS, KnownFault, called, lanes_of
from cacheproof.differential.search.paired import Broken, Pair, Parted, SmallParting
from cacheproof.differential.search.verdict import is_unlisted
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.registry import by_id

CANDIDATES = 20
"""Most traces that are kept of what shows one thing; the shortest of them is minimised."""
KEPT = "kept traces"
"""Stands for the lane of traces that are of none."""


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
        """What is minimised."""
        return min(self.candidates, key=lambda one: len(one.events))


@dataclass
class BreakTally:
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
        """The contract's harm."""
        return by_id(self.contract).harm

    @property
    def broken(self) -> Broken:
        return self.contract, self.kind

    @property
    def shortest(self) -> Trace:
        """What is minimised."""
        return min(self.candidates, key=lambda one: len(one.events))


@dataclass(frozen=True)
class ToldFault:
    """What is told as one fault: the break that shows it best, and its other faces."""

    head: BreakTally
    faces: tuple[BreakTally, ...] = ()

    @property
    def tallies(self) -> tuple[BreakTally, ...]:
        return self.head, *self.faces


def told_together(
    several: Sequence[BreakTally], changed_once: Collection[str] = ()
) -> list[ToldFault]:
    """Breaks that have one cause, in the order in which their first comes: those of a listed fault,
    and those that no list covers and whose small traces have one, as the findings of a search do.
    `changed_once` is that of `causes_of`. What was not minimised stands alone."""
    small = [one.small for one in several if one.fault is None and one.small is not None]
    places = {
        id(finding): (number, place)
        for number, cause in enumerate(causes_of(small, is_unlisted, changed_once))
        for place, finding in enumerate(cause.findings)
    }
    groups: dict[object, list[BreakTally]] = {}
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
        told.append(ToldFault(head, tuple(faces)))
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
) -> list[BreakTally]:
    """What broke on either target, in the order of the register."""
    found: dict[tuple[str, str, str | None], BreakTally] = {}
    for pair in pairs:
        for broken in sorted(pair.base.keys() | pair.head.keys()):
            ours, theirs = pair.base.get(broken), pair.head.get(broken)
            for name in dict.fromkeys(one.fault for one in (ours, theirs) if one is not None):
                tally = found.setdefault((*broken, name), BreakTally(*broken, name))
                tally.of_base |= _is_listed(pair, broken, name, known, base_release)
                tally.of_head |= _is_listed(pair, broken, name, known, head_release)
                _tally(
                    tally,
                    pair,
                    on_base=ours is not None and ours.fault == name,
                    on_head=theirs is not None and theirs.fault == name,
                )
    return sorted(found.values(), key=lambda one: (one.contract, one.kind, one.fault or ""))


def _tally(tally: BreakTally, pair: Pair, *, on_base: bool, on_head: bool) -> None:
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


def _is_listed(
    pair: Pair,
    broken: Broken,
    name: str | None,
    known: Sequence[KnownFault],
    release: str | None,
) -> bool:
    """Whether that fault is listed to break it in a release."""
    contract, kind = broken
    lanes = lanes_of(pair.trace) if pair.lane is None else (pair.lane,)
    fault = called(known, name)
    return fault is not None and fault.may_break(contract, kind, release, lanes)
