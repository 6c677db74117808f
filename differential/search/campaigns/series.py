"""What a store knows of time: when each shard was searched and by whom, what it met and broke, who
ran the campaign, and what had to be done again."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sql
from sqlalchemy import Connection, Row, func, select

from cacheproof.differential.search.campaigns.runners import Who
from cacheproof.differential.search.campaigns.schema import JOBS, LOSSES, RUNNERS
from cacheproof.differential.search.campaigns.store import DONE, SEARCH, TAKEN, CampaignStore
from cacheproof.differential.search.seeded import Work

_AT_ONCE = 200


class _Outcome(msgspec.Struct, frozen=True):
    """The part of a shard's outcome that is read; the traces that it keeps are passed over."""

    work: Work
    met: dict[str, int]
    kinds: list[tuple[str, str, int]]
    together: list[tuple[int, int, int]] | None = None
    listed: list[tuple[str, str, str, int]] | None = None


_OUTCOME = msgspec.json.Decoder(_Outcome)
Pair = tuple[str, str]


@dataclass(frozen=True)
class ShardSeen:
    """A shard that is done: its work, until when, in how many seconds, and by whom; None where
    another store did it. `together` has the traces that met both states of a pair; None where that
    was not counted. `broken` has traces by contract and kind, and `listed` those of them that are a
    listed fault, by its name as well; None where that was not counted."""

    target: int
    lane: str
    number: int
    first: int
    runner: str | None
    ended: float
    seconds: float
    traces: int
    events: int
    met: tuple[str, ...]
    together: dict[Pair, int] | None
    broken: dict[tuple[str, str], int]
    listed: dict[tuple[str, str, str], int] | None

    @property
    def begun(self) -> float:
        """When a worker began the shard, which may be long after it was claimed."""
        return self.ended - self.seconds


@dataclass(frozen=True)
class RunnerSeen:
    """A process that runs the campaign or has run it. Of one that died `ended` is when that was
    seen, and `beat` when it was last heard of. `jobs` has what it has done, by kind."""

    id: str
    who: Who
    workers: int
    begun: float
    beat: float
    ended: float | None
    under_way: int
    jobs: dict[str, int]


@dataclass(frozen=True)
class Loss:
    """A process that died (no job), or a job that it did not end and that is done again."""

    runner: str
    job: str | None
    at: float
    why: str


@dataclass(frozen=True)
class Series:
    """All of it, in the order of time. `losses` is None in a store that did not keep them yet."""

    shards: Sequence[ShardSeen]
    runners: Sequence[RunnerSeen]
    losses: Sequence[Loss] | None

    @property
    def is_merged(self) -> bool:
        """Whether shards came from another store, which do not say who did them."""
        return any(one.runner is None for one in self.shards)


class CampaignReader:
    """Reads a campaign again and again, each shard once."""

    def __init__(self) -> None:
        self._of: object = None
        self._shards: dict[str, ShardSeen] = {}

    def read(self, store: CampaignStore) -> Series:
        """What its store has now; anew where another campaign stands there."""
        if self._of != store.identity:
            self._of, self._shards = store.identity, {}
        with store.reading() as connection:
            rows = _new_shards(connection, self._shards.keys())
            runners = list(_runners(connection))
            losses = _losses(connection)
        with store.told():
            self._shards.update((row.key, _seen(row)) for row in rows)
        shards = sorted(self._shards.values(), key=lambda one: (one.ended, one.number))
        return Series(shards, runners, losses)


def _new_shards(connection: Connection, known: Collection[str]) -> list[Row[Any]]:
    done = (JOBS.c.kind == SEARCH) & (JOBS.c.state == DONE)
    new = [key for key in connection.scalars(select(JOBS.c.key).where(done)) if key not in known]
    rows: list[Row[Any]] = []
    for first in range(0, len(new), _AT_ONCE):
        some = JOBS.c.key.in_(new[first : first + _AT_ONCE])
        rows += connection.execute(select(JOBS).where(some)).all()
    return rows


def _seen(row: Row[Any]) -> ShardSeen:
    outcome = _OUTCOME.decode(row.outcome)
    names = sorted(outcome.met)
    together = outcome.together
    broken: Counter[tuple[str, str]] = Counter()
    for contract, kind, traces in outcome.kinds:
        broken[contract, kind] += traces
    return ShardSeen(
        row.target,
        row.lane,
        row.number,
        row.first,
        row.runner,
        row.ended,
        row.seconds,
        outcome.work.traces,
        outcome.work.events,
        tuple(names),
        None if together is None else {(names[i], names[j]): n for i, j, n in together},
        dict(broken),
        _listed(outcome),
    )


def _listed(outcome: _Outcome) -> dict[tuple[str, str, str], int] | None:
    if outcome.listed is None:
        return None
    return {(contract, kind, fault): traces for contract, kind, fault, traces in outcome.listed}


def _runners(connection: Connection) -> Iterator[RunnerSeen]:
    done: dict[str, dict[str, int]] = {}
    under_way: Counter[str] = Counter()
    query = select(JOBS.c.runner, JOBS.c.kind, JOBS.c.state, func.count()).group_by(
        JOBS.c.runner, JOBS.c.kind, JOBS.c.state
    )
    for runner, kind, state, count in connection.execute(query):
        if state == DONE and runner is not None:
            done.setdefault(runner, {})[kind] = count
        if state == TAKEN and runner is not None:
            under_way[runner] += count
    for row in connection.execute(select(RUNNERS).order_by(RUNNERS.c.begun)):
        who = Who(row.host, row.place, row.pid, row.started)
        times = row.begun, row.beat, row.ended
        yield RunnerSeen(row.id, who, row.workers, *times, under_way[row.id], done.get(row.id, {}))


def _losses(connection: Connection) -> list[Loss] | None:
    if not sql.inspect(connection).has_table(LOSSES.name):
        return None
    rows = connection.execute(select(LOSSES).order_by(LOSSES.c.id)).all()
    return [Loss(row.runner, row.job, row.at, row.why) for row in rows]
