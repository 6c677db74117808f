"""A campaign on a Ray cluster whose nodes, head and database are taken away again and again.

    .venv/bin/python benchmarks/campaign_on_a_cluster.py PLAN.toml --every 20
    .venv/bin/python benchmarks/campaign_on_a_cluster.py PLAN.toml --kills 5
    .venv/bin/python benchmarks/campaign_on_a_cluster.py PLAN.toml --stops 3

The cluster has `--nodes` nodes of one CPU each, as processes of this machine. Every `--every`
seconds one is killed and a new one added, until the campaign has ended. The campaign is killed
(SIGKILL) at `--kills` random moments and resumed each time. A PostgreSQL server of its own is
stopped `--stops` times for `--away` seconds. What it comes to is compared with the store of
`--against`, or of the same plan run undisturbed by `--workers 2`. Ends with exit code 1 where the
digests differ, a job that was done is lost, or less was disturbed than was asked for.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sql
from worker_memory import below, mib

from cacheproof.differential.search.campaigns.schema import FILE, JOBS, engine_for
from cacheproof.differential.search.campaigns.store import DONE
from cacheproof.work.cluster import quiet_ray

COMMAND = (sys.executable, "-m", "cacheproof", "campaign")
LOOK_SECONDS = 2.0
STORE_BYTES = 100 * 2**20
"""Of a node for objects: Ray would take a third of the memory for each."""
Rows = Mapping[str, str]
"""The digest of each job that is done, by its key."""


@dataclass
class Ran:
    """What was done to a campaign, and what was seen of it."""

    nodes_killed: int = 0
    heads_killed: int = 0
    stops: int = 0
    lost: int = 0
    seconds: float = 0.0
    head_mib: list[int] = field(default_factory=list)
    node_mib: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class Database:
    """A PostgreSQL server of one's own, which can be away."""

    def __init__(self, folder: Path) -> None:
        self._programs = _programs()
        self._folder = folder
        self._user = "postgres" if os.getuid() == 0 else None  # it refuses to run as root
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._do("initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-N")
        self.start()
        self.url = f"postgresql://postgres@/postgres?host={folder}"

    def start(self) -> None:
        settings = f"-k {self._folder} -c listen_addresses="
        log = self._folder / "log"
        self._do("pg_ctl", "-D", self._folder / "data", "-o", settings, "-l", log, "-w", "start")

    def stop(self) -> None:
        self._do("pg_ctl", "-D", self._folder / "data", "-m", "immediate", "-w", "stop")

    def another(self) -> str:
        """The URL of a new database."""
        name = f"store_{time.monotonic_ns()}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://postgres@/{name}?host={self._folder}"

    def _do(self, program: str, *arguments: object) -> None:
        words = [self._programs / program, *arguments]
        subprocess.run(
            list(map(str, words)),
            user=self._user,
            cwd=self._folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )


def _programs() -> Path:
    """The folder of the server's programs, of the newest version."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(versions, key=lambda path: float(path.parts[-3]), default=None)
    if newest is None:
        raise SystemExit("no /usr/lib/postgresql/*/bin/postgres; install Debian's postgresql")
    return newest.parent


@contextmanager
def cluster_of(nodes: int) -> Iterator[Any]:
    """A cluster of nodes of one CPU each; its head does no work."""
    quiet_ray()
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes):
            add_node(cluster)
        yield cluster
    finally:
        cluster.shutdown()


def add_node(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)


def done_in(store: str) -> Rows:
    """The jobs of a store that are done; none where there is no store yet."""
    if "://" not in store and not (Path(store) / FILE).exists():
        return {}
    engine = engine_for(store)
    try:
        with engine.begin() as connection:
            if not sql.inspect(connection).has_table(JOBS.name):
                return {}
            rows = connection.execute(
                sql.select(JOBS.c.key, JOBS.c.digest).where(JOBS.c.state == DONE)
            )
            return {row.key: row.digest for row in rows}
    finally:
        engine.dispose()


def lost(before: Rows, after: Rows) -> int:
    """How many jobs that were done are not, or came to something else."""
    return sum(after.get(key) != digest for key, digest in before.items())


def report_of(store: str) -> dict[str, Any]:
    """The report of a store as a document."""
    with tempfile.TemporaryDirectory() as folder:
        file, findings = Path(folder) / "report.json", Path(folder) / "findings"
        words = "report", "--store", store, "--findings", findings, "--json", file
        subprocess.run([*COMMAND, *map(str, words)], check=False, stdout=subprocess.DEVNULL)
        told: dict[str, Any] = json.loads(file.read_text())
        return told


class Campaign:
    """A campaign under way on a cluster, with all that is done to it."""

    def __init__(self, plan: Path, store: str, folder: Path, cluster: Any) -> None:
        self.store, self.folder, self.cluster = store, folder, cluster
        self.ran = Ran()
        self._nodes = list(cluster.worker_nodes)
        self._log = folder / "log"
        self._head = self._begun("start", str(plan))

    def _begun(self, *command: str) -> "subprocess.Popen[bytes]":
        words = "--store", self.store, "--cluster", self.cluster.address
        findings = "--findings", str(self.folder / "findings")
        with self._log.open("ab") as log:
            return subprocess.Popen([*COMMAND, *command, *words, *findings], stdout=log, stderr=log)

    @property
    def is_over(self) -> bool:
        return self._head.poll() is not None

    def look(self) -> None:
        """See how much memory the head takes, and the node that takes most."""
        self.ran.head_mib.append(mib(self._head.pid))
        raylets = [node.all_processes["raylet"][0].process.pid for node in self._nodes]
        self.ran.node_mib.append(max(sum(map(mib, below(one)[1:])) for one in raylets))

    def kill_a_node(self) -> None:
        """The oldest dies, and a new one comes."""
        self.cluster.remove_node(self._nodes.pop(0), allow_graceful=False)
        self._nodes.append(add_node(self.cluster))
        self.ran.nodes_killed += 1

    def kill_head(self) -> None:
        """SIGKILL, see what is left, and go on."""
        before = done_in(self.store)
        self._head.kill()
        self._head.wait()
        self.ran.lost += lost(before, done_in(self.store))
        self.ran.heads_killed += 1
        self._head = self._begun("resume")

    def stop(self, database: Database, seconds: float) -> None:
        """The server goes away, and comes back."""
        before = done_in(self.store)
        database.stop()
        time.sleep(seconds)
        database.start()
        self.ran.lost += lost(before, done_in(self.store))
        self.ran.stops += 1

    def end(self) -> Ran:
        """What it said of the server, and whether it ended as a campaign does."""
        lines = self._log.read_text().splitlines()
        self.ran.said = [line for line in lines if "waiting for it" in line or "is back" in line]
        if self._head.returncode not in (0, 1, 4):
            raise SystemExit("\n".join(lines[-5:]))
        return self.ran


def disturbed(options: argparse.Namespace, store: str, folder: Path, database: Any) -> Ran:
    """The campaign of a plan with all that is asked to be done to it."""
    chance = random.Random(options.seed)
    with cluster_of(options.nodes) as cluster:
        began = time.monotonic()
        one = Campaign(options.plan, store, folder, cluster)
        next_node = began + options.every if options.every else float("inf")
        next_blow = began + chance.uniform(*options.gap)
        while not one.is_over:
            time.sleep(LOOK_SECONDS)
            one.look()
            now = time.monotonic()
            if now >= next_node:
                one.kill_a_node()
                next_node = time.monotonic() + options.every
            if now < next_blow or not done_in(store):
                continue
            if one.ran.heads_killed < options.kills:
                one.kill_head()
            elif one.ran.stops < options.stops:
                one.stop(database, options.away)
            next_blow = time.monotonic() + chance.uniform(*options.gap)
        one.ran.seconds = time.monotonic() - began
    return one.end()


def undisturbed(plan: Path, folder: Path) -> str:
    """A store in which the plan was run by two workers of this machine."""
    store = str(folder / "undisturbed")
    words = "start", str(plan), "--store", store, "--workers", "2"
    subprocess.run([*COMMAND, *words], check=False, stdout=subprocess.DEVNULL)
    return store


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """In what two reports differ: their digest, what was covered, what was found."""
    found = [] if here["digest"] == there["digest"] else ["digest"]
    for name in ("lanes", "canaries", "findings"):
        both = [[one[name] for one in report["targets"]] for report in (here, there)]
        if both[0] != both[1]:
            found.append(name)
    return found


def told(mibs: list[int]) -> str:
    """Memory at the beginning, at the end and at most: of medians of tenths, in MiB."""
    some = [one for one in mibs if one]
    tenth = max(1, len(some) // 10)
    first, last = (sorted(part)[len(part) // 2] for part in (some[tenth:][:tenth], some[-tenth:]))
    return f"{first:,} / {last:,} / {max(some):,} MiB"


def table(ran: Ran, here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """What was measured, as a page has it."""
    lanes = [lane for target in here["targets"] for lane in target["lanes"]]
    findings = sum(len(target["findings"]) for target in here["targets"])
    same = differences(here, there)
    rows = [
        ("seconds", f"{ran.seconds:,.0f}"),
        ("traces, events", f"{sum(one['traces'] for one in lanes):,}, "
         f"{sum(one['events'] for one in lanes):,}"),
        ("rare states met", f"{sum(len(one['rare_states']) for one in lanes):,}"),
        ("findings", f"{findings:,}"),
        ("nodes killed and replaced", str(ran.nodes_killed)),
        ("the campaign killed and resumed", str(ran.heads_killed)),
        ("the database stopped and started", str(ran.stops)),
        ("lines that say so", str(len(ran.said))),
        ("jobs done before a kill or a stop and lost", str(ran.lost)),
        ("memory of the head: first, last, most", told(ran.head_mib)),
        ("memory of a node's workers: first, last, most", told(ran.node_mib)),
        ("digest", here["digest"][:12]),
        ("digest undisturbed", there["digest"][:12]),
        ("differs in", ", ".join(same) or "nothing"),
    ]  # fmt: skip
    return ["| what | measured |", "|---|--:|", *(f"| {what} | {cell} |" for what, cell in rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--every", type=float, default=0.0, help="seconds; 0: no node is killed")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--stops", type=int, default=0)
    parser.add_argument("--away", type=float, default=10.0)
    parser.add_argument(
        "--gap", type=float, nargs=2, default=(15.0, 45.0), help="between two kills or stops"
    )
    parser.add_argument("--against", help="a store in which the same plan was run")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))  # a socket's path is short
    folder.chmod(0o755)
    database = None
    if options.stops:
        (folder / "pg").mkdir()
        database = Database(folder / "pg")
    try:
        store = str(folder / "store") if database is None else database.another()
        ran = disturbed(options, store, folder, database)
        here = report_of(store)
        against = report_of(options.against or undisturbed(options.plan, folder))
    finally:
        if database is not None:
            database.stop()
    print("\n".join([*table(ran, here, against), *ran.said]))
    missing = ran.heads_killed < options.kills or ran.stops < options.stops
    missing |= bool(options.every) and not ran.nodes_killed
    if differences(here, against) or ran.lost or missing:
        raise SystemExit(f"differs, or was not disturbed as asked; its stores are in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
