"""One search of a target, shared by workers: search, minimise, plant faults, all at once.

Parts of the search are merged in the order of their seeds, and findings are told in the order of
their breaks.
"""

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.faces import causes_of
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.register import FaultRecord, of_run
from cacheproof.differential.findings.register_file import day_of
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search import corpus, work
from cacheproof.differential.search.canary import (
    Canary,
    canaries_in,
    name_in,
    plantings_in_turns,
)
from cacheproof.differential.search.clocks import of_clock
from cacheproof.differential.search.corpus import Reply
from cacheproof.differential.search.known import KnownFault, showing_seeds
from cacheproof.differential.search.noting import Conclusions, Noted, Noting, face_of
from cacheproof.differential.search.seeded import SearchOutcome
from cacheproof.differential.search.verdict import Verdict, is_unlisted, listed_but_missing
from cacheproof.differential.search.work import Plant, ReplayTask, SearchTask, StartTask
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.resolve import semantics_beside
from cacheproof.output.console import CommandOutput, Live
from cacheproof.output.verdict_line import names
from cacheproof.search.memory_store import (
    WRITE_SECONDS,
    DueJob,
    MemoryStore,
    turns,
)
from cacheproof.search.searchers import crew_for
from cacheproof.work.plan import SearchPlan
from cacheproof.work.workplace import AnyCrew

PART_SEEDS = 20
PART_SEEDS_BY_TIME = 5
PART_SECONDS = 2.0
"""Most seconds of a part of a search that ends by the clock: who waits for the end waits for its
parts. Its lanes take turns more often."""
SHRINK_SECONDS = 15.0
"""Most seconds before the end that are left for minimising what is not small yet."""
ERRORS_MAX = 10
"""Errors of hosts after which a search gives up: it is void, and would wait for more of them."""
WEIGHTS = {"Search": 1.0, "Plant": 2.0, "WriteDown": 30.0, "WriteDown as it is": 5.0}
"""How long a seed, a planted fault and a break take, relative to one another, about."""


@dataclass
class _Note:
    """A break to be written down, and the outcome of that."""

    noted: Noted
    raw: Path | None = None
    outcome: Finding | str | None = None


class SearchRun(MemoryStore):
    """A search of a target that is under way. Nothing is left of it but its verdict and what lies
    in the `folder`."""

    def __init__(
        self,
        target: Target,
        lanes: Sequence[Lane],
        plan: SearchPlan,
        known: Sequence[KnownFault],
        folder: Path,
    ) -> None:
        self.target = target
        self.lanes = lanes
        self.plan = plan
        self.known = known
        self.folder = folder
        self.canaries: dict[str, bool] = {}
        self._is_compared = plan.with_reference and semantics_beside(target) is not None
        self.outcome = self._nothing()
        super().__init__(self.outcome.harness_errors, WEIGHTS, plan.seconds)
        self._conclusions = Conclusions(face_of)
        self._files: dict[object, list[Path]] = {}
        self._notes: list[_Note] = []
        self._concluded = 0
        self._errors_told = 0
        self._of_register: list[FaultRecord] = []
        self._noting = Noting(known, shrinks_listed=plan.shrinks_listed)
        self._urgent: deque[DueJob] = deque()
        self._listed: deque[DueJob] = deque()
        self._unreplayed = 0
        self._shown: dict[str, tuple[int, ...]] = {}
        self._all_seeds = iter(itertools.count() if plan.seeds is None else plan.seeds)

    def _nothing(self) -> SearchOutcome:
        """A search of the target of which nothing was run yet."""
        name, release = self.target.name, self.target.release
        return SearchOutcome.begun(name, release, self.lanes, compared=self._is_compared)

    def run(self, crew: AnyCrew, live: Live, records: Sequence[FaultRecord]) -> Verdict:
        """Do all of the search, the traces of these records of a register first; an interruption
        ends it with what there is."""
        names = {lane.name for lane in self.lanes}
        replays = [
            DueJob(ReplayTask(one), self.unless_error(partial(self._replayed, one)), "Replay")
            for one in corpus.asked(records, names, compared=self._is_compared)
        ]
        self.plan_for(*replays)
        plants = [*plantings_in_turns(self.lanes, self.target)]
        self.reckoning.planned["Plant"] = sum(len(some) for _, some in plants)
        if self.plan.seconds is None and self.plan.seeds is not None:
            at_once = self.plan.seeds[: self.plan.seeds_at_once]
            self.reckoning.planned["Search"] = len(at_once) * len(self.lanes)
        start = DueJob(StartTask(), self.unless_error(lambda _: None), "Start", in_order=False)
        searches = self.in_turns(self._searches(self._seeds()), self._planted(plants))
        ordinary = itertools.chain([start], self.in_time(replays), searches)
        self.do(crew, work.work, live, ordinary, self._progress)
        self._unreplayed = len(replays) - self.reckoning.units["Replay"]
        return self._verdict()

    # what there is to do

    @property
    def _gave_up(self) -> bool:
        """Whether hosts break again and again."""
        return len(self.outcome.harness_errors) >= ERRORS_MAX

    def next_due(self) -> DueJob | None:
        """First what writes down what was found, then the search and the planted faults in
        turns."""
        if time.monotonic() > self.deadline:
            self.stopped = True
            return None
        if self._gave_up or self.is_starting():
            return None
        if self._urgent:
            return self._urgent.popleft()
        # not minimised, a listed break is soon written; else it waits until the search has ended
        if self._listed and not self.plan.shrinks_listed:
            return self._listed.popleft()
        due = next(self.ordinary, None)
        if due is None and self._listed:
            return self._listed.popleft()
        return due

    def goes_on(self) -> bool:
        """Whether lanes go on with further seeds. Asked when nothing is under way, so which they
        are does not hang on who was the faster."""
        lanes = self._lanes_to_go_on()
        self.ordinary = self._searches(self._turns(lanes))
        return bool(lanes)

    def _searches(self, parts: Iterator[tuple[Lane, Sequence[int]]]) -> Iterator[DueJob]:
        for lane, seeds in self.in_time(parts):
            task = SearchTask(lane, seeds, self.plan.kept_per_break, of_clock(self.deadline))
            yield DueJob(task, self._merge, "Search", len(seeds))

    def _planted(self, plants: Iterable[tuple[Lane, tuple[Canary, ...]]]) -> Iterator[DueJob]:
        """Faults to be planted."""
        take = self.unless_error(self.canaries.update)
        for lane, some in self.in_time(plants):
            job = Plant(lane, some, of_clock(self.deadline))
            yield DueJob(job, take, "Plant", len(some), in_order=False)

    def _turns(self, lanes: Sequence[Lane]) -> Iterator[tuple[Lane, Sequence[int]]]:
        """The lanes in turns, a few seeds at a time, up to `seeds_at_once` of each; seeds that were
        shown before are left out."""
        seeds = itertools.islice(self._all_seeds, self.plan.seeds_at_once)
        for lane, some in turns(lanes, seeds, self._part_size):
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
        missing = listed_but_missing(self.outcome, self.known)
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
        of_one = self.reckoning.of_one("Search")
        if of_one is None:
            # one seed is timed before several are bound into a part
            return 1
        return max(1, min(PART_SEEDS_BY_TIME, int(PART_SECONDS / of_one)))

    # what comes of it

    def _replayed(self, record: FaultRecord, outcome: Reply) -> None:
        name, release, day = self.target.name, self.target.release, day_of(time.time())
        self._of_register += outcome.recorded(record, name, release, day)
        part = self._nothing()
        if outcome.broken is not None:
            part.add_break(outcome.broken)
        self._merge(part)

    def _merge(self, part: SearchOutcome) -> None:
        began = max(0.0, time.monotonic() - self.began - part.seconds)
        for noted in self._noting.merge(self.outcome, part, began, self.plan.kept_per_break):
            note = _Note(noted)
            self._notes.append(note)
            kind = "WriteDown" if noted.batches else "WriteDown as it is"
            written = partial(self._written, note)
            until = of_clock(self.before_end(WRITE_SECONDS))
            due = DueJob(noted.job(until), written, kind, in_order=False)
            self.plan_for(due)
            if noted.listed is None:
                # saved as it broke, to be replayed until it is minimised
                note.raw = finding_file.save_trace(noted.broken, self.target.name, self.folder)
                self._urgent.append(due)
            else:
                self._listed.append(due)

    def _written(self, note: _Note, outcome: Finding | str) -> None:
        note.outcome = outcome
        if isinstance(outcome, Finding) and note.noted.listed is not None:
            finding_file.save(self._noting.annotated(outcome), self.folder)

    @property
    def is_out_of_time(self) -> bool:
        """Whether the seconds are up, or what is left of them is for minimising."""
        is_small = all(one.noted.listed or one.outcome is not None for one in self._notes)
        return time.monotonic() > (self.deadline if is_small else self.before_end(SHRINK_SECONDS))

    def look(self) -> None:
        """Report the outcomes of breaks in their order, up to the first that is not known, and how
        far all is."""
        while (
            self._concluded < len(self._notes) and self._notes[self._concluded].outcome is not None
        ):
            self._conclude(self._notes[self._concluded])
            self._concluded += 1
        for error in self.errors[self._errors_told :]:
            self.live.say(f"{self.target.name}: {error}")
        self._errors_told = len(self.errors)
        super().look()

    def _left(self, now: float) -> tuple[float | None, float | None]:
        """By the clock, if it ends the search."""
        if self.seconds is None:
            return super()._left(now)
        left, spent = max(0.0, self.deadline - now), now - self.began
        return spent / (spent + left), left

    def _conclude(self, note: _Note) -> None:
        outcome = note.outcome
        if isinstance(outcome, str):
            self.errors.append(outcome)
        if not isinstance(outcome, Finding):
            return
        found, listed = self._noting.annotated(outcome), note.noted.listed
        count = len(self._conclusions.findings)
        if self._conclusions.take(found, note.noted.broken.lane, time.time()):
            if listed is None:
                self._save(found)
            if len(self._conclusions.findings) > count and self._is_a_cause(found):
                self.live.say(
                    f"found: {found.contract} in lane {note.noted.broken.lane}: {found.title}"
                )
        # the finding is saved, and no longer needs the trace as it broke
        if note.raw is not None:
            note.raw.unlink(missing_ok=True)

    def _save(self, found: Finding) -> None:
        """Save a finding, in the place of a larger one that this search has saved."""
        was_there = finding_file.path_of(found, self.folder).exists()
        files = finding_file.save(found, self.folder)
        for larger in self._files.pop(face_of(found), ()):
            larger.unlink(missing_ok=True)
        if not was_there:
            self._files[face_of(found)] = files

    def _is_a_cause(self, found: Finding) -> bool:
        """Whether a finding is not listed, and likely no other face of what was found so far."""
        new = [one for one in self._conclusions.findings if one.known_note is None]
        return any(one.head is found for one in causes_of(new, is_unlisted))

    @property
    def records(self) -> list[FaultRecord]:
        """What the search says to the traces of the register, and what was found."""
        return of_run(self._of_register, self._conclusions.records)

    def _progress(self) -> str:
        """The work done so far, in words."""
        traces = sum(lane.traces for lane in self.outcome.lanes)
        unlisted = sum(map(is_unlisted, self._conclusions.findings))
        unwritten = sum(note.outcome is None for note in self._notes)
        planted, planned = len(self.canaries), self.reckoning.planned["Plant"]
        words = f"{traces:,} traces, {planted:,} of {planned:,} faults planted"
        if unwritten:
            words += f", breaks to be minimised: {unwritten}"
        words += f"; listed faults: {len(self._noting.listed)}, unlisted findings: {unlisted}"
        if self.errors:
            words += f"; errors of hosts: {len(self.errors)}"
        return words

    def _verdict(self) -> Verdict:
        """The verdict; after an interruption, of what is known until then."""
        # after an interruption, outcomes may stand behind one that never came
        for note in self._notes[self._concluded :]:
            self._conclude(note)
        self.outcome.seconds = time.monotonic() - self.began
        broken = self.outcome.kinds.keys()
        worth = [
            name_in(lane, canary)
            for lane in self.lanes
            for canary in canaries_in(lane, self.target, broken)
        ]
        is_cut_short = self.interrupted or self._gave_up or self.stopped
        # cut short, a search is not blamed for faults that it did not come to plant
        planted = [name for name in worth if name in self.canaries or not is_cut_short]
        found = {name: self.canaries.get(name, False) for name in planted}
        kept = [
            (note.noted.listed, note.noted.broken)
            for note in self._notes
            if not isinstance(note.outcome, Finding)
        ]
        verdict = Verdict(
            self.outcome,
            self._conclusions.findings,
            found,
            interrupted=self.interrupted,
            not_written=kept,
            lanes_of=self._conclusions.lanes_of,
        )
        if self.stopped:
            self._tell_left_undone(verdict, len(worth))
        return verdict

    def _tell_left_undone(self, verdict: Verdict, worth: int) -> None:
        """Say in a verdict what the seconds did not last for; `worth` faults were to be planted."""
        undone = {
            "planted faults": worth - len(verdict.canaries),
            "traces of the register": self._unreplayed,
        }
        verdict.left_undone = {what: count for what, count in undone.items() if count}
        reasons = [] if verdict.canaries or not worth else ["no fault was planted"]
        if unsmall := verdict.unsmall:
            reasons.append(f"what breaks {names(unsmall)} may be new, and was not minimised")
        if reasons:
            verdict.unfinished = f"within {self.seconds:g} s {' and '.join(reasons)}"


def run_search(
    output: CommandOutput,
    target: Target,
    lanes: Sequence[Lane],
    plan: SearchPlan,
    known: Sequence[KnownFault],
    folder: Path,
    records: Sequence[FaultRecord],
) -> tuple[Verdict, list[FaultRecord]]:
    """Search a target with all workers, write down what is found, and plant its faults.
    The traces of the `records` of a register come first; returns what is to be added to it, too.

    A line says each cause that is not listed, when it is minimised.
    """
    elsewhere = target.another()
    with closing(elsewhere), plan.place.joined():
        crew = crew_for(plan.place, target, elsewhere, plan.with_reference, known, lanes)
        with closing(crew), output.live(f"searching {target.name}") as live:
            run = SearchRun(target, lanes, plan, known, folder)
            return run.run(crew, live, records), run.records
