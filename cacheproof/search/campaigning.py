"""One campaign over one target, shared by workers: search, minimise, plant faults, all at once.

Parts of the search are merged in the order of their seeds, and findings are told in the order of
their breaks, so that what is said depends neither on the number of workers nor on which was the
faster.
"""

import itertools
import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.faces import causes_of
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search import work
from cacheproof.differential.search.campaign import Campaign
from cacheproof.differential.search.canary import canaries_in, name_in
from cacheproof.differential.search.corpus import Corpus
from cacheproof.differential.search.known import KnownFault, showing_seeds
from cacheproof.differential.search.noting import Noted, Noting
from cacheproof.differential.search.verdict import Verdict, is_unlisted, listed_but_missing
from cacheproof.differential.search.work import Job, Plant, SearchTask, StartTask, WriteDown
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for
from cacheproof.output.console import CommandOutput, Live
from cacheproof.output.progress import Reckoning
from cacheproof.search.searchers import crew_for
from cacheproof.work.plan import SearchPlan
from cacheproof.work.workers import done_among, timed
from cacheproof.work.workplace import AnyCrew

PART_SEEDS = 20
PART_SEEDS_BY_TIME = 5
PART_SECONDS = 2.0
"""Most seconds of a part of a search that ends by the clock: who waits for the end waits for its
parts. Its lanes take turns more often."""
CANARIES_AT_ONCE = 8
AHEAD = 2
"""Jobs that a worker is given in advance, beside the one that it does."""
SHRINK_SECONDS = 15.0
"""Seconds after the end of a search for minimising what is not small yet."""
ERRORS_MAX = 10
"""Errors of hosts after which a search gives up: it is void, and would wait for more of them."""
WEIGHTS = {"Search": 1.0, "Plant": 2.0, "WriteDown": 30.0, "WriteDown as it is": 5.0}
"""How long a seed, a planted fault and a break take, relative to one another, about."""
_Due = tuple[Job, object]
"""A job, and what its outcome belongs to: the number of a part, or a break."""


@dataclass
class _Note:
    """A break to be written down, and the outcome of that."""

    noted: Noted
    raw: Path | None = None
    outcome: Finding | str | None = None

    @property
    def broken(self) -> Break:
        return self.noted.broken

    @property
    def listed(self) -> KnownFault | None:
        return self.noted.listed


@dataclass
class CampaignRun:
    """A campaign that is under way."""

    output: CommandOutput
    target: Target
    lanes: Sequence[Lane]
    plan: SearchPlan
    known: Sequence[KnownFault]
    folder: Path
    corpus: Corpus = field(default_factory=Corpus)
    campaign: Campaign = field(init=False)
    canaries: dict[str, bool] = field(default_factory=dict)
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    lanes_of: dict[tuple[str, str], str] = field(default_factory=dict)
    interrupted: bool = False

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._ready = math.inf  # no host is ready yet, so no second of the search has passed
        self._reckoning = Reckoning(self._began, WEIGHTS)
        self._notes: list[_Note] = []
        self._told = 0
        self._errors_told = 0
        self._noting = Noting(self.known, shrinks_listed=self.plan.shrinks_listed)
        self._urgent: deque[_Due] = deque()
        self._listed: deque[_Due] = deque()
        self._parts: dict[int, Campaign] = {}
        self._numbers = itertools.count()
        seeds = itertools.count() if self.plan.seeds is None else self.plan.seeds
        self._shown: dict[str, tuple[int, ...]] = {}
        self._all_seeds: Iterator[int] = iter(seeds)
        self._next_part = 0
        self._searching = True
        self._traces = 0

    def run(self, crew: AnyCrew, live: Live) -> Verdict:
        """Do all of the campaign; an interruption ends it with what there is."""
        against = reference_for(self.target) if self.plan.with_reference else None
        if against is not None:
            # only whether there is a reference counts here: workers compare with their own
            against.close()
        self.campaign = Campaign.begun(self.target, self.lanes, against)
        self._merge(self._of_corpus(against))
        plants = list(self._plants())
        self._plan(plants)
        start: list[_Due] = [(StartTask(), None)]
        searches = self._searches(self._seeds())
        ordinary: Iterator[_Due] = itertools.chain(start, _alternating(searches, iter(plants)))
        under_way: dict[Future[Any], _Due] = {}
        try:
            while True:
                while len(under_way) < crew.number * (1 + AHEAD) and not self._gave_up:
                    due = self._next(ordinary)
                    if due is None:
                        break
                    under_way[crew.submit(partial(timed, work.work), due[0])] = due
                if not under_way:
                    # nothing is under way: which lanes go on does not hang on who was the faster
                    lanes = self._lanes_to_go_on()
                    if not lanes:
                        break
                    self._searching = True
                    ordinary = self._searches(self._turns(lanes))
                    continue
                for future in done_among(under_way):
                    job, about = under_way.pop(future)
                    outcome, seconds = future.result()
                    self._ready = min(self._ready, time.monotonic())
                    self._take(job, about, outcome)
                    self._reckoning.took(*_kind_of(job), seconds)
                self._tell(live)
                self._show(live, crew.number)
        except KeyboardInterrupt:
            self.interrupted = True
        except BrokenProcessPool:
            self.campaign.harness_errors.append(
                "a worker process ended before its work was done: was it killed, or out of memory?"
            )
        return self._verdict(live)

    def _of_corpus(self, against: ReferenceTarget | None) -> Campaign:
        """The traces that were run before the search, as its first part."""
        part = Campaign.begun(self.target, self.lanes, against)
        for one in self.corpus.breaks:
            part.breaks.append(one)
            part.broken[one.contract, one.lane] += 1
            part.count(one)
        part.harness_errors += self.corpus.errors
        return part

    # what there is to do

    def _plan(self, plants: Sequence[_Due]) -> None:
        """Tell the reckoning of all work that is known to come."""
        planned = self._reckoning.planned
        for job, _ in plants:
            kind, units = _kind_of(job)
            planned[kind] += units
        if self.plan.seconds is None and self.plan.seeds is not None:
            planned["Search"] = len(self.plan.seeds[: self.plan.seeds_at_once]) * len(self.lanes)

    @property
    def _gave_up(self) -> bool:
        """Whether hosts break again and again."""
        return len(self.campaign.harness_errors) >= ERRORS_MAX

    def _next(self, ordinary: Iterator[_Due]) -> _Due | None:
        """The next job: first those of what was found, then the search and the planted faults in
        turns. None where there is nothing for now."""
        if self._urgent:
            return self._urgent.popleft()
        # not minimised, a listed break is soon written; else it waits until the search has ended
        if self._listed and not self.plan.shrinks_listed:
            return self._listed.popleft()
        due = next(ordinary, None)
        if due is None and self._listed:
            return self._listed.popleft()
        return due

    def _searches(self, parts: Iterator[tuple[Lane, Sequence[int]]]) -> Iterator[_Due]:
        for lane, seeds in parts:
            if self.is_out_of_time:
                break
            yield SearchTask(lane, seeds, self.plan.kept_per_break), next(self._numbers)
        self._searching = False

    def _turns(self, lanes: Sequence[Lane]) -> Iterator[tuple[Lane, Sequence[int]]]:
        """The lanes in turns, a few seeds at a time, up to `seeds_at_once` of each; seeds that were
        shown before are left out."""
        seeds = itertools.islice(self._all_seeds, self.plan.seeds_at_once)
        while some := tuple(itertools.islice(seeds, self._part_size())):
            for lane in lanes:
                shown = self._shown.get(lane.name, ())
                if due := tuple(one for one in some if one not in shown):
                    yield lane, due

    def _lanes_to_go_on(self) -> list[Lane]:
        """The lanes that go on with further seeds, if there are any: those in which a listed fault
        of the release is yet to be met."""
        if self.plan.seeds_at_once is None or self._gave_up or self.is_out_of_time:
            return []
        # an iterator says only by giving one whether seeds are left; it is put back below
        first = next(self._all_seeds, None)
        if first is None:
            return []
        self._all_seeds = itertools.chain([first], self._all_seeds)
        release = self.target.release
        missing = listed_but_missing(self.campaign, self.known)
        return [
            lane
            for lane in self.lanes
            if any(one.must_be_met(release, lane.name) for one in missing)
        ]

    def _seeds(self) -> Iterator[tuple[Lane, Sequence[int]]]:
        """The first turns of all lanes; after them the seeds that show listed faults."""
        yield from self._turns(self.lanes)
        if self.plan.shows_listed:
            searched = (self.plan.seeds or range(0))[: self.plan.seeds_at_once]
            further = showing_seeds(self.known, self.target.release)
            for lane in self.lanes:
                own = tuple(one for one in further.get(lane.name, ()) if one not in searched)
                if own:
                    self._shown[lane.name] = own
                    yield lane, own

    def _part_size(self) -> int:
        """Seeds of a part: fewer where a seed takes long on this machine."""
        if self.plan.seconds is None:
            return PART_SEEDS
        of_one = self._reckoning.of_one("Search")
        if of_one is None:
            # one seed is timed before several are bound into a part
            return 1
        return max(1, min(PART_SEEDS_BY_TIME, int(PART_SECONDS / of_one)))

    def _plants(self) -> Iterator[_Due]:
        for lane in self.lanes:
            expected = canaries_in(lane, self.target)
            for first in range(0, len(expected), CANARIES_AT_ONCE):
                yield Plant(lane, tuple(expected[first : first + CANARIES_AT_ONCE])), None

    @property
    def is_out_of_time(self) -> bool:
        """Whether the seconds of the search are up; they begin when the first host is ready."""
        seconds = self.plan.seconds
        return seconds is not None and time.monotonic() - self._ready > seconds

    # what comes of it

    def _take(self, job: Job, about: object, outcome: Any) -> None:
        match job:
            case StartTask():
                if outcome is not None:
                    self.campaign.harness_errors.append(outcome)
            case SearchTask():
                assert isinstance(about, int)
                self._parts[about] = outcome
                self._traces += sum(lane.traces for lane in outcome.lanes)
                # a part that overtook others waits: what is said must not depend on who was faster
                while self._next_part in self._parts:
                    self._merge(self._parts.pop(self._next_part))
                    self._next_part += 1
            case Plant():
                if isinstance(outcome, str):
                    self.campaign.harness_errors.append(outcome)
                else:
                    self.canaries |= outcome
            case WriteDown():
                assert isinstance(about, _Note)
                about.outcome = outcome
                if isinstance(outcome, Finding) and about.listed is not None:
                    finding_file.save(self._noting.annotated(outcome), self.folder)

    def _merge(self, part: Campaign) -> None:
        began = max(0.0, time.monotonic() - self._began - part.seconds)
        for broken in self.campaign.merge(part, began, self.plan.kept_per_break):
            noted = self._noting.note(broken)
            if noted is None:
                continue
            note = _Note(noted)
            self._notes.append(note)
            self._reckoning.planned[_kind_of(noted.job())[0]] += 1
            job = noted.job(self._until)
            if noted.listed is None:
                # saved as it broke, to be replayed until it is minimised
                note.raw = finding_file.save_trace(broken, self.target.name, self.folder)
                self._urgent.append((job, note))
            else:
                self._listed.append((job, note))

    @property
    def _until(self) -> float:
        """The moment until which something may be minimised."""
        if self.plan.seconds is None:
            return math.inf
        return self._ready + self.plan.seconds + SHRINK_SECONDS

    def _tell(self, live: Live) -> None:
        """Report the outcomes of breaks in their order, up to the first that is not known."""
        while self._told < len(self._notes) and self._notes[self._told].outcome is not None:
            self._conclude(self._notes[self._told], live)
            self._told += 1
        for error in self.campaign.harness_errors[self._errors_told :]:
            live.say(f"{self.target.name}: {error}")
        self._errors_told = len(self.campaign.harness_errors)

    def _conclude(self, note: _Note, live: Live) -> None:
        outcome = note.outcome
        if isinstance(outcome, str):
            self.campaign.harness_errors.append(outcome)
        if not isinstance(outcome, Finding):
            return
        found = self._noting.annotated(outcome)
        if found.key not in self.findings:
            if note.listed is None:
                finding_file.save(found, self.folder)
            self.lanes_of[found.key] = note.broken.lane
            self.findings[found.key] = found
            if self._is_a_cause(found):
                live.say(f"found: {found.contract} in lane {note.broken.lane}: {found.title}")
        # the finding is saved, and no longer needs the trace as it broke
        if note.raw is not None:
            note.raw.unlink(missing_ok=True)

    def _is_a_cause(self, found: Finding) -> bool:
        """Whether a finding is not listed, and likely no other face of what was found so far."""
        new = [one for one in self.findings.values() if one.known_note is None]
        return any(one.head is found for one in causes_of(new, is_unlisted))

    def _show(self, live: Live, workers: int) -> None:
        """Show how far the campaign is."""
        now = time.monotonic()
        if self._ready == math.inf:
            live.show("a worker starts, and imports the target")
            return
        at_least = 0.0
        if self.plan.seconds is not None:
            at_least = max(0.0, self._ready + self.plan.seconds - now)
        live.show(self._progress(), *self._reckoning.told(now, workers, at_least))

    def _progress(self) -> str:
        """The work done so far, in words."""
        faults = {note.listed.name for note in self._notes if note.listed is not None}
        unlisted = sum(is_unlisted(finding) for finding in self.findings.values())
        unwritten = sum(note.outcome is None for note in self._notes)
        planted, planned = len(self.canaries), self._reckoning.planned["Plant"]
        words = f"{self._traces:,} traces, {planted:,} of {planned:,} faults planted"
        if unwritten:
            words += f", breaks to be minimised: {unwritten}"
        words += f"; listed faults: {len(faults)}, unlisted findings: {unlisted}"
        if errors := len(self.campaign.harness_errors):
            words += f"; errors of hosts: {errors}"
        return words

    def _verdict(self, live: Live) -> Verdict:
        """The verdict; after an interruption, of what is known until then."""
        # after an interruption, outcomes may stand behind one that never came
        for note in self._notes[self._told :]:
            self._conclude(note, live)
        self.campaign.seconds = time.monotonic() - self._began
        broken = self.campaign.kinds.keys()
        worth = [
            name_in(lane, canary)
            for lane in self.lanes
            for canary in canaries_in(lane, self.target, broken)
        ]
        is_cut_short = self.interrupted or self._gave_up
        # cut short, a search is not blamed for faults that it did not come to plant
        planted = [name for name in worth if name in self.canaries or not is_cut_short]
        found = {name: self.canaries.get(name, False) for name in planted}
        kept = [
            (note.listed, note.broken)
            for note in self._notes
            if not isinstance(note.outcome, Finding)
        ]
        return Verdict(
            self.campaign,
            list(self.findings.values()),
            found,
            interrupted=self.interrupted,
            not_written=kept,
            lanes_of=self.lanes_of,
        )


def run_campaign(
    output: CommandOutput,
    target: Target,
    lanes: Sequence[Lane],
    plan: SearchPlan,
    known: Sequence[KnownFault],
    folder: Path,
    corpus: Corpus,
) -> Verdict:
    """Search a target with all workers, write down what is found, and plant this campaign's faults.
    What the `corpus` broke comes first.

    A line says each cause that is not listed, when it is minimised.
    """
    elsewhere = target.another()
    with closing(elsewhere), plan.place.joined():
        crew = crew_for(plan.place, target, elsewhere, plan.with_reference, known)
        with closing(crew), output.live(f"searching {target.name}") as live:
            run = CampaignRun(output, target, lanes, plan, known, folder, corpus)
            return run.run(crew, live)


def _kind_of(job: Job) -> tuple[str, int]:
    """The kind of a job, for the reckoning, and its size in units of that kind."""
    match job:
        case SearchTask():
            return "Search", len(job.seeds)
        case Plant():
            return "Plant", len(job.canaries)
        case WriteDown():
            return ("WriteDown" if job.batches else "WriteDown as it is"), 1
    return type(job).__name__, 1


def _alternating(searches: Iterator[_Due], others: Iterator[_Due]) -> Iterator[_Due]:
    """One of each in turns, then the rest of the longer."""
    for pair in itertools.zip_longest(searches, others):
        yield from (one for one in pair if one is not None)
