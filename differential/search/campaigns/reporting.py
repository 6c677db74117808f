"""What a campaign amounts to so far: a verdict for each target, and a document that does not depend
on time, with a digest."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.identity import identity_of
from cacheproof.differential.findings.register import FaultRecord, of_run
from cacheproof.differential.findings.register_file import day_of
from cacheproof.differential.lanes.all_lanes import lane_called
from cacheproof.differential.search.campaigns import outcomes
from cacheproof.differential.search.campaigns.faults import Fault, OfTarget, faults_of
from cacheproof.differential.search.campaigns.outcomes import (
    PlantedOutcome,
    ReplayedOutcome,
    Written,
)
from cacheproof.differential.search.campaigns.store import (
    OPEN,
    PLANT,
    REPLAY,
    TAKEN,
    WRITE,
    CampaignStore,
    EndedJob,
    ShardJob,
)
from cacheproof.differential.search.campaigns.totals import Totals, to_write
from cacheproof.differential.search.canary import Canary, name_in, unbroken
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.noting import Conclusions
from cacheproof.differential.search.seeded import LaneReport
from cacheproof.differential.search.verdict import Verdict, exit_code_of, is_unlisted


class ReportedTarget:
    """One target of a campaign, as far as it is: its verdict, the seeds of each lane, and the
    `records` of what it says to the traces of the register and of what was found. It goes on from
    what was reported of the same campaign `before`, which is then no longer of use; what failed may
    have been done again, so after that it begins anew."""

    verdict: Verdict
    _totals: Totals

    def __init__(
        self,
        store: CampaignStore,
        number: int,
        known: Sequence[KnownFault],
        before: "ReportedTarget | None" = None,
    ) -> None:
        self.about = store.targets[number]
        self._store = store
        self._number = number
        if before is not None and not before.verdict.outcome.harness_errors:
            self._totals = before._totals
        else:
            replays = store.last_number(number, REPLAY) + 1
            self._totals = Totals(store.plan, self.about, known, replays)
        self._totals.cut_at(store.cut(number))
        replayed = store.ended(number, REPLAY)
        self._totals.replay([one for one in replayed if one.job.number >= self._totals.replayed])
        for _ in self._totals.take_from(store, number):
            pass  # what is noted is written down by who runs it
        self.seeds = _told(self._totals.seeds)
        self.verdict = Verdict(self._totals.outcome, [], unfinished=self._unfinished())
        self._plant()
        self.records = of_run(self._replayed(replayed), self._write())

    @property
    def shards_done(self) -> int:
        """Number of shards that have ended, up to the first that has not."""
        return self._totals.next

    @property
    def shards_total(self) -> int | None:
        """Number of shards that count; None where it is not known yet."""
        is_known = self._store.plan.has_seeds or self._totals.is_over
        return self._totals.cut if is_known else None

    def _unfinished(self) -> str:
        """What is left to do, in words; empty where nothing is."""
        if not self._totals.is_over:
            of = "" if self.shards_total is None else f" of {self.shards_total:,}"
            return f"only {self.shards_done:,}{of} shards are done"
        counts = self._store.counts(self._number)
        for kind, what in ((PLANT, "planting faults"), (WRITE, "writing down what was found")):
            if any(counts.get((kind, state)) for state in _LEFT):
                return f"{what} is left to be done"
        return ""

    def _plant(self) -> None:
        planted: list[tuple[str, Canary, bool]] = []
        for ended in self._store.ended(self._number, PLANT):
            outcome: PlantedOutcome = outcomes.read(PlantedOutcome, ended.outcome)
            planted += ((ended.job.lane, canary, found) for canary, found in outcome.found)
            if outcome.error is not None:
                self.verdict.outcome.harness_errors.append(outcome.error)
        broken = self.verdict.outcome.kinds.keys()
        for name, canary, found in planted:
            lane = lane_called(name)
            if unbroken([canary], lane, broken):
                self.verdict.canaries[name_in(lane, canary)] = found

    def _replayed(self, some: Sequence[EndedJob]) -> Iterator[FaultRecord]:
        name, release = self.about.name, self.about.release
        for ended in some:
            outcome: ReplayedOutcome = outcomes.read(ReplayedOutcome, ended.outcome)
            record = _record(ended.job)
            yield from outcome.reply.recorded(record, name, release, day_of(ended.at))

    def _write(self) -> list[FaultRecord]:
        """Take in what was noted, in the order of the breaks; of findings that are one fault the
        smallest. Returns their records."""
        there = {one.job.key: one for one in self._store.ended(self._number, WRITE)}
        concluded = Conclusions(fault_of)
        for noted in self._totals.noting.noted:
            ended = there.get(to_write(self._number, self.about, noted).key)
            if ended is None:
                self.verdict.not_written.append((noted.listed, noted.broken))
                continue
            outcome: Written = outcomes.read(Written, ended.outcome)
            if outcome.error is not None:
                self.verdict.outcome.harness_errors.append(outcome.error)
            if outcome.finding is not None:
                found = self._totals.noting.annotated(outcome.finding)
                concluded.take(found, noted.broken.lane, ended.at)
        self.verdict.findings += concluded.findings
        self.verdict.lanes_of |= concluded.lanes_of
        return concluded.records


_LEFT = (OPEN, TAKEN)


def fault_of(found: Finding) -> object:
    """Findings of one target are one where this is equal. What is listed never stands for what is
    not: two faults may have one identity."""
    if found.stopped_early:
        return found.key
    return identity_of(found).name, found.fault


def _record(job: ShardJob) -> FaultRecord:
    record: FaultRecord = outcomes.read(FaultRecord, job.payload or "")
    return record


def reported(
    store: CampaignStore, known: Sequence[KnownFault], before: Sequence[ReportedTarget] = ()
) -> list[ReportedTarget]:
    """All targets of a campaign, going on from what was reported `before`."""
    return [
        ReportedTarget(store, number, known, before[number] if before else None)
        for number in range(len(store.targets))
    ]


def began_with(store: CampaignStore) -> dict[str, FaultRecord]:
    """The records of the register that a campaign began with and asks its targets."""
    asked = map(_record, store.jobs(REPLAY))
    return {one.identity: one for one in asked}


def faults_in(store: CampaignStore, targets: Sequence[ReportedTarget]) -> list[Fault]:
    """The faults that the targets of a campaign have, by identity."""
    told = (OfTarget(one.about.name, one.records, one.verdict.findings) for one in targets)
    return faults_of(began_with(store), told)


def document(
    store: CampaignStore, targets: Sequence[ReportedTarget], faults: Sequence[Fault]
) -> dict[str, object]:
    """A campaign as JSON. Its `digest` is of everything in it but itself and what was `seen` when;
    equal work has an equal one, however often it was stopped."""
    content = {
        "plan": msgspec.to_builtins(store.plan),
        "made_by": msgspec.to_builtins(store.made_by),
        "targets": [_target(one) for one in targets],
        "faults": [one.to_json() for one in faults],
        "exit_code": exit_code_of([one.verdict for one in targets]),
    }
    text = msgspec.json.encode(content, order="deterministic")
    seen = {
        record.identity: {"first": record.first, "last": record.last}
        for one in faults
        if (record := one.record) is not None
    }
    return {"digest": hashlib.sha256(text).hexdigest(), **content, "seen": seen}


def _target(one: ReportedTarget) -> dict[str, object]:
    verdict = one.verdict
    return {
        **msgspec.to_builtins(one.about),
        "lanes": [_lane(lane, one.seeds.get(lane.lane.name, [])) for lane in verdict.outcome.lanes],
        "broken": [
            {
                "contract": contract,
                "lane": lane,
                "kind": kind or None,
                "traces": traces,
                "listed": verdict.outcome.listed_in(contract, lane, kind),
            }
            for (contract, lane, kind), traces in sorted(verdict.outcome.kinds.items())
        ],
        "canaries": dict(sorted(verdict.canaries.items())),
        "findings": [_finding(found) for found in verdict.findings],
        "not_written": len(verdict.not_written),
        "void_because": verdict.void_because,
        "exit_code": verdict.exit_code,
    }


def _lane(lane: LaneReport, seeds: Sequence[str]) -> dict[str, object]:
    return {
        "name": lane.lane.name,
        "seeds": seeds,
        "traces": lane.traces,
        "events": lane.events,
        "steps": lane.steps,
        "calls": lane.calls,
        "compared": None if lane.compared is None else msgspec.to_builtins(lane.compared),
        "illegal": dict(sorted(lane.illegal.items())),
        "rare_states": dict(sorted(lane.reach.met.items())),
        "never_met": lane.never_met,
    }


def _finding(found: Finding) -> dict[str, object]:
    return {
        "contract": found.contract,
        "kind": found.kind or None,
        "harm": found.harm,
        "sentence": found.sentence,
        "identity": None if found.stopped_early else identity_of(found).name,
        "fault": found.fault,
        "known": found.known,
        "unlisted": is_unlisted(found),
        "events": len(found.events),
        "seed": found.seed,
        "replays": found.replays,
        "digest": outcomes.digest_of(Written(found)),
        "file": finding_file.path_of(found, Path()).name,
    }


def _told(seeds: Mapping[str, Sequence[range]]) -> dict[str, list[str]]:
    """The seeds of each lane, A:B, in their order."""
    return {
        lane: [f"{one.start}:{one.stop}" for one in sorted(ranges, key=lambda one: one.start)]
        for lane, ranges in seeds.items()
    }
