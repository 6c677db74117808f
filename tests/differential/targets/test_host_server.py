"""Hosts that are forked from one import: as good as hosts that imported by themselves, and ended
with whoever has asked for them."""

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.targets import host_server
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import host_of, resolve
from cacheproof.reference.releases import MODELLED
from tests.differential.targets.processes import parent_of

RELEASE = "0.33.0"
TRACES = [LANES["scheduler"].trace(seed, RELEASE) for seed in range(5)]


@pytest.fixture
def target() -> Iterator[HostTarget]:
    name = f"vllm@{RELEASE}"
    with closing(host_of(releases.install(RELEASE, report=print), name)) as made:
        yield made


def pid_of(target: HostTarget) -> int:
    assert target.hello
    assert target._process is not None
    return target._process.pid


@pytest.mark.full
def test_a_forked_host_answers_as_one_that_imported_by_itself(
    target: HostTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = target.run(TRACES)
    assert parent_of(pid_of(target)) != os.getpid()
    target.close()
    monkeypatch.setattr(host_server, "FORKS", False)
    with closing(host_of(releases.install(RELEASE, report=print), "plain")) as plain:
        assert plain.run(TRACES) == forked
        assert parent_of(pid_of(plain)) == os.getpid()


@pytest.mark.full
def test_hosts_of_a_release_are_forks_of_one_and_another_of_a_second(target: HostTarget) -> None:
    with closing(pickle.loads(pickle.dumps(Reduced(target))).of(target)) as beside:
        server = parent_of(pid_of(target))
        assert parent_of(pid_of(beside)) == server
        assert pid_of(beside) != pid_of(target)
    with closing(target.another()) as elsewhere:
        assert parent_of(pid_of(elsewhere)) not in (server, os.getpid())
        assert elsewhere.run(TRACES) == target.run(TRACES)


class Reduced:
    """A target as another process has it: what it runs, and no process of its own."""

    def __init__(self, target: HostTarget) -> None:
        state = target.__getstate__()
        self.kept = {name: state[name] for name in ("_process", "_hello")}

    def of(self, target: HostTarget) -> HostTarget:
        twin = object.__new__(HostTarget)
        twin.__dict__.update(target.__getstate__() | self.kept)
        return twin


@pytest.mark.full
def test_what_a_host_changes_no_other_host_sees(target: HostTarget) -> None:
    healthy = target.run(TRACES)
    assert target.run(TRACES, "withholds_what_is_encoded") != healthy
    target.close()
    assert target.run(TRACES) == healthy


def test_a_forked_host_that_dies_is_named_and_the_next_batch_has_another(
    target: HostTarget,
) -> None:
    healthy = target.run(TRACES)
    first = pid_of(target)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(HarnessError, match=r"host of vllm@0.33.0 crashed \(exit status -9\)"):
        target.run(TRACES)
    assert target.run(TRACES) == healthy
    assert pid_of(target) != first


@pytest.mark.full
def test_without_its_server_a_target_starts_another(target: HostTarget) -> None:
    healthy = target.run(TRACES)
    server = parent_of(pid_of(target))
    assert server != os.getpid()
    target.close()
    os.kill(server, signal.SIGKILL)
    assert target.run(TRACES) == healthy
    assert parent_of(pid_of(target)) != server


@pytest.mark.full
def test_closing_ends_a_forked_host(target: HostTarget) -> None:
    host = os.pidfd_open(pid_of(target))
    target.close()
    assert select.select([host], [], [], 60)[0]
    os.close(host)


def test_servers_and_hosts_end_with_whoever_started_them() -> None:
    script = textwrap.dedent(
        f"""
        import os
        from cacheproof.differential.targets.resolve import resolve

        target = resolve("vllm@{RELEASE}", report=print)
        assert target.hello
        host = target._process.pid
        server = open(f"/proc/{{host}}/stat").read().rpartition(")")[2].split()[1]
        print(host, server, flush=True)
        input()
        os.kill(os.getpid(), 9)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    ending = [os.pidfd_open(int(one)) for one in parent.stdout.readline().split()]
    parent.communicate(b"go\n")
    assert parent.returncode == -9
    for process in ending:
        assert select.select([process], [], [], 60)[0]
        os.close(process)


def test_no_more_than_a_few_idle_servers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = host_server.HostServers()
    sleeper = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    started = [servers.of(sleeper, [str(number)], os.environ, 0) for number in range(5)]
    alive = [one for one in started if one and one.process and one.process.poll() is None]
    assert len(alive) == host_server.IDLE_SERVERS + 1
    assert alive[-1] is started[-1]
    for server in alive:
        server.close()


@pytest.mark.full
def test_a_host_is_started_anew_where_its_server_has_made_room(target: HostTarget) -> None:
    answers = target.run(TRACES[:1])
    target.close()
    assert target._server is not None
    gone = target._server
    gone.close()
    assert not Path(gone.scratch).exists()
    assert target.run(TRACES[:1]) == answers
    assert target._server is not gone


SLEEPS = [sys.executable, "-c", "import sys; sys.stdin.read()"]
ENDS = [sys.executable, "-c", ""]


def begun(command: list[str], seconds: float, tmp_path: Path) -> host_server.ForkedHost | None:
    """What becomes of a host that a server of that command is asked for."""
    server = host_server.HostServer.start(command, [], os.environ)
    with closing(server), (tmp_path / "log").open("wb") as log:
        return server.begin(log, str(tmp_path), 1 << 16, seconds)


def test_a_server_that_still_imports_is_not_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        begun(SLEEPS, 0, tmp_path)
    assert begun(ENDS, 60, tmp_path) is None


WAITS = [
    sys.executable,
    "-c",
    "import os, socket, sys\n"
    "from cacheproof.differential.targets.host.forking import wait_for_work\n"
    "wait_for_work(socket.socket(fileno=int(sys.argv[2])))\n"
    "open(os.environ['TMPDIR'] + '/imports', 'w').close()\n",
]


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_server_imports_only_when_it_is_asked(is_asked: bool) -> None:
    server = host_server.HostServer.start(WAITS, [], os.environ)
    with closing(server):
        assert server.process is not None
        assert server.process.stdin is not None
        if is_asked:
            server.wake()
        else:
            server.process.stdin.close()
        assert server.process.wait() == 0
        assert Path(server.scratch, "imports").exists() == is_asked
        assert Path(server.scratch).exists() == is_asked  # else it has cleaned up


def test_a_target_says_that_its_host_has_not_started_in_time() -> None:
    slow = HostTarget("it", None, SLEEPS[:1], os.environ, is_forked=True, start_seconds=0)
    slow._interpreter = SLEEPS
    with closing(slow), pytest.raises(HarnessError, match="it has not started within 0 s"):
        assert slow.hello


LOOKS = """
import json, os, sys
from cacheproof.reference.encoder_cache import EncoderCacheManager

class Mine(EncoderCacheManager):
    pass

modules = sorted(sys.modules)
json.dump([modules, dict(os.environ), sys.path, sys.argv[1:]], open(os.environ["SEEN"], "w"))
"""


@pytest.mark.parametrize(
    "release",
    [
        pytest.param(one, marks=[] if one in (RELEASE, "0.15.1") else [pytest.mark.full])
        for one in MODELLED
    ],
)
def test_a_release_that_found_its_libraries_imported_is_as_one_that_imports_them(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "looks.py").write_text(LOOKS)
    monkeypatch.chdir(tmp_path)
    seen = []
    for forks in (True, False):
        monkeypatch.setattr(host_server, "FORKS", forks)
        monkeypatch.setenv("SEEN", str(tmp_path / f"seen-{forks}"))
        with closing(resolve(f"looks:Mine@{release}", report=print)) as target:
            assert isinstance(target, HostTarget)
            assert target.hello
            assert (target._server is not None and target._server.libraries is not None) == forks
        seen.append(json.loads((tmp_path / f"seen-{forks}").read_text()))
    (modules, environment, path, arguments), (others, environs, paths, _) = seen
    assert set(modules) ^ set(others) <= {"host.forking", "pickle", "tempfile"}
    differing = {
        one for one in environment.keys() | environs if environment.get(one) != environs.get(one)
    }
    assert differing <= {"TMPDIR", "SEEN"}
    assert (path, arguments) == (paths, [])


def test_a_library_that_the_release_does_not_import_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_server, "LIBRARIES", (*host_server.LIBRARIES, "mailbox"))
    monkeypatch.setattr(host_server, "SERVERS", host_server.HostServers())
    its_user = "cacheproof.differential.targets.process.SERVERS"
    monkeypatch.setattr(its_user, host_server.SERVERS)
    with closing(host_server.SERVERS), pytest.raises(AssertionError, match="mailbox"):
        test_a_release_that_found_its_libraries_imported_is_as_one_that_imports_them(
            RELEASE, tmp_path, monkeypatch
        )
