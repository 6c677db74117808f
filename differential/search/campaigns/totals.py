"""What the shards of a target amount to, in the order of their numbers: whoever ran them, and
however often they were begun, it is the same."""

from collections.abc import Iterator, Sequence

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.finding import DIFFERENCE, LOCKSTEP, MODEL_DIFFERENCE
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.campaigns import outcomes
from cacheproof.differential.search.campaigns.outcomes import (
    ReplayedOutcome,
    SearchedShard,
    ToWrite,
)
from cacheproof.differential.search.campaigns.plan_file import FIRST_UNLISTED, CampaignPlan
from cacheproof.differential.search.campaigns.shards import Cutting
from cacheproof.differential.search.campaigns.store import (
    DONE,
    SEARCH,
    WRITE,
    CampaignStore,
    CampaignTarget,
    EndedJob,
    ShardJob,
)
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.noting import Noted, Noting
from cacheproof.differential.search.seeded import SearchOutcome
from cacheproof.spec.registry import by_id

KEPT_PER_BREAK = 3
TAKEN_IN_AT_ONCE = 50
"""Most shards that are read from a store at once."""
_HARMLESS = ("efficiency", MODEL_DIFFERENCE)


class Totals:
    """The campaign that the register's traces below number `replayed`, and then shards below number
    `next`, amount to; the `seeds` of each lane in as few ranges as can be; and the breaks that are
    to be written down. `replays` is the number of the register's traces; shards from number `cut`
    on do not count. Nothing is kept of a shard itself: there may be millions."""

    def __init__(
        self, plan: CampaignPlan, about: CampaignTarget, known: Sequence[KnownFault], replays: int
    ) -> None:
        self.replayed = 0
        self.next = 0
        self.seeds: dict[str, list[range]] = {}
        self.cutting = Cutting(plan, about.lanes)
        self.cut = self.cutting.total
        self.noting = Noting(known, shrinks_listed=plan.shrink_listed)
        self.outcome = self._outcome(about, about.lanes)
        self._plan = plan
        self._about = about
        self._replays = replays
        self._events = 0

    @property
    def is_over(self) -> bool:
        """Whether all that counts has been taken in."""
        return self.has_replayed and self.next >= self.cut

    @property
    def has_replayed(self) -> bool:
        """Whether all traces of the register have been taken in."""
        return self.replayed >= self._replays

    def cut_at(self, number: int | None) -> None:
        """End before that shard; None changes nothing."""
        if number is not None:
            self.cut = min(self.cut, number)

    def replay(self, some: Sequence[EndedJob]) -> list[Noted]:
        """Take in traces of the register in order, until one is missing. They end no search.

        Returns:
            The breaks that are to be written down because of them.
        """
        news: list[Noted] = []
        for ended in some:
            if ended.job.number != self.replayed:
                break
            self.replayed += 1
            part = self._outcome(self._about, [ended.job.lane])
            outcomes.read(ReplayedOutcome, ended.outcome).put_into(part)
            news += self._merge(part)
        return news

    def take(self, some: Sequence[EndedJob]) -> list[Noted]:
        """Take in shards in order, once the register's traces are in, until one is missing or the
        rest do not count. Of one that failed its errors alone count.

        Returns:
            The breaks that are to be written down because of them.
        """
        news: list[Noted] = []
        for ended in some:
            if not self.has_replayed or self.is_over or ended.job.number != self.next:
                break
            self.next += 1
            self._add_seeds(ended.job)
            news += self._take(ended)
        return news

    def take_from(self, store: CampaignStore, target: int) -> Iterator[list[Noted]]:
        """Take in a target's shards that have ended in a store, a few at once: otherwise all that
        wait for a slow one would be read each time, and a resumed campaign would have all of its
        shards in memory. Yields the breaks to be written down because of each few."""
        while some := store.ended(target, SEARCH, self.next, TAKEN_IN_AT_ONCE):
            before = self.next
            yield self.take(some)
            if self.next - before < len(some):
                return

    def _take(self, ended: EndedJob) -> list[Noted]:
        outcome: SearchedShard = outcomes.read(SearchedShard, ended.outcome)
        if ended.state != DONE:
            self.outcome.harness_errors += outcome.errors
            return []
        part = self._outcome(self._about, [ended.job.lane])
        outcome.put_into(part)
        noted = self._merge(part)
        self.outcome.seconds += ended.seconds
        self._events += ended.events
        enough = self._plan.events is not None and self._events >= self._plan.events
        if enough or (self._plan.until == FIRST_UNLISTED and any(map(self.is_unlisted, noted))):
            self.cut = self.next
        return noted

    def _add_seeds(self, job: ShardJob) -> None:
        """The shards of a lane come in the order of the plan's ranges, which may be any."""
        ranges = self.seeds.setdefault(job.lane, [])
        first, last = job.first, job.last
        before = next((one for one in ranges if one.stop == first), range(first, first))
        after = next((one for one in ranges if one.start == last), range(last, last))
        ranges[:] = [one for one in ranges if one not in (before, after)]
        ranges.append(range(before.start, after.stop))

    def _merge(self, part: SearchOutcome) -> list[Noted]:
        return self.noting.merge(self.outcome, part, 0.0, KEPT_PER_BREAK)

    def is_unlisted(self, noted: Noted) -> bool:
        """Whether a break is no listed fault, and of more harm than efficiency."""
        if noted.listed is not None:
            return False
        contract = noted.broken.contract
        if contract != LOCKSTEP:
            return by_id(contract).harm not in _HARMLESS
        return (MODEL_DIFFERENCE if self._about.has_own_text else DIFFERENCE) not in _HARMLESS

    @staticmethod
    def _outcome(about: CampaignTarget, names: Sequence[str]) -> SearchOutcome:
        """A search of these lanes of which nothing was run yet."""
        if strange := [name for name in names if name not in LANES]:
            raise InputError(
                f"{about.name}: the campaign has a lane {strange[0]!r}, which this cacheproof has "
                "not; use the cacheproof that made it"
            )
        lanes = [LANES[name] for name in names]
        return SearchOutcome.begun(about.name, about.release, lanes, compared=about.compared)


def to_write(target: int, about: CampaignTarget, noted: Noted) -> ShardJob:
    """The job that writes a break down."""
    what = ToWrite(noted.broken, noted.batches, noted.times)
    key = f"{WRITE} {outcomes.digest_of((about.name, what))}"
    payload = outcomes.written(what)
    return ShardJob(key, target, WRITE, 0, noted.broken.lane, 0, 0, payload, turn=0)
