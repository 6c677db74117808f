"""Campaigns that run in this process, in stores of every kind, under a clock that tests move."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cacheproof.differential.findings.register import FaultRecord
from cacheproof.differential.search.campaigns import reporting
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.runners import Who
from cacheproof.differential.search.campaigns.running import RunningTarget, plants_in, replays_in
from cacheproof.differential.search.campaigns.store import CampaignStore, CampaignTarget, MadeBy
from cacheproof.differential.search.work import Job, SearchTask, SearchWorker
from cacheproof.differential.targets.host.child import end_with
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace

LANES = ("encoder-decoder", "encoder-decoder of several items")
ELSEWHERE = Who("elsewhere", "another host", 1, "1")
"""A process of which only its beats are known."""


class Faulty(ReferenceTarget):
    """The reference with a fault of its own, beside any that is planted."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return super().run(traces, fault or "leaks_a_slot")


class Killed(BaseException):
    """The process that runs a campaign ends here, and nothing of it goes on."""


@dataclass
class FakeClock:
    """Time that goes on when somebody waits."""

    time: float = 1_000_000.0

    def now(self) -> float:
        return self.time

    def wait(self) -> None:
        self.time += 60.0


@dataclass
class InlineCrew:
    """Does each job at once; is killed at the job of the number `killed_at`."""

    target: ReferenceTarget
    number: int = 1
    killed_at: int | None = None
    done: list[Job] = field(default_factory=list)

    def submit(self, run: Callable[[Any], Any], task: Job) -> "Future[Any]":
        if len(self.done) == self.killed_at:
            raise Killed
        self.done.append(task)
        future: Future[Any] = Future()
        future.set_result((task.run(SearchWorker.of(self.target, self.target.another(), [])), 0.0))
        return future

    @property
    def searched(self) -> list[tuple[str, Sequence[int]]]:
        return [(job.lane.name, job.seeds) for job in self.done if isinstance(job, SearchTask)]


def one_by_one(under_way: Collection["Future[Any]"]) -> Collection["Future[Any]"]:
    """The job that was begun last ends first."""
    return list(under_way)[-1:]


@dataclass
class Rig:
    """Makes stores of plans, runs them, and says what they come to."""

    place: Callable[[], str]
    target: ReferenceTarget = field(default_factory=Faulty)
    clock: FakeClock = field(default_factory=FakeClock)

    def store(
        self, plan: CampaignPlan, *, code: str = "code", records: Sequence[FaultRecord] = ()
    ) -> CampaignStore:
        about = CampaignTarget("reference", None, "", False, False, LANES)
        replays = replays_in(0, about, records)
        return CampaignStore.create(
            self.place(), plan, "", MadeBy("1", code), [about], 1.0, replays
        )

    def run(
        self,
        store: CampaignStore,
        *,
        who: Who = ELSEWHERE,
        workers: int = 1,
        killed_at: int | None = None,
        through: Any = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> InlineCrew:
        """Run a campaign; the store is asked `through` another, where that is given."""
        crew = InlineCrew(self.target, workers, killed_at)
        runner = store.enlist(who, workers, self.clock.now())
        store.add(plants_in(0, self.target, LANES))
        asked = through or store
        running = RunningTarget(
            asked, 0, self.target, [], runner, crew, one_by_one, self.clock, say=say
        )
        try:
            running.run()
        except Killed:
            return crew
        store.leave(runner, self.clock.now())
        return crew

    @staticmethod
    def document(store: CampaignStore) -> dict[str, Any]:
        targets = reporting.reported(store, [])
        document = reporting.document(store, targets, reporting.faults_in(store, targets))
        return {key: value for key, value in document.items() if key != "seen"}


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Callable[[], str]]:
    """Makes empty databases of a PostgreSQL server of the tests' own; returns their URLs."""
    programs = _programs()
    if programs is None:
        pytest.skip("no postgres on PATH or in /usr/lib/postgresql; install Debian's postgresql")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # a socket's path is short
    user = "postgres" if os.getuid() == 0 else None  # it refuses to run as root
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    initialise = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N"]
    subprocess.run(initialise, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    parent = os.getpid()
    server = subprocess.Popen(
        [programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-F"],
        user=user,
        cwd=folder,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: end_with(parent),
    )
    is_ready = [programs / "pg_isready", "-q", "-h", folder]
    while subprocess.run(is_ready, check=False).returncode:
        assert server.poll() is None, "the server does not start"
    names = iter(range(1_000_000))

    def database() -> str:
        name = f"campaign_{next(names)}"
        url = f"postgresql://postgres@/postgres?host={folder}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://postgres@/{name}?host={folder}"

    yield database
    server.kill()
    server.wait()
    shutil.rmtree(folder)


def _programs() -> Path | None:
    """The folder of the server's programs, the newest version's where it is not on PATH."""
    if (found := shutil.which("postgres")) is not None:
        return Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(versions, key=lambda path: float(path.parts[-3]), default=None)
    return None if newest is None else newest.parent


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Names a new place for a store, of each kind."""
    if request.param == "postgresql":
        database: Callable[[], str] = request.getfixturevalue("postgresql")
        return database
    numbers = iter(range(1000))
    return lambda: str(tmp_path / f"store-{next(numbers)}")


@pytest.fixture
def rig(place: Callable[[], str]) -> Rig:
    return Rig(place)
