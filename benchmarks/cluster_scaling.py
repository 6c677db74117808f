"""What a campaign's head, its store and Ray take of a job, and what follows for many cores.

    .venv/bin/python benchmarks/cluster_scaling.py overhead
    .venv/bin/python benchmarks/cluster_scaling.py memory [--over-ray]
    .venv/bin/python benchmarks/cluster_scaling.py speed PLAN.toml

`overhead` runs a campaign whose jobs cost nothing: each comes at once to what one real shard came
to. What is left is the head's own work and the store's. It then sends empty jobs over Ray. CPU time
is counted, which a busy machine changes little. `memory` runs such a campaign, with `--over-ray`
one whose outcomes go through two nodes, and prints what its head has of its own after each tenth
of the jobs: memory that no file backs, what of it the allocator keeps free, and Python objects that
its collector follows. `speed` runs a plan by 1 and 2 workers, and on Ray
clusters of 1 and 2 nodes of this machine.
"""

import argparse
import ctypes
import gc
import math
import os
import pickle
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from campaign_on_a_cluster import COMMAND, Database, cluster_of
from worker_memory import below

from cacheproof.campaign.run import SystemClock
from cacheproof.differential.lanes.all_lanes import lane_called
from cacheproof.differential.search import work
from cacheproof.differential.search.campaigns import outcomes
from cacheproof.differential.search.campaigns.outcomes import SearchedShard
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.runners import Who
from cacheproof.differential.search.campaigns.running import RunningTarget
from cacheproof.differential.search.campaigns.schema import JOBS, engine_for
from cacheproof.differential.search.campaigns.store import (
    SEARCH,
    CampaignStore,
    CampaignTarget,
    MadeBy,
)
from cacheproof.differential.search.work import SearchTask, SearchWorker
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.work import cluster as clusters
from cacheproof.work import workers

LANE = "encoder cache"
SHARD_SEEDS = 20
WIDTHS = (2, 64, 1024)
LOOKS = 10
CORES = (2, 16, 100, 1_000, 10_000)
SHARE = 0.1
"""How much of one core the head may take."""


@dataclass
class Costless:
    """Does each job at once: it comes to `outcome`."""

    number: int
    outcome: Any

    def submit(self, run: Callable[[Any], Any], task: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result((self.outcome, 0.0))
        return future


class OverRay:
    """Has each job done on the cluster that is joined: it comes to what is sent there."""

    def __init__(self, outcome: Any) -> None:
        self._crew = clusters.ClusterCrew(int)
        self._outcome = outcome

    @property
    def number(self) -> int:
        return self._crew.number

    def submit(self, run: Callable[[Any], Any], task: Any) -> "Future[Any]":
        return self._crew.submit(nothing, (self._outcome, 0.0))


@dataclass(frozen=True)
class Cost:
    """With so many workers: CPU seconds of a job in the head and in the server of the database, and
    jobs per second."""

    width: int
    head: float
    server: float
    per_second: float


def shard() -> tuple[SearchTask, Any, float]:
    """A real shard, what it comes to, and the CPU seconds that it takes."""
    job = SearchTask(lane_called(LANE), range(SHARD_SEEDS), 3)
    target = ReferenceTarget()
    began = time.process_time()
    outcome = job.run(SearchWorker.of(target, target.another(), []))
    return job, outcome, time.process_time() - began


def every_one(under_way: Collection["Future[Any]"]) -> Collection["Future[Any]"]:
    """All jobs end together, as many as there are workers at the least."""
    return list(under_way)


def head_cost(place: str, width: int, jobs: int, outcome: Any, server: "Server") -> Cost:
    """What a head of so many workers and its store take, with jobs that cost nothing."""
    with closing(store_of(place, jobs)) as store:
        runner = store.enlist(Who.here(), width, time.time())
        crew = Costless(width, outcome)
        running = RunningTarget(
            store, 0, ReferenceTarget(), [], runner, crew, every_one, SystemClock()
        )
        server_began, cpu, began = server.seconds(), time.process_time(), time.monotonic()
        running.run()
        took = time.monotonic() - began
        return Cost(
            width,
            (time.process_time() - cpu) / jobs,
            (server.seconds() - server_began) / jobs,
            jobs / took,
        )


def store_of(place: str, jobs: int) -> CampaignStore:
    """Of a campaign that has so many shards."""
    seeds = f"0:{jobs * SHARD_SEEDS}"
    plan = CampaignPlan(targets=("reference",), seeds=seeds, shard_seeds=SHARD_SEEDS)
    about = CampaignTarget("reference", None, "", False, False, (LANE,))
    return CampaignStore.create(place, plan, "", MadeBy("1", "code"), [about], 1.0)


def memory(jobs: int, over_ray: bool) -> Iterator[str]:
    """What the head of such a campaign has after each tenth of its jobs."""
    _, outcome, _ = shard()
    rows: list[str] = []

    def look(_: str) -> None:
        if running.totals.next * LOOKS >= jobs * len(rows):
            gc.collect()
            had = own_mib()
            ctypes.CDLL(None).malloc_trim(0)  # glibc's
            has = own_mib()
            objects = len(gc.get_objects())
            rows.append(f"| {running.totals.next:,} | {has:.1f} | {had - has:.1f} | {objects:,} |")

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        crew: Costless | OverRay = Costless(WIDTHS[0], outcome)
        done_among: Callable[[Any], Any] = every_one
        if over_ray:
            cluster = stack.enter_context(cluster_of(2))
            stack.enter_context(clusters.joined(cluster.address))
            crew, done_among = OverRay(outcome), workers.done_among
        store = stack.enter_context(closing(store_of(folder, jobs)))
        runner = store.enlist(Who.here(), crew.number, time.time())
        clock = SystemClock()
        target = ReferenceTarget()
        running = RunningTarget(store, 0, target, [], runner, crew, done_among, clock, look)
        running.run()
    yield "| jobs | own MiB | free MiB | objects |"
    yield "|--:|--:|--:|--:|"
    yield from rows


def own_mib() -> float:
    """What this process has that no file backs."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("Pss_Anon:"))
    return int(kib) / 1024


class Server:
    """The CPU time of a database's server: of all its processes, those that have ended included."""

    def __init__(self, folder: Path | None) -> None:
        self._first = None
        if folder is not None:
            self._first = int((folder / "data" / "postmaster.pid").read_text().split()[0])

    def seconds(self) -> float:
        if self._first is None:
            return 0.0
        ticks = sum(map(int, _times(self._first)))
        ticks += sum(int(word) for one in below(self._first)[1:] for word in _times(one)[:2])
        return ticks / os.sysconf("SC_CLK_TCK")


def _times(process: int) -> list[str]:
    """Its ticks as user and as system, and those of its children that have ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]
    except OSError:
        return []  # it has ended


def nothing(task: object) -> object:
    return task


def ray_cost(jobs: int, outcome: Any) -> tuple[float, float]:
    """CPU seconds of the head, with its threads, for a job over Ray, and jobs per second."""
    with cluster_of(2) as cluster, clusters.joined(cluster.address):
        crew = clusters.ClusterCrew(int)
        begun = [crew.submit(nothing, outcome) for _ in range(20)]
        for one in begun:
            one.result()
        cpu, began = time.process_time(), time.monotonic()
        for one in [crew.submit(nothing, outcome) for _ in range(jobs)]:
            one.result()
        return (time.process_time() - cpu) / jobs, jobs / (time.monotonic() - began)


def overhead(jobs: int, seed_seconds: float) -> Iterator[str]:
    """What was measured, then what follows."""
    job, outcome, seconds = shard()
    sent = len(pickle.dumps((work.work, job)))
    came, kept = len(pickle.dumps(outcome)), len(outcomes.written(SearchedShard.of(outcome)))
    yield f"bytes of a job: {sent:,} to a node, {came:,} back, {kept:,} in the store"
    yield f"CPU of a shard of {SHARD_SEEDS} seeds ({LANE}, reference): {seconds:.2f} s"
    yield ""
    yield "| store | workers | head, ms a job | server, ms a job | jobs/s |"
    yield "|---|--:|--:|--:|--:|"
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "pg").mkdir()
        database = Database(folder / "pg")
        try:
            for kind in ("SQLite", "PostgreSQL"):
                for width in WIDTHS:
                    is_file = kind == "SQLite"
                    place = str(folder / f"store-{width}") if is_file else database.another()
                    server = Server(None if is_file else folder / "pg")
                    cost = head_cost(place, width, jobs, outcome, server)
                    costs.append(cost)
                    cells = f"{cost.head * 1e3:.2f} | {cost.server * 1e3:.2f}"
                    yield f"| {kind} | {width:,} | {cells} | {cost.per_second:,.0f} |"
        finally:
            database.stop()
    ray, per_second = ray_cost(jobs, outcome)
    yield ""
    yield f"Ray, driver: {ray * 1e3:.2f} ms of CPU a job, {per_second:,.0f} jobs/s with 2 nodes"
    yield ""
    head = max(cost.head for cost in costs if cost.width == WIDTHS[-1]) + ray
    for seed in (seconds / SHARD_SEEDS, seed_seconds):
        yield f"a seed of {seed:.3f} s of CPU, {head * 1e3:.2f} ms of the head a job:"
        yield ""
        yield from model(head, seed)
        yield ""


def model(head: float, seed: float) -> Iterator[str]:
    """What follows for many cores: `head` CPU seconds a job, `seed` CPU seconds a seed."""
    yield "| cores | jobs/s at 20 seeds | head, cores | shard_seeds for a head below 10 % |"
    yield "|--:|--:|--:|--:|"
    for cores in CORES:
        rate = cores / (SHARD_SEEDS * seed)
        least = max(1, math.ceil(cores * head / (SHARE * seed) - 1e-9))
        yield f"| {cores:,} | {rate:,.1f} | {rate * head:.3f} | {least:,} |"


def speed(plan: Path) -> Iterator[str]:
    """Events per second of the search, from the first job that was begun to the last that ended."""
    yield "| on | events | seconds | events/s |"
    yield "|---|--:|--:|--:|"
    with tempfile.TemporaryDirectory() as folder:
        for number in (1, 2):
            yield timed(plan, Path(folder) / f"workers-{number}", "--workers", str(number))
        for number in (1, 2):
            with cluster_of(number) as cluster:
                yield timed(plan, Path(folder) / f"nodes-{number}", "--cluster", cluster.address)


def timed(plan: Path, store: Path, *place: str) -> str:
    words = "start", str(plan), "--store", str(store), *place
    subprocess.run([*COMMAND, *words], check=False, stdout=subprocess.DEVNULL)
    engine = engine_for(str(store))
    query = sql.select(
        sql.func.sum(JOBS.c.events), sql.func.max(JOBS.c.ended) - sql.func.min(JOBS.c.begun)
    ).where(JOBS.c.kind == SEARCH)
    with engine.begin() as connection:
        events, seconds = connection.execute(query).one()
    engine.dispose()
    return f"| {store.name} | {events:,} | {seconds:.0f} | {events / seconds:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    of_jobs = commands.add_parser("overhead")
    of_jobs.add_argument("--jobs", type=int, default=2000)
    of_jobs.add_argument("--seed-seconds", type=float, default=0.3, help="CPU of a slower target")
    of_memory = commands.add_parser("memory")
    of_memory.add_argument("--jobs", type=int, default=20_000)
    of_memory.add_argument("--over-ray", action="store_true")
    commands.add_parser("speed").add_argument("plan", type=Path)
    options = parser.parse_args()
    match options.what:
        case "overhead":
            lines = overhead(options.jobs, options.seed_seconds)
        case "memory":
            lines = memory(options.jobs, options.over_ray)
        case _:
            lines = speed(options.plan)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
