"""What a campaign amounts to so far: a verdict for each target, and a document that does not depend
on time, with a digest."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.lanes.all_lanes import lane_called
from cacheproof.differential.search.campaign import LaneReport
from cacheproof.differential.search.campaigns import outcomes
from cacheproof.differential.search.campaigns.outcomes import Planted, Written
from cacheproof.differential.search.campaigns.store import (
    OPEN,
    PLANT,
    SEARCH,
    TAKEN,
    WRITE,
    Store,
)
from cacheproof.differential.search.campaigns.totals import Totals, to_write
from cacheproof.differential.search.canary import Canary, name_in, unbroken
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import Verdict, exit_code_of, is_unlisted


def identity_of(found: Finding) -> object:
    """Findings of one target are one where this is equal."""
    return found.key


class Reported:
    """One target of a campaign, as far as it is: its verdict, and the seeds of each lane. It goes
    on from what was reported of the same campaign `before`, which is then no longer of use; what
    failed may have been done again, so after that it begins anew."""

    verdict: Verdict
    _totals: Totals

    def __init__(
        self,
        store: Store,
        number: int,
        known: Sequence[KnownFault],
        before: "Reported | None" = None,
    ) -> None:
        self.about = store.targets[number]
        self._store = store
        self._number = number
        if before is not None and not before.verdict.campaign.harness_errors:
            self._totals = before._totals
        else:
            self._totals = Totals(store.plan, self.about, known)
        self._totals.cut_at(store.cut(number))
        self._totals.take(store.ended(number, SEARCH, self._totals.next))
        self.seeds = _seeds(self._totals.jobs)
        self.verdict = Verdict(self._totals.campaign, [], unfinished=self._unfinished())
        self._plant()
        self._write()

    @property
    def shards_done(self) -> int:
        """Shards that have ended, with all before them."""
        return self._totals.next

    @property
    def shards_total(self) -> int | None:
        """Shards that count; None where that is not known yet."""
        is_known = self._store.plan.has_seeds or self._totals.is_over
        return self._totals.cut if is_known else None

    def _unfinished(self) -> str:
        """What is left to do; empty where nothing is."""
        if not self._totals.is_over:
            of = "" if self.shards_total is None else f" of {self.shards_total:,}"
            return f"not finished: {self.shards_done:,}{of} shards are done; resume the campaign"
        counts = self._store.counts(self._number)
        for kind, what in ((PLANT, "planting faults"), (WRITE, "writing down what was found")):
            if any(counts.get((kind, state)) for state in (OPEN, TAKEN)):
                return f"not finished: {what} is left; resume the campaign"
        return ""

    def _plant(self) -> None:
        planted: list[tuple[str, Canary, bool]] = []
        for ended in self._store.ended(self._number, PLANT):
            outcome: Planted = outcomes.read(Planted, ended.outcome)
            planted += ((ended.job.lane, canary, found) for canary, found in outcome.found)
            if outcome.error is not None:
                self.verdict.campaign.harness_errors.append(outcome.error)
        broken = self.verdict.campaign.kinds.keys()
        for name, canary, found in planted:
            lane = lane_called(name)
            if unbroken([canary], lane, broken):
                self.verdict.canaries[name_in(lane, canary)] = found

    def _write(self) -> None:
        """What was noted, in the order of the breaks; of equal findings the first."""
        there = {one.job.key: one for one in self._store.ended(self._number, WRITE)}
        findings: dict[object, Finding] = {}
        for noted in self._totals.noted:
            ended = there.get(to_write(self._number, self.about, noted).key)
            if ended is None:
                self.verdict.not_written.append((noted.listed, noted.broken))
                continue
            outcome: Written = outcomes.read(Written, ended.outcome)
            if outcome.error is not None:
                self.verdict.campaign.harness_errors.append(outcome.error)
            if outcome.finding is not None:
                found = self._totals.noting.annotated(noted, outcome.finding)
                findings.setdefault(identity_of(found), found)
        self.verdict.findings += findings.values()


def reported(
    store: Store, known: Sequence[KnownFault], before: Sequence[Reported] = ()
) -> list[Reported]:
    """All targets of a campaign, going on from what was reported `before`."""
    return [
        Reported(store, number, known, before[number] if before else None)
        for number in range(len(store.targets))
    ]


def document(store: Store, targets: Sequence[Reported], file_of: Any) -> dict[str, Any]:
    """A campaign as JSON. Its `digest` is of everything in it but itself; equal work has an equal
    one, however often it was stopped. `file_of` names the file of a finding."""
    content = {
        "plan": msgspec.to_builtins(store.plan),
        "made_by": msgspec.to_builtins(store.made_by),
        "targets": [_target(one, file_of) for one in targets],
        "exit_code": exit_code_of([one.verdict for one in targets]),
    }
    text = msgspec.json.encode(content, order="deterministic")
    return {"digest": hashlib.sha256(text).hexdigest(), **content}


def _target(one: Reported, file_of: Any) -> dict[str, Any]:
    verdict = one.verdict
    return {
        **msgspec.to_builtins(one.about),
        "lanes": [
            _lane(lane, one.seeds.get(lane.lane.name, [])) for lane in verdict.campaign.lanes
        ],
        "broken": [
            {"contract": contract, "lane": lane, "kind": kind or None, "traces": traces}
            for (contract, lane, kind), traces in sorted(verdict.campaign.kinds.items())
        ],
        "canaries": dict(sorted(verdict.canaries.items())),
        "findings": [_finding(found, file_of) for found in verdict.findings],
        "not_written": len(verdict.not_written),
        "void_because": verdict.void_because,
        "exit_code": verdict.exit_code,
    }


def _lane(lane: LaneReport, seeds: Sequence[str]) -> dict[str, Any]:
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


def _finding(found: Finding, file_of: Any) -> dict[str, Any]:
    return {
        "contract": found.contract,
        "kind": found.kind or None,
        "harm": found.harm,
        "sentence": found.sentence,
        "fault": found.fault,
        "known": found.known,
        "unlisted": is_unlisted(found),
        "events": len(found.events),
        "seed": found.seed,
        "replays": found.replays,
        "digest": outcomes.digest_of(Written(found)),
        "file": file_of(found),
    }


def _seeds(jobs: Sequence[Any]) -> dict[str, list[str]]:
    """The seeds of each lane, as few ranges as can be."""
    found: dict[str, list[range]] = {}
    for job in sorted(jobs, key=lambda one: one.first):
        ranges = found.setdefault(job.lane, [])
        if ranges and ranges[-1].stop == job.first:
            ranges[-1] = range(ranges[-1].start, job.last)
        else:
            ranges.append(range(job.first, job.last))
    return {lane: list(_told(ranges)) for lane, ranges in found.items()}


def _told(ranges: Sequence[range]) -> Iterator[str]:
    for one in ranges:
        yield f"{one.start}:{one.stop}"
