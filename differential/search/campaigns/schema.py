"""The tables of a store; how SQLite and PostgreSQL are reached."""

from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sql
from sqlalchemy import Column, Engine, Float, Integer, MetaData, Table, Text, event

from cacheproof.differential.errors import InputError

SCHEMA = 1
FILE = "campaign.sqlite"
LOCK_SECONDS = 60
"""Seconds that SQLite waits for another process that writes."""
EXPECTED = "expected a folder or postgresql://USER@HOST/DATABASE"
_POSTGRESQL = ("postgresql", "postgres")

METADATA = MetaData()
CAMPAIGN = Table(
    "campaign",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("schema", Integer, nullable=False),
    Column("plan", Text, nullable=False),
    Column("known", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("begun", Float, nullable=False),
)
TARGETS = Table(
    "targets",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("about", Text, nullable=False),
    Column("cut", Integer),
)
RUNNERS = Table(
    "runners",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("place", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Text, nullable=False),
    Column("workers", Integer, nullable=False),
    Column("begun", Float, nullable=False),
    Column("beat", Float, nullable=False),
    Column("ended", Float),
)
JOBS = Table(
    "jobs",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("target", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("lane", Text, nullable=False),
    Column("first", Integer, nullable=False),
    Column("last", Integer, nullable=False),
    Column("payload", Text),
    Column("state", Text, nullable=False),
    Column("runner", Text),
    Column("begun", Float),
    Column("ended", Float),
    Column("events", Integer, nullable=False, default=0),
    Column("calls", Integer, nullable=False, default=0),
    Column("seconds", Float, nullable=False, default=0.0),
    Column("digest", Text),
    Column("outcome", Text),
    sql.Index("jobs_by_number", "target", "kind", "number"),
    sql.Index("jobs_by_state", "target", "state", "turn", "number"),
)
LOSSES = Table(
    "losses",  # a process that died, then without a job; a job that is to be done again, and why
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("runner", Text, nullable=False),
    Column("job", Text),
    Column("at", Float, nullable=False),
    Column("why", Text, nullable=False),
)
"""Older stores lack this table. It depends on time, and no report has it."""


def engine_for(where: str, *, reads_only: bool = False) -> Engine:
    """The engine that reaches the database of a store: in a folder, or at a URL. With `reads_only`
    the database itself refuses every change.

    Raises:
        InputError: a URL of another kind of database.
    """
    if "://" not in where:
        return _sqlite(Path(where) / FILE, reads_only)
    try:
        url = sql.make_url(where)
    except (sql.exc.ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in _POSTGRESQL or not url.database:
        scheme = where.partition("://")[0]
        raise InputError(f"--store {scheme}://...: no database that is known here; {EXPECTED}")
    options = {"options": "-c default_transaction_read_only=on"} if reads_only else {}
    return sql.create_engine(url.set(drivername="postgresql+psycopg"), connect_args=options)


def _sqlite(file: Path, reads_only: bool) -> Engine:
    place, query = str(file), {}
    if reads_only:
        place, query = f"file:{quote(str(file.absolute()))}", {"mode": "ro", "uri": "true"}
    engine = sql.create_engine(
        sql.URL.create("sqlite", database=place, query=query),
        connect_args={"timeout": LOCK_SECONDS},
    )
    event.listen(engine, "connect", _let_us_begin)
    event.listen(engine, "begin", _begin_reading if reads_only else _begin_writing)
    return engine


def shown(where: str) -> str:
    """The place as it may be printed: without a password."""
    if "://" not in where:
        return where
    return sql.make_url(where).render_as_string(hide_password=True)


def _let_us_begin(connection: object, _: object) -> None:
    """Keep sqlite3 from beginning transactions late by itself: two could then read before either
    writes."""
    connection.isolation_level = None  # type: ignore[attr-defined]


def _begin_reading(connection: sql.Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_writing(connection: sql.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
