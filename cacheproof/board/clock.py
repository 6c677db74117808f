"""The time of a campaign: seconds in which somebody ran it, pauses left out."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from cacheproof.differential.search.campaigns.series import RunnerSeen, Series

PAUSE_SECONDS = 60.0
"""A gap is a pause from this on."""

BINS_MAX = 120
BIN_SECONDS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)

Interval = tuple[float, float]


@dataclass(frozen=True)
class CampaignClock:
    """`busy` are the intervals in which somebody ran it, in seconds since 1970, in order and
    apart."""

    busy: tuple[Interval, ...]

    @classmethod
    def of(cls, series: Series, now: float) -> "CampaignClock":
        """The clock of a series, by its processes and shards. Processes of a store that was merged
        in have left their shards alone."""
        spans = [(one.begun, one.ended) for one in series.shards]
        spans += [(one.begun, last_heard(one, now)) for one in series.runners]
        return cls(tuple(_joined(spans)))

    @property
    def begun(self) -> float | None:
        """When it began, in seconds since 1970."""
        return self.busy[0][0] if self.busy else None

    @property
    def length(self) -> float:
        """How long somebody ran it, in seconds."""
        return sum(end - start for start, end in self.busy)

    @property
    def bin_seconds(self) -> float:
        """The width of bins that cut all that time into not too many."""
        fits = (one for one in BIN_SECONDS if self.length / one <= BINS_MAX)
        return float(next(fits, self.length / BINS_MAX))

    def at(self, moment: float) -> float:
        """The seconds until then in which somebody ran it."""
        which = bisect_right(self.busy, (moment, float("inf"))) - 1
        before = sum(end - start for start, end in self.busy[:which])
        if which < 0:
            return 0.0
        start, end = self.busy[which]
        return before + min(moment, end) - start

    @property
    def pauses(self) -> list[tuple[float, float]]:
        """Where each pause is left out, and how many seconds it had."""
        pairs = zip(self.busy, self.busy[1:], strict=False)
        return [(self.at(end), start - end) for (_, end), (start, _) in pairs]


def last_heard(runner: RunnerSeen, now: float) -> float:
    """When a process was last known to live: of one that died long before that was seen, its last
    beat."""
    if runner.ended is not None and runner.ended - runner.beat < PAUSE_SECONDS:
        return runner.ended
    return max(runner.begun, min(runner.beat, now))


def _joined(spans: Iterable[Interval]) -> Iterable[Interval]:
    """Spans that follow each other within less than a pause are one."""
    last: Interval | None = None
    for start, end in sorted(spans):
        if last is not None and start - last[1] < PAUSE_SECONDS:
            last = last[0], max(last[1], end)
            continue
        if last is not None:
            yield last
        last = start, end
    if last is not None:
        yield last
