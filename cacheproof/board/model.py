"""All that a board shows, read from a store: nothing of it is guessed, and what the store does not
know is said."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from cacheproof.board.clock import CampaignClock, last_heard
from cacheproof.board.coverage import SHARD, LaneBoard, lane_board
from cacheproof.board.faults import FaultBoard, broken_by_alarms, fault_boards
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.campaigns import reporting
from cacheproof.differential.search.campaigns.reporting import ReportedTarget
from cacheproof.differential.search.campaigns.runners import is_dead
from cacheproof.differential.search.campaigns.series import (
    CampaignReader,
    RunnerSeen,
    Series,
    ShardSeen,
)
from cacheproof.differential.search.campaigns.store import DIED, SEARCH, CampaignStore
from cacheproof.differential.search.verdict import FROM_MODEL, HOLDS, UNLISTED, exit_code_of
from cacheproof.differential.traces.wording import visible_line
from cacheproof.formats.result import rule_of

SPANS_MAX = 500
"""Searches of a process that are closer than this part of the time are drawn as one."""
LOSSES_MAX = 200
_WORDS = {
    HOLDS: "Nothing unlisted breaks.",
    UNLISTED: "Something unlisted breaks.",
    FROM_MODEL: "Differs from the model.",
}
_VOID = "Void: this campaign shows nothing yet."


class Bin(msgspec.Struct, frozen=True, array_like=True):
    """Until a time on the campaign's clock: events per second since the bin before, and events and
    traces since the beginning."""

    until: float
    rate: float
    events: float
    traces: float


class ContractBoard(msgspec.Struct, frozen=True):
    """A contract of a target: what judging it came to, and how many of the faults planted against
    it were found. `is_alarm`: it is broken by what is not listed and is worth an exit code."""

    id: str
    title: str
    verdict: str
    scope: str
    is_alarm: bool
    planted: int
    found: int


class TargetBoard(msgspec.Struct, frozen=True):
    """A target: how far its search is, its rate, its lanes and its contracts."""

    name: str
    release: str
    exit_code: int
    words: str
    void_because: tuple[str, ...]
    shards: int
    shards_of: int | None
    events: int
    traces: int
    seconds: float
    bins: tuple[Bin, ...]
    lanes: tuple[LaneBoard, ...]
    contracts: tuple[ContractBoard, ...]
    missed: tuple[str, ...]


class RunnerBoard(msgspec.Struct, frozen=True):
    """A process: when it ran, on the campaign's clock and in seconds since 1970, what it did, and
    how it ended. `spans` are when it searched: begin, end and target."""

    host: str
    pid: int
    workers: int
    state: str
    begun: float
    heard: float
    begun_at: float
    heard_at: float
    searches: int
    plantings: int
    writings: int
    under_way: int
    lost: int
    spans: tuple[tuple[float, float, int], ...]


class LossBoard(msgspec.Struct, frozen=True):
    """A job that was lost, when, by whom and why."""

    job: str
    at: float
    who: str
    why: str


class Board(msgspec.Struct, frozen=True):
    """The page. Times on the campaign's clock are seconds in which somebody ran it; `pauses` are
    cut out of it. `losses` is None where the store does not keep them."""

    title: str
    words: str
    exit_code: int
    is_running: bool
    facts: tuple[tuple[str, str], ...]
    read_at: float
    begun: float | None
    length: float
    pauses: tuple[tuple[float, float], ...]
    targets: tuple[TargetBoard, ...]
    faults: tuple[FaultBoard, ...]
    runners: tuple[RunnerBoard, ...]
    losses: tuple[LossBoard, ...] | None
    losses_left_out: int
    notes: tuple[str, ...]


class BoardReader:
    """Reads the board of a campaign, again and again. `folder` has the files of findings, as far as
    they have been written."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now
        self._reader = CampaignReader()
        self._of: object = None
        self._targets: list[ReportedTarget] = []

    def read(self, store: CampaignStore) -> Board:
        """The board as the campaign's store is now."""
        now = self._now()
        known = fault_folders.of_text(store.known, store.where)
        before = self._targets if self._of == store.identity else ()
        self._of = store.identity
        targets = self._targets = reporting.reported(store, known, before)
        series = self._reader.read(store)
        clock = CampaignClock.of(series, now)
        runners = tuple(_runners(series, clock, now))
        code = exit_code_of([one.verdict for one in targets])
        losses = None if series.losses is None else tuple(_losses(series))
        faults = fault_boards(series.shards, targets, known, self._folder, clock)
        boards = tuple(
            _target(number, one, series.shards, clock, faults) for number, one in enumerate(targets)
        )
        is_counted = all(lane.unit != SHARD for one in boards for lane in one.lanes if lane.traces)
        return Board(
            title=visible_line(", ".join(one.about.name for one in targets)),
            words=_WORDS.get(code, _VOID),
            exit_code=code,
            is_running=any(one.state == "runs" for one in runners),
            facts=tuple(_facts(store, targets)),
            read_at=now,
            begun=clock.begun,
            length=clock.length,
            pauses=tuple(clock.pauses),
            targets=boards,
            faults=tuple(faults),
            runners=runners,
            losses=None if losses is None else losses[-LOSSES_MAX:],
            losses_left_out=max(0, len(losses or ()) - LOSSES_MAX),
            notes=tuple(_notes(series, is_counted=is_counted)),
        )


def _facts(store: CampaignStore, targets: Sequence[ReportedTarget]) -> Iterator[tuple[str, str]]:
    yield "store", visible_line(store.where)
    yield (
        "made by",
        visible_line(f"cacheproof {store.made_by.cacheproof}, text {store.made_by.code[:12]}"),
    )
    plan = msgspec.to_builtins(store.plan)
    given = (f"{name} {_told(value)}" for name, value in plan.items() if value not in (None, ()))
    yield "plan", visible_line("; ".join(given))
    faults = reporting.faults_in(store, targets)
    yield "digest", str(reporting.document(store, targets, faults)["digest"])


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _target(
    number: int,
    one: ReportedTarget,
    shards: Sequence[ShardSeen],
    clock: CampaignClock,
    faults: Sequence[FaultBoard],
) -> TargetBoard:
    mine = [shard for shard in shards if shard.target == number]
    verdict = one.verdict
    by_lane: dict[str, list[ShardSeen]] = {}
    for shard in mine:
        by_lane.setdefault(shard.lane, []).append(shard)
    lanes = tuple(
        lane_board(report, by_lane.get(report.lane.name, []), clock)
        for report in verdict.outcome.lanes
    )
    return TargetBoard(
        visible_line(one.about.name),
        visible_line(one.about.release or ""),
        verdict.exit_code,
        _WORDS.get(verdict.exit_code, _VOID),
        tuple(map(visible_line, verdict.void_because)),
        one.shards_done,
        one.shards_total,
        sum(shard.events for shard in mine),
        sum(shard.traces for shard in mine),
        sum(shard.seconds for shard in mine),
        tuple(bins(mine, clock)),
        lanes,
        tuple(_contracts(one, broken_by_alarms(faults, number, one.about.name))),
        tuple(name for name, found in verdict.canaries.items() if not found),
    )


def bins(shards: Sequence[ShardSeen], clock: CampaignClock) -> Iterator[Bin]:
    """Events and traces of a target over time: those of a shard are spread evenly over the time
    that it took. From the bin in which the first begins to that in which the last ends."""
    width = clock.bin_seconds
    events: dict[int, float] = {}
    traces: dict[int, float] = {}
    for one in shards:
        begin, end = clock.at(one.begun), clock.at(one.ended)
        for which in range(int(begin // width), int(end // width) + 1):
            inside = min(end, (which + 1) * width) - max(begin, which * width)
            share = inside / (end - begin) if end > begin else 1.0
            events[which] = events.get(which, 0.0) + share * one.events
            traces[which] = traces.get(which, 0.0) + share * one.traces
    if not events:
        return
    all_events = all_traces = 0.0
    for which in range(min(events), max(events) + 1):
        start, end = which * width, min((which + 1) * width, clock.length)
        all_events += events.get(which, 0.0)
        all_traces += traces.get(which, 0.0)
        rate = events.get(which, 0.0) / max(end - start, width / 10)
        yield Bin(max(end, math.nextafter(start, math.inf)), rate, all_events, all_traces)


def _contracts(one: ReportedTarget, alarms: set[str]) -> Iterator[ContractBoard]:
    planted: dict[str, list[bool]] = {}
    for name, found in one.verdict.canaries.items():
        contract = name.partition(" (")[0].partition(",")[0]
        planted.setdefault(contract, []).append(found)
    for line in one.verdict.evidence():
        ours = planted.get(line.contract, [])
        yield ContractBoard(
            line.contract,
            rule_of(line.contract).title,
            line.verdict,
            line.scope,
            line.contract in alarms,
            len(ours),
            sum(ours),
        )


def _runners(series: Series, clock: CampaignClock, now: float) -> Iterator[RunnerBoard]:
    spans: dict[str, list[tuple[float, float, int]]] = {}
    for shard in series.shards:
        if shard.runner is not None:
            span = clock.at(shard.begun), clock.at(shard.ended), shard.target
            spans.setdefault(shard.runner, []).append(span)
    for one in series.runners:
        lost = [loss for loss in series.losses or () if loss.runner == one.id and loss.job]
        heard = last_heard(one, now)
        yield RunnerBoard(
            visible_line(one.who.host),
            one.who.pid,
            one.workers,
            _state(one, series, now),
            one.begun,
            heard,
            clock.at(one.begun),
            clock.at(heard),
            one.jobs.get(SEARCH, 0),
            one.jobs.get("plant", 0),
            one.jobs.get("write", 0),
            one.under_way,
            len(lost),
            tuple(_joined(spans.get(one.id, ()), clock.length / SPANS_MAX)),
        )


def _joined(
    spans: Sequence[tuple[float, float, int]], apart: float
) -> Iterator[tuple[float, float, int]]:
    """Spans of one target that are less apart are one."""
    last: tuple[float, float, int] | None = None
    for begin, end, target in sorted(spans):
        if last is not None and last[2] == target and begin - last[1] < apart:
            last = last[0], max(last[1], end), target
            continue
        if last is not None:
            yield last
        last = begin, end, target
    if last is not None:
        yield last


def _state(one: RunnerSeen, series: Series, now: float) -> str:
    if one.ended is None:
        return "ended without a word" if is_dead(one.who, one.beat, now) else "runs"
    if series.losses is None:
        return "ended"
    died = any(loss.runner == one.id and loss.why == DIED for loss in series.losses)
    return "ended without a word" if died else "ended"


def _losses(series: Series) -> Iterator[LossBoard]:
    names = {one.id: f"{one.who.host} process {one.who.pid}" for one in series.runners}
    for loss in series.losses or ():
        if loss.job is not None:
            who = visible_line(names.get(loss.runner, "a process of another store"))
            yield LossBoard(visible_line(loss.job), loss.at, who, loss.why)


def _notes(series: Series, *, is_counted: bool) -> Iterator[str]:
    """What the store does not know."""
    if series.is_merged:
        count = sum(one.runner is None for one in series.shards)
        yield (
            f"{count:,} shards come from a store that was merged into this one. It is not kept who "
            "did them, nor what was done again there; their times are those of that store's clock."
        )
    if series.losses is None:
        yield (
            "An earlier cacheproof made this store. It does not keep which processes died, and "
            "which jobs were done again."
        )
    if any(one.listed is None for one in series.shards):
        yield (
            "An earlier cacheproof made this store. It counts no traces by listed fault, so faults "
            "are told by what they break alone."
        )
    if series.shards and not is_counted:
        yield (
            "An earlier cacheproof made this store. It counts no traces by state, so estimates "
            "count shards, and pairs of states are not known."
        )
    yield (
        "A state, a pair or a break is dated by the end of the shard in which it was first met. "
        "Events of a shard are spread evenly over the time that it took."
    )
