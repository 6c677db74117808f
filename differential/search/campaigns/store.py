"""A campaign in a database: its plan, its jobs with who runs them, and what they came to.

A job is claimed in a transaction. Transactions that write come one after the other: SQLite's begin
as writers, PostgreSQL's lock the row of the campaign first.
"""

import errno
import os
import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sql
from sqlalchemy import Connection, Row, Select, func, select
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from cacheproof.differential.errors import InputError, SetupError
from cacheproof.differential.search.campaigns import plan_file
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.runners import Who, is_dead
from cacheproof.differential.search.campaigns.schema import (
    CAMPAIGN,
    EXPECTED,
    FILE,
    JOBS,
    LOSSES,
    METADATA,
    RUNNERS,
    SCHEMA,
    TARGETS,
    engine_for,
    shown,
)

OPEN, TAKEN, DONE, FAILED = "open", "taken", "done", "failed"
SEARCH, PLANT, WRITE, REPLAY = "search", "plant", "write", "replay"
ENDED = (DONE, FAILED)
DIED, LEFT = "died", "left"
"""Why a process lost its jobs; a job that is done again because it failed is lost as FAILED."""


class MadeBy(msgspec.Struct, frozen=True):
    """What made the outcomes of a store: cacheproof's version, and a digest of the text of its
    contracts, reference and harness."""

    cacheproof: str
    code: str


class CampaignTarget(msgspec.Struct, frozen=True):
    """A target of a campaign: its release and the digest of its `text`, empty where it has none;
    whether it has a text of its own, and whether the reference runs beside; the lanes."""

    name: str
    release: str | None
    text: str
    has_own_text: bool
    compared: bool
    lanes: tuple[str, ...]


class Away(SetupError):
    """The server of a database is away. It may have done what it was asked."""


@dataclass(frozen=True)
class ShardJob:
    """A job: seeds of a lane to be searched, or some of its canaries to be planted, from `first` to
    `last`, without the last; or a `payload`, a break to be written down or a record whose trace is
    to be run again. Jobs of `turn` 0 come before those of 1."""

    key: str
    target: int
    kind: str
    number: int
    lane: str
    first: int
    last: int
    payload: str | None = None
    turn: int = 1


@dataclass(frozen=True)
class EndedJob:
    """A job that has ended, and its outcome; `at` is in seconds since 1970."""

    job: ShardJob
    state: str
    events: int
    calls: int
    seconds: float
    digest: str
    outcome: str
    at: float = 0.0


@dataclass(frozen=True)
class Beating:
    """A process that runs the campaign and has not ended."""

    who: Who
    workers: int
    beat: float
    jobs: int

    def is_dead(self, now: float) -> bool:
        """Whether the process has ended without having left."""
        return is_dead(self.who, self.beat, now)


def key_of(kind: str, target: str, lane: str, first: int, last: int) -> str:
    """Key of a job by its seeds or canaries, identical in every store."""
    return f"{kind} {target} {lane} {first}:{last}"


class CampaignStore:
    """The database of one campaign. To be closed. With `reads_only` nothing can be changed in it.

    Raises:
        InputError: there is no campaign at that place, or one of another cacheproof.
        SetupError: from every method, where the database does not do what it should: `Away` where
            it is a server that may come back.
    """

    def __init__(self, where: str, *, reads_only: bool = False) -> None:
        self.where = shown(where)
        # Looked at first: SQLite would make the file.
        if "://" not in where and not (Path(where) / FILE).is_file():
            raise self._nothing()
        self._engine = engine_for(where, reads_only=reads_only)
        with self.told(), self._engine.begin() as connection:
            if not sql.inspect(connection).has_table(CAMPAIGN.name):
                raise self._nothing()
            row = connection.execute(select(CAMPAIGN)).one_or_none()
            if row is None:
                raise self._nothing()
            if row.schema != SCHEMA:
                raise InputError(
                    f"{self.where}: schema {row.schema}; this cacheproof reads {SCHEMA}: use the "
                    "cacheproof that made it"
                )
            self.plan: CampaignPlan = plan_file.restored(row.plan)
            self.known: str = row.known
            self.made_by = msgspec.json.decode(row.made_by, type=MadeBy)
            self.begun: float = row.begun
            rows = connection.execute(select(TARGETS).order_by(TARGETS.c.number))
            self.targets = [msgspec.json.decode(one.about, type=CampaignTarget) for one in rows]

    @classmethod
    def require_free(cls, where: str) -> None:
        """Require a place where a campaign can begin; it is left as it is.

        Raises:
            InputError: a campaign is there already, or the place is none.
            SetupError: the database does not do what it should.
        """
        if "://" not in where and not (Path(where) / FILE).exists():
            _require_folder(where)
            return
        engine = engine_for(where, reads_only=True)
        try:
            with _told(shown(where)), engine.begin() as connection:
                if sql.inspect(connection).has_table(CAMPAIGN.name):
                    _require_none(connection, where)
        finally:
            engine.dispose()

    @classmethod
    def create(
        cls,
        where: str,
        plan: CampaignPlan,
        known: str,
        made_by: MadeBy,
        targets: Sequence[CampaignTarget],
        begun: float,
        first: Sequence[ShardJob] = (),
    ) -> "CampaignStore":
        """Make the store of a campaign; `known` is the text of the listed faults, `first` are the
        jobs that are part of it from the start.

        Raises:
            InputError: a campaign is there already, or the place is none.
        """
        if "://" not in where:
            try:
                Path(where).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _unmakable(where, error.strerror) from None
        engine = engine_for(where)
        try:
            # One transaction: whoever finds the campaign finds its targets and first jobs.
            with _told(shown(where)), engine.begin() as connection:
                METADATA.create_all(connection)
                _require_none(connection, where)
                values = {
                    "id": 1,
                    "schema": SCHEMA,
                    "plan": plan_file.written(plan),
                    "known": known,
                    "made_by": msgspec.json.encode(made_by).decode(),
                    "begun": begun,
                }
                connection.execute(CAMPAIGN.insert(), values)
                for number, about in enumerate(targets):
                    text = msgspec.json.encode(about).decode()
                    row = {"number": number, "name": about.name, "about": text}
                    connection.execute(TARGETS.insert(), row)
                if first:
                    connection.execute(JOBS.insert(), _open(first))
        finally:
            engine.dispose()
        return cls(where)

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for stores of one campaign whose jobs have the same numbers; a merge may change
        these."""
        return self.begun, self.made_by, self.plan

    def close(self) -> None:
        """Give back its connections."""
        self._engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is the only one that writes."""
        with self.told(), self._engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(select(CAMPAIGN.c.id).with_for_update())
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that changes nothing."""
        with self.told(), self._engine.begin() as connection:
            yield connection

    def told(self) -> AbstractContextManager[None]:
        """A context that raises in one line what a database refuses, or cannot be read of it."""
        return _told(self.where)

    def _nothing(self) -> InputError:
        return InputError(f"--store {self.where}: no campaign; expected one that start has begun")

    # who runs it

    def enlist(self, who: Who, workers: int, now: float) -> str:
        """Add a process that runs the campaign; returns its name in the store."""
        name = secrets.token_hex(8)
        row = {
            "id": name,
            "place": who.place,
            "host": who.host,
            "pid": who.pid,
            "started": who.started,
            "workers": workers,
            "begun": now,
            "beat": now,
        }
        with self.writing() as connection:
            _bury(connection, select(RUNNERS).where(RUNNERS.c.ended.is_(None)), now)
            connection.execute(RUNNERS.insert(), row)
        return name

    def beat(self, runner: str, workers: int, now: float) -> None:
        """Note that a process lives, also where others took it for dead, and how many jobs it does
        at once."""
        with self.writing() as connection:
            values = {"beat": now, "workers": workers, "ended": None}
            connection.execute(RUNNERS.update().where(RUNNERS.c.id == runner), values)

    def leave(self, runner: str, now: float) -> None:
        """Note that a process has ended its work; jobs that it has not ended are open again."""
        with self.writing() as connection:
            _end(connection, [runner], now, LEFT)

    def beating(self) -> list[Beating]:
        """The processes that run the campaign and have not left."""
        count = func.count(JOBS.c.key)
        with self.reading() as connection:
            rows = connection.execute(
                select(RUNNERS, count.label("jobs"))
                .outerjoin(JOBS, (JOBS.c.runner == RUNNERS.c.id) & (JOBS.c.state == TAKEN))
                .where(RUNNERS.c.ended.is_(None))
                .group_by(RUNNERS.c.id)
                .order_by(RUNNERS.c.begun)
            ).all()
        return [Beating(_who(row), row.workers, row.beat, row.jobs) for row in rows]

    # jobs

    def add(self, jobs: Sequence[ShardJob]) -> None:
        """Add the jobs whose keys are not in the store yet."""
        if not jobs:
            return
        with self.writing() as connection:
            keys = [job.key for job in jobs]
            there = set(connection.scalars(select(JOBS.c.key).where(JOBS.c.key.in_(keys))))
            new = _open([job for job in jobs if job.key not in there])
            if new:
                connection.execute(JOBS.insert(), new)

    def claim(
        self, runner: str, target: int, below: int | None, count: int, now: float
    ) -> list[ShardJob]:
        """Take up to `count` open jobs of a target, jobs of dead processes among them. Shards from
        number `below` on are not searched any more."""
        wanted = (JOBS.c.target == target) & (JOBS.c.state == OPEN)
        if below is not None:
            wanted &= (JOBS.c.kind != SEARCH) | (JOBS.c.number < below)
        with self.writing() as connection:
            # The claiming process lives, however old its beat; without jobs the dead do no harm.
            _bury(connection, _WITH_JOBS.where(RUNNERS.c.id != runner), now)
            rows = connection.execute(
                select(JOBS)
                .where(wanted)
                .order_by(JOBS.c.turn, JOBS.c.number, JOBS.c.kind, JOBS.c.key)
                .limit(count)
            ).all()
            keys = [row.key for row in rows]
            if keys:
                taken = {"state": TAKEN, "runner": runner, "begun": now}
                connection.execute(JOBS.update().where(JOBS.c.key.in_(keys)), taken)
        return [_job(row) for row in rows]

    def finish(self, runner: str, some: Sequence[EndedJob], now: float) -> None:
        """Keep the outcomes of jobs, but of none that another process has taken over."""
        mine = (JOBS.c.key == sql.bindparam("its_key")) & (JOBS.c.runner == runner) & _IS_TAKEN
        rows = [
            {"its_key": one.job.key, "ended": now} | {name: getattr(one, name) for name in _CAME_TO}
            for one in some
        ]
        if rows:
            with self.writing() as connection:
                connection.execute(JOBS.update().where(mine), rows)

    def let_go(self, runner: str, but: Collection[str]) -> None:
        """Open the jobs that a process has taken, except those that it knows of."""
        mine = _IS_TAKEN & (JOBS.c.runner == runner)
        with self.writing() as connection:
            keys = connection.scalars(select(JOBS.c.key).where(mine)).all()
            unknown = [key for key in keys if key not in but]
            connection.execute(
                JOBS.update().where(mine, JOBS.c.key.in_(unknown)), {"state": OPEN, "runner": None}
            )

    def try_again(self, now: float) -> None:
        """Open all jobs that have failed."""
        with self.writing() as connection:
            # Before the update, which forgets whose they were.
            _lose(connection, JOBS.c.state == FAILED, now, FAILED)
            connection.execute(
                JOBS.update().where(JOBS.c.state == FAILED), {"state": OPEN, "runner": None}
            )

    def ended(
        self, target: int, kind: str, first: int = 0, count: int | None = None
    ) -> list[EndedJob]:
        """Jobs of a target that have ended, from number `first` on, in the order of their numbers;
        at most `count`."""
        with self.reading() as connection:
            rows = connection.execute(
                select(JOBS)
                .where(JOBS.c.target == target, JOBS.c.kind == kind, JOBS.c.state.in_(ENDED))
                .where(JOBS.c.number >= first)
                # The key as well: equal numbers come in one order whatever the database.
                .order_by(JOBS.c.number, JOBS.c.key)
                .limit(count)
            ).all()
        return [_ended(row) for row in rows]

    def jobs(self, kind: str) -> list[ShardJob]:
        """All jobs of a kind, by target and number."""
        with self.reading() as connection:
            rows = connection.execute(
                select(JOBS)
                .where(JOBS.c.kind == kind)
                .order_by(JOBS.c.target, JOBS.c.number, JOBS.c.key)
            ).all()
        return [_job(row) for row in rows]

    def counts(self, target: int) -> dict[tuple[str, str], int]:
        """Jobs of a target by kind and state."""
        with self.reading() as connection:
            rows = connection.execute(
                select(JOBS.c.kind, JOBS.c.state, func.count())
                .where(JOBS.c.target == target)
                .group_by(JOBS.c.kind, JOBS.c.state)
            ).all()
        return {(kind, state): count for kind, state, count in rows}

    def last_number(self, target: int, kind: str, states: Sequence[str] = ()) -> int:
        """The greatest number of a target's jobs of a kind, in one of these states; -1: none."""
        query = select(func.max(JOBS.c.number)).where(JOBS.c.target == target, JOBS.c.kind == kind)
        if states:
            query = query.where(JOBS.c.state.in_(states))
        with self.reading() as connection:
            found = connection.scalar(query)
        return -1 if found is None else int(found)

    def spent(self, target: int, since: float | None = None) -> tuple[int, float]:
        """Events and seconds of a target's shards that are done; since a time, or all."""
        query = select(func.sum(JOBS.c.events), func.sum(JOBS.c.seconds)).where(
            JOBS.c.target == target, JOBS.c.kind == SEARCH, JOBS.c.state == DONE
        )
        if since is not None:
            query = query.where(JOBS.c.ended >= since)
        with self.reading() as connection:
            events, seconds = connection.execute(query).one()
        return int(events or 0), float(seconds or 0.0)

    # where the search of a target ends by the clock

    def cut(self, target: int) -> int | None:
        """The shard from which on nothing is searched; None until a target's seconds are up."""
        with self.reading() as connection:
            found = connection.scalar(select(TARGETS.c.cut).where(TARGETS.c.number == target))
        return None if found is None else int(found)

    def cut_now(self, target: int) -> None:
        """End the search of a target, whose seconds are up, after the last shard that was taken."""
        begun = select(func.max(JOBS.c.number)).where(
            JOBS.c.target == target, JOBS.c.kind == SEARCH, JOBS.c.state != OPEN
        )
        # Set once: of several processes that see the seconds pass, the first says where it ends.
        this = (TARGETS.c.number == target) & TARGETS.c.cut.is_(None)
        with self.writing() as connection:
            last = connection.scalar(begun)
            connection.execute(
                TARGETS.update().where(this), {"cut": 0 if last is None else last + 1}
            )


_IS_TAKEN = JOBS.c.state == TAKEN
_WITH_JOBS = select(RUNNERS).where(RUNNERS.c.id.in_(select(JOBS.c.runner).where(_IS_TAKEN)))
_CAME_TO = ("state", "events", "calls", "seconds", "digest", "outcome")


def _require_folder(where: str) -> None:
    """Require a folder that can be written, or made. Raises InputError."""
    folder = Path(where)
    try:  # what is not there is made below the nearest parent that is
        here = next(one for one in (folder, *folder.absolute().parents) if one.exists())
        if not here.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(here, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unmakable(where, error.strerror) from None


def _unmakable(where: str, why: str | None) -> InputError:
    return InputError(f"--store {where}: cannot be made: {why}; {EXPECTED}")


def _require_none(connection: Connection, where: str) -> None:
    """Require that no campaign is there yet. Raises InputError."""
    if connection.execute(select(CAMPAIGN.c.id)).first() is not None:
        raise InputError(
            f"--store {shown(where)}: holds a campaign already; resume it, or give another place"
        )


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Raise in one line what a database refuses."""
    try:
        yield
    except SQLAlchemyError as error:
        words = str(getattr(error, "orig", None) or error).strip().splitlines() or ["no reason"]
        # Only a server comes back: to wait for a file would never end.
        is_away = isinstance(error, OperationalError | InterfaceError) and "://" in where
        kind = Away if is_away else SetupError
        raise kind(f"--store {where}: {words[0]}; expected a database that works") from None
    except msgspec.MsgspecError as error:
        raise InputError(
            f"--store {where}: {error}; expected what cacheproof wrote: begin another campaign"
        ) from None


def _bury(connection: Connection, some: Select[Any], now: float) -> None:
    """End those processes among `some` that have died."""
    rows = connection.execute(some).all()
    dead = [row.id for row in rows if is_dead(_who(row), row.beat, now)]
    if dead:
        died = [{"runner": one, "at": now, "why": DIED} for one in dead]
        connection.execute(LOSSES.insert(), died)
        _end(connection, dead, now, DIED)


def _end(connection: Connection, runners: Sequence[str], now: float, why: str) -> None:
    """End processes; jobs that they have not ended are open again."""
    connection.execute(RUNNERS.update().where(RUNNERS.c.id.in_(runners)), {"ended": now})
    taken = _IS_TAKEN & JOBS.c.runner.in_(runners)
    # Before the update, which forgets whose they were.
    _lose(connection, taken, now, why)
    connection.execute(JOBS.update().where(taken), {"state": OPEN, "runner": None})


def _open(jobs: Sequence[ShardJob]) -> list[dict[str, object]]:
    return [vars(job) | {"state": OPEN} for job in jobs]


def _lose(connection: Connection, some: sql.ColumnElement[bool], now: float, why: str) -> None:
    """Note which jobs are to be done again, and why."""
    rows = connection.execute(select(JOBS.c.key, JOBS.c.runner).where(some)).all()
    if rows:
        lost = [{"runner": row.runner, "job": row.key, "at": now, "why": why} for row in rows]
        connection.execute(LOSSES.insert(), lost)


def _who(row: Row[Any]) -> Who:
    return Who(row.host, row.place, row.pid, row.started)


def _job(row: Row[Any]) -> ShardJob:
    return ShardJob(
        row.key,
        row.target,
        row.kind,
        row.number,
        row.lane,
        row.first,
        row.last,
        row.payload,
        row.turn,
    )


def _ended(row: Row[Any]) -> EndedJob:
    came = {name: getattr(row, name) for name in _CAME_TO}
    return EndedJob(_job(row), **came, at=row.ended)
