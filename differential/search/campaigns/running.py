"""Runs a campaign's jobs of one target with a crew, beside whoever else does."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.register import FaultRecord
from cacheproof.differential.lanes.all_lanes import lane_called
from cacheproof.differential.search import work
from cacheproof.differential.search.campaigns import outcomes
from cacheproof.differential.search.campaigns.outcomes import (
    PlantedOutcome,
    ReplayedOutcome,
    SearchedShard,
    ToWrite,
    Written,
)
from cacheproof.differential.search.campaigns.runners import BEAT_SECONDS, StoreClock
from cacheproof.differential.search.campaigns.shards import Shard
from cacheproof.differential.search.campaigns.store import (
    DONE,
    FAILED,
    OPEN,
    PLANT,
    REPLAY,
    SEARCH,
    TAKEN,
    WRITE,
    Away,
    CampaignStore,
    CampaignTarget,
    EndedJob,
    ShardJob,
    key_of,
)
from cacheproof.differential.search.campaigns.totals import KEPT_PER_BREAK, Totals, to_write
from cacheproof.differential.search.canary import Canary, canaries_in, name_in, plantings
from cacheproof.differential.search.corpus import Reply, asked
from cacheproof.differential.search.job_runner import LOST, DoneAmong, JobCrew, JobRunner
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.noting import Noted
from cacheproof.differential.search.seeded import SearchOutcome
from cacheproof.differential.targets.base import Target

AHEAD = 1
"""Jobs that a worker is given besides the one that it does."""
SHARDS_AHEAD = 200
"""Shards that are added to the store at once, at least; again when half of them are left."""
SHARDS_OF_ONE = 4
"""Shards for each worker that are added at once, where that is more."""


@dataclass
class RunningTarget:
    """One target of a campaign that is run. `done_among` waits a moment for futures; `runner` names
    this process in the store; `tell` takes the progress, in words and as a share from 0 to 1; `say`
    takes a line when a server goes away or comes back."""

    store: CampaignStore
    number: int
    target: Target
    known: Sequence[KnownFault]
    runner: str
    crew: JobCrew
    done_among: DoneAmong[tuple[work.CameTo | None, float]]
    clock: StoreClock
    tell: Callable[[str, float | None], None] = lambda words, share: None
    say: Callable[[str], None] = lambda _: None
    totals: Totals = field(init=False)

    def __post_init__(self) -> None:
        self._about = self.store.targets[self.number]
        self._jobs = JobRunner(self, self.crew, work.work, self.done_among, AHEAD)
        self._to_add: list[ShardJob] = []
        self._beat_at = -math.inf
        self._has_begun = False

    def run(self) -> None:
        """Do jobs until all that count have ended, here or elsewhere. A server that goes away is
        waited for.

        Raises:
            HarnessError: a worker ended before its job was done, which is to be done again.
        """
        is_away = False
        while True:
            try:
                if is_away:
                    self._come_back()
                    is_away = False
                if not self._has_begun:
                    self._begin()
                if not self._jobs.step():
                    return
            except BrokenProcessPool:
                raise HarnessError(
                    f"{self._about.name}: {LOST} What has ended is kept; resume the campaign"
                ) from None
            except Away as error:
                if not is_away:  # once for each absence, however often it is tried
                    self.say(f"{error}; waiting for it")
                is_away = True
                self.clock.wait()

    def _begin(self) -> None:
        """Read from the store how far the target is."""
        replays = self.store.last_number(self.number, REPLAY) + 1
        self._added = self.store.last_number(self.number, SEARCH) + 1
        self.totals = Totals(self.store.plan, self._about, self.known, replays)
        self._has_begun = True

    def _come_back(self) -> None:
        """Go on with a store that was away. Jobs taken while it went may be unknown here."""
        self._beat_at = -math.inf
        self._beat()  # first: others may take this process for dead by now
        self.store.let_go(self.runner, {job.key for job in self._jobs.under_way.values()})
        self.say(f"--store {self.store.where}: it is back")

    def claim(self, room: int) -> Iterator[tuple[ShardJob, work.Job]]:
        """Take jobs after those that what has ended brings, from the store that others use too."""
        self._advance()
        if room:
            # Shards from the cut on would not count.
            below = self.totals.cut
            for job in self.store.claim(self.runner, self.number, below, room, self.clock.now()):
                yield job, self._work_of(job)

    def look(self) -> None:
        """Show that this process lives, and how far all is."""
        self._beat()
        self.tell(self._progress(), self._share())

    def finish(self, ended: Sequence[tuple[ShardJob, work.CameTo | None, float]]) -> None:
        """Keep the outcomes of jobs; only then are they no longer under way."""
        some = [self._ended(job, outcome) for job, outcome, _ in ended]
        self.store.finish(self.runner, some, self.clock.now())
        if some:
            self._end_by_the_clock()

    def goes_on(self) -> bool:
        """Whether all that counts has not ended: others may do it, which is waited for."""
        if self._is_complete():
            return False
        self.clock.wait()
        return True

    def _advance(self) -> None:
        """Take in jobs that have ended, and add the jobs that write down what they found."""
        self.totals.cut_at(self.store.cut(self.number))
        if not self.totals.has_replayed:
            replayed = self.store.ended(self.number, REPLAY, self.totals.replayed)
            self._have_written(self.totals.replay(replayed))
        for noted in self.totals.take_from(self.store, self.number):
            self._have_written(noted)
        self.store.add(self._to_add)
        # Only now: where the store went away it is asked again, and adds what it lacks.
        self._to_add.clear()
        ahead = max(SHARDS_AHEAD, SHARDS_OF_ONE * self.crew.number)
        wanted = min(self.totals.next + ahead // 2, self.totals.cut)
        if self._added < wanted:  # less than half is left: many are added at once, and seldom
            shards = self.totals.cutting.shards(self._added, ahead)
            self.store.add([search_of(self.number, self._about.name, one) for one in shards])
            self._added += len(shards)

    def _have_written(self, noted: Sequence[Noted]) -> None:
        self._to_add += (to_write(self.number, self._about, one) for one in noted)

    def _work_of(self, job: ShardJob) -> work.Job:
        if job.kind == WRITE:
            task: ToWrite = outcomes.read(ToWrite, job.payload or "")
            return task.job
        if job.kind == REPLAY:
            return work.ReplayTask(outcomes.read(FaultRecord, job.payload or ""))
        lane = lane_called(job.lane)
        if job.kind == PLANT:
            return work.Plant(lane, tuple(self._canaries(job)))
        return work.SearchTask(lane, range(job.first, job.last), KEPT_PER_BREAK)

    def _canaries(self, job: ShardJob) -> list[Canary]:
        return canaries_in(lane_called(job.lane), self.target)[job.first : job.last]

    def _ended(self, job: ShardJob, came: work.CameTo | None) -> EndedJob:
        events = calls = 0
        seconds = 0.0
        outcome: outcomes.Outcome
        match came:
            case SearchOutcome():
                outcome = SearchedShard.of(came)
                events, calls, seconds = outcome.work.events, outcome.work.calls, came.seconds
                failed = bool(outcome.errors)
            case dict():
                lane = lane_called(job.lane)
                some = self._canaries(job)
                outcome = PlantedOutcome([(one, came[name_in(lane, one)]) for one in some])
                failed = False
            case Finding():
                outcome, failed = Written(came), False
            case Reply():
                outcome, failed = ReplayedOutcome(came), False
            case _:
                outcome, failed = _without_outcome(job.kind, came or ""), True
        digest, text = outcomes.digest_of(outcome), outcomes.written(outcome)
        state = FAILED if failed else DONE
        return EndedJob(job, state, events, calls, seconds, digest, text)

    def _end_by_the_clock(self) -> None:
        seconds = self.store.plan.seconds
        if seconds is not None and self.store.spent(self.number)[1] >= seconds:
            self.store.cut_now(self.number)

    def _beat(self) -> None:
        if self.clock.now() - self._beat_at >= BEAT_SECONDS:
            self._beat_at = self.clock.now()
            self.store.beat(self.runner, self.crew.number, self._beat_at)

    def _is_complete(self) -> bool:
        counts = self.store.counts(self.number)
        # Shards are not asked for: those from the cut on stay open for ever.
        left = sum(counts.get((kind, state), 0) for kind in _BESIDE for state in _LEFT)
        return self.totals.is_over and not left

    def _share(self) -> float | None:
        """The share of the search that is done, 0 to 1; None where no limit is known in advance."""
        plan = self.store.plan
        shares = []
        if plan.seconds is not None:
            shares.append(self.store.spent(self.number)[1] / plan.seconds)
        if plan.events is not None:
            shares.append(self.store.spent(self.number)[0] / plan.events)
        if plan.has_seeds:
            shares.append(self.totals.next / max(1, self.totals.cut))
        # Whichever limit is reached first ends it.
        return min(1.0, max(shares)) if shares else None

    def _progress(self) -> str:
        outcome = self.totals.outcome
        traces = sum(lane.traces for lane in outcome.lanes)
        noting = self.totals.noting
        unlisted = sum(map(self.totals.is_unlisted, noting.noted))
        return (
            f"{self.totals.next:,} shards, {traces:,} traces; listed faults: {len(noting.listed)}, "
            f"unlisted breaks: {unlisted}"
        )


_LEFT = (OPEN, TAKEN)
_BESIDE = (PLANT, REPLAY, WRITE)
"""Kinds of jobs besides the search."""


def _without_outcome(kind: str, error: str) -> outcomes.Outcome:
    """The outcome of a job that failed."""
    if kind == PLANT:
        return PlantedOutcome([], error)
    return ReplayedOutcome(Reply(), error) if kind == REPLAY else Written(None, error)


def search_of(target: int, name: str, shard: Shard) -> ShardJob:
    """The job of a shard."""
    first, last = shard.seeds.start, shard.seeds.stop
    key = key_of(SEARCH, name, shard.lane, first, last)
    return ShardJob(key, target, SEARCH, shard.number, shard.lane, first, last)


def plants_in(number: int, target: Target, lanes: Sequence[str]) -> list[ShardJob]:
    """The jobs that plant the faults of a campaign in a target, lane by lane."""
    jobs: list[ShardJob] = []
    for name in lanes:
        last = 0
        for some in plantings(lane_called(name), target):
            first, last = last, last + len(some)
            key = key_of(PLANT, target.name, name, first, last)
            jobs.append(ShardJob(key, number, PLANT, len(jobs), name, first, last))
    return jobs


def replays_in(
    number: int, about: CampaignTarget, records: Sequence[FaultRecord]
) -> list[ShardJob]:
    """The jobs that run the traces of a register on a target: those of its lanes."""
    return [
        ShardJob(
            f"{REPLAY} {about.name} {one.identity}",
            number,
            REPLAY,
            which,
            one.lane,
            0,
            0,
            outcomes.written(one),
            turn=0,
        )
        for which, one in enumerate(asked(records, about.lanes, compared=about.compared))
    ]
