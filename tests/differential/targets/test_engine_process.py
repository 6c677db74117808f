"""Engines of traces for connectors are forks of a process that is there for nothing else."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host import connectors
from cacheproof.differential.targets.host.connectors.engine_process import Asked, EngineProcess
from cacheproof.differential.targets.host.connectors.store import FolderStore
from cacheproof.differential.targets.host.protocol import Event, HostError
from cacheproof.differential.targets.host_server import FORKS
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import resolve

NEWEST = "vllm@0.33.0"
LANE = "connectors on a disk"
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SECONDS = 10.0

pytestmark = pytest.mark.skipif(not FORKS, reason="nothing is forked on this system")


def no_kit(*asked: object) -> connectors.engine.Kit:
    """Instead of a connector: what an engine was asked to be made of, as an error."""
    raise ValueError(f"{os.getppid()} {asked[2]} {asked[4]}")


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    config: Event = {"models": [{"name": "m"}], "items": []}
    return Asked(config, 0, 7, FolderStore(tmp_path), tmp_path, "a fault")


def parent_of(engine: EngineProcess) -> int:
    kind, text = engine.ask("start")["raises"]
    parent, *rest = text.split(" ", 2)
    assert (kind, rest) == ("ValueError", ["7", "a fault"])
    return int(parent)


def test_all_engines_are_forks_of_one_process_that_is_not_the_host(asked: Asked) -> None:
    first, second = (EngineProcess(no_kit, asked) for _ in range(2))
    assert first.pid != second.pid
    assert parent_of(first) == parent_of(second) != os.getpid()
    for engine in (first, second):
        engine.kill()
        assert not Path(f"/proc/{engine.pid}").exists()


def test_engines_without_what_forks_them_are_an_error_of_the_host(asked: Asked) -> None:
    def kit_of_its_own(*asked: object) -> connectors.engine.Kit:
        return no_kit(*asked)

    engine = EngineProcess(kit_of_its_own, asked)
    os.kill(parent_of(engine), signal.SIGKILL)
    with pytest.raises(HostError, match="has ended"):
        EngineProcess(kit_of_its_own, asked)


@pytest.fixture
def target() -> Iterator[HostTarget]:
    with closing(resolve(NEWEST, report=print)) as made:
        assert isinstance(made, HostTarget)
        yield made


def of_group(group: int) -> set[int]:
    """Processes of a group that have not ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" ")
        except OSError:
            continue
        state, _, its_group, *_ = rest.rpartition(")")[2].split()
        if int(its_group) == group and state != "Z":
            found.add(int(pid))
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, None])
def test_with_a_host_ends_what_forks_its_engines(
    target: HostTarget, how: signal.Signals | None
) -> None:
    target.run([LANES[LANE].trace(0, "0.33.0")])
    assert target._process is not None
    host = target._process.pid
    assert len(of_group(host)) == 2
    if how is None:
        target.close()
    else:
        os.kill(host, how)
    until = time.monotonic() + SECONDS
    while of_group(host) and time.monotonic() < until:
        time.sleep(0.05)
    assert not of_group(host)


def huge_kib(pid: int) -> int:
    """KiB of a process that lie in huge pages."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))


@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(),
    reason="this system has no huge pages",
)
def test_what_forks_much_lies_in_huge_pages() -> None:
    seen = []
    for forks_much in (False, True):
        with closing(resolve(NEWEST, report=print).another()) as target:
            assert isinstance(target, HostTarget)
            target.prepare(forks_much=forks_much)
            assert target.hello
            assert target._process is not None
            seen.append(huge_kib(target._process.pid))
    assert seen[1] > seen[0] + 50_000
