"""What a campaign broke, by fault: when, in how many traces and which targets, how to see it."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

from cacheproof.board.clock import CampaignClock
from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.finding import (
    DIFFERENCE,
    LOCKSTEP,
    MODEL_DIFFERENCE,
    Finding,
)
from cacheproof.differential.search.campaigns.reporting import ReportedTarget
from cacheproof.differential.search.campaigns.series import ShardSeen
from cacheproof.differential.search.campaigns.store import CampaignTarget
from cacheproof.differential.search.known import KnownFault, called, may_be
from cacheproof.differential.traces.wording import visible_line
from cacheproof.spec.registry import by_id

_HARMS = ("safety", "liveness", DIFFERENCE, "efficiency", MODEL_DIFFERENCE)
"""Harms, the worst first."""
_HARMLESS = ("efficiency", MODEL_DIFFERENCE)


class Smallest(msgspec.Struct, frozen=True):
    """The finding with the fewest events in a target: a sentence, and the command that replays it,
    or a trace that is kept of its fault, where its file was not written."""

    target: str
    sentence: str
    events: int
    command: str


class FaultBoard(msgspec.Struct, frozen=True):
    """A listed fault, or what is broken and not listed: `name` is then a contract and its kind.
    `traces` break it at least: a trace that breaks two of its contracts counts once if it does so
    in one of them most often. `first` and `last` are on the campaign's clock, their moments in
    seconds since 1970. `times` has each part of the time, as the pace has
    them: when the last shard of it ended, in which target, and how many traces."""

    name: str
    is_listed: bool
    is_alarm: bool
    harm: str
    note: str
    page: str
    thread: str
    contracts: tuple[str, ...]
    lanes: tuple[str, ...]
    traces: int
    first: float | None
    last: float | None
    first_moment: float | None
    last_moment: float | None
    times: tuple[tuple[float, int, int], ...]
    smallest: tuple[Smallest, ...]


@dataclass
class _Growing:
    """A fault in the making."""

    name: str
    fault: KnownFault | None
    harm: str
    contracts: dict[str, None] = field(default_factory=dict)
    lanes: dict[str, None] = field(default_factory=dict)
    times: list[tuple[float, float, int, int]] = field(default_factory=list)
    smallest: list[Smallest] = field(default_factory=list)
    note: str = ""
    is_annotated: bool = False

    def take(self, shard: ShardSeen, at: float, broken: Mapping[tuple[str, str], int]) -> None:
        self.contracts.update(dict.fromkeys(contract for contract, _ in broken))
        self.lanes[shard.lane] = None
        self.times.append((at, shard.ended, shard.target, max(broken.values())))

    @property
    def is_alarm(self) -> bool:
        """Whether the fault is worth an exit code."""
        return self.fault is None and not self.is_annotated and self.harm not in _HARMLESS

    @property
    def weight(self) -> tuple[bool, int, str]:
        """The sort key of the page: the worst comes first."""
        return not self.is_alarm, _badness(self.harm), self.name


def fault_boards(
    shards: Sequence[ShardSeen],
    targets: Sequence[ReportedTarget],
    known: Sequence[KnownFault],
    folder: Path,
    clock: CampaignClock,
) -> list[FaultBoard]:
    """What the shards broke, the worst first. In `folder` lie the files of findings."""
    faults: dict[str, _Growing] = {}

    @cache
    def may(contract: str, kind: str, release: str | None, lane: str) -> KnownFault | None:
        return next(iter(may_be(known, contract, kind, release, (lane,))), None)

    for shard in shards:
        by_fault: dict[str, dict[tuple[str, str], int]] = {}
        about = targets[shard.target].about
        for contract, kind, named, traces in _parts(shard):
            fault = called(known, named)
            if shard.listed is None:
                fault = may(contract, kind, about.release, shard.lane)
            name, harm = _named(fault, contract, kind), _harm(contract, fault, about)
            growing = faults.setdefault(name, _Growing(name, fault, harm))
            growing.harm = min(growing.harm, harm, key=_badness)
            of_fault = by_fault.setdefault(name, {})
            of_fault[contract, kind] = of_fault.get((contract, kind), 0) + traces
        for name, broken in by_fault.items():
            faults[name].take(shard, clock.at(shard.ended), broken)
    for one in targets:
        for found in one.verdict.findings:
            name = found.fault or _named(None, found.contract, found.kind)
            growing = faults.setdefault(name, _Growing(name, None, found.harm))
            _add(growing, one.about.name, found, folder)
    return [
        _board(one, clock.bin_seconds)
        for one in sorted(faults.values(), key=lambda one: one.weight)
    ]


def _parts(shard: ShardSeen) -> Iterator[tuple[str, str, str | None, int]]:
    """Contract, kind, listed fault (None for none) and traces of what a shard broke."""
    listed = shard.listed or {}
    for (contract, kind), traces in shard.broken.items():
        ours = {name: n for (*place, name), n in listed.items() if place == [contract, kind]}
        yield from ((contract, kind, name, n) for name, n in ours.items())
        if rest := traces - sum(ours.values()):
            yield contract, kind, None, rest


def _badness(harm: str) -> int:
    return _HARMS.index(harm) if harm in _HARMS else -1


def _named(fault: KnownFault | None, contract: str, kind: str) -> str:
    return fault.name if fault is not None else ", ".join(filter(None, (contract, kind)))


def _harm(contract: str, fault: KnownFault | None, about: CampaignTarget) -> str:
    if fault is not None:
        return fault.kind_of_harm
    if contract == LOCKSTEP:
        return MODEL_DIFFERENCE if about.has_own_text else DIFFERENCE
    return by_id(contract).harm


def _add(growing: _Growing, target: str, found: Finding, folder: Path) -> None:
    growing.contracts.setdefault(found.contract)
    growing.harm = found.harm if growing.fault is None else growing.harm
    growing.is_annotated = found.known_note is not None
    growing.note = growing.note or (found.known_note or "")
    file = finding_file.path_of(found, folder)
    shown = shlex.quote(str(file)) if file.is_file() else f"{found.fault}@{found.release}"
    command = f"cacheproof replay {shown}" if file.is_file() or found.fault else ""
    smallest = Smallest(target, visible_line(found.sentence), len(found.events), command)
    others = [one for one in growing.smallest if one.target != target]
    mine = [one for one in growing.smallest if one.target == target]
    growing.smallest = [*others, min([*mine, smallest], key=lambda one: one.events)]


def _board(one: _Growing, width: float) -> FaultBoard:
    fault, times = one.fault, one.times
    return FaultBoard(
        visible_line(one.name),
        fault is not None,
        one.is_alarm,
        one.harm,
        visible_line(fault.title if fault is not None else one.note),
        (fault.page or "") if fault is not None else "",
        visible_line(fault.thread or "") if fault is not None else "",
        tuple(one.contracts),
        tuple(one.lanes),
        sum(traces for *_, traces in times),
        min((at for at, *_ in times), default=None),
        max((at for at, *_ in times), default=None),
        min((moment for _, moment, *_ in times), default=None),
        max((moment for _, moment, *_ in times), default=None),
        tuple(_binned(times, width)),
        tuple(one.smallest),
    )


def _binned(
    times: Sequence[tuple[float, float, int, int]], width: float
) -> Iterator[tuple[float, int, int]]:
    last: dict[tuple[int, int], float] = {}
    traces: Counter[tuple[int, int]] = Counter()
    for at, _, target, broke in times:
        place = int(at // width), target
        last[place] = max(at, last.get(place, at))
        traces[place] += broke
    for place, at in sorted(last.items()):
        yield at, place[1], traces[place]


def broken_by_alarms(faults: Sequence[FaultBoard], number: int, target: str) -> set[str]:
    """The contracts that a target breaks by what is not listed and is worth an exit code."""
    return {
        contract
        for one in faults
        if one.is_alarm
        and (
            any(at == number for _, at, _ in one.times)
            or any(s.target == target for s in one.smallest)
        )
        for contract in one.contracts
    }
