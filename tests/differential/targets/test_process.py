"""Hosts that crash, hang or print junk: named, never a finding, never silence, and restarted."""

import os
import re
import select
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.seeded import BATCH_TRACES, HARNESS_ERRORS_MAX, search
from cacheproof.differential.search.verdict import VOID, Verdict
from cacheproof.differential.targets import process
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from tests.differential.targets.reference_process import ROOT, ReferenceProcess

TRACES = [manager_trace(seed) for seed in range(2)]
LANE = LANES["encoder cache"]
Make = Callable[..., HostTarget]

HOST = f"""
import json, os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from tests.differential.targets.reference_process import ReferenceHost

release = ReferenceHost()

def say(reply):
    sys.stdout.write(reply + "\\n")
    sys.stdout.flush()

for number, line in enumerate(sys.stdin):
    request = json.loads(line)
    reply = {{"id": request["id"]}}
    if request["do"] == "hello":
        reply |= release.hello(None)
    else:
        reply["results"] = release.run(request)
BEHAVIOUR
    say(json.dumps(reply))
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a host that answers as the reference, after it did what it is told to do."""
    made: list[HostTarget] = []

    def make(behaviour: str, seconds: float = 60.0) -> HostTarget:
        folder = tmp_path / "host"
        folder.mkdir()
        code = textwrap.indent(textwrap.dedent(behaviour), "    ")
        (folder / "__main__.py").write_text(HOST.replace("BEHAVIOUR", code))
        monkeypatch.setattr(process, "HOST_FOLDER", folder)
        target = HostTarget(
            "it", None, [sys.executable], os.environ, start_seconds=60, batch_seconds=seconds
        )
        made.append(target)
        return target

    yield make
    for target in made:
        target.close()


def harness_error(attempt: Callable[[], object]) -> HarnessError:
    with pytest.raises(HarnessError) as caught:
        attempt()
    return caught.value


IN_A_BATCH = "if request['do'] == 'run' and not os.path.exists('{mark}'):\n    {what}"
"""Goes wrong in the first batch that any of the host's processes runs."""


def once(tmp_path: Path, what: str) -> str:
    mark = tmp_path / "went-wrong"
    return IN_A_BATCH.format(mark=mark, what=f"open('{mark}', 'w'); {what}")


BREAKS = {
    "ends": ("sys.exit(7)", r"crashed \(exit status 7\)"),
    "is killed": ("os.kill(os.getpid(), 9)", r"crashed \(exit status -9\)"),
    "faults in compiled code": (
        "import ctypes; ctypes.string_at(0)",
        r"crashed \(exit status -11\)",
    ),
    "raises": (
        "raise LookupError('lost')",
        r"crashed \(exit status 1\): LookupError: lost \(/.*/__main__.py:\d+\)$",
    ),
    "raises lines": (
        "raise LookupError('lost\\nand', 'gone')",
        r"crashed \(exit status 1\): LookupError: \('lost\\nand', 'gone'\) \(/",
    ),
    "leaves a child": (
        "os.fork() == 0 and time.sleep(999); os._exit(3)",
        r"crashed \(exit status 3\)",
    ),
    "leaves a child in a session of its own": (
        "os.fork() == 0 and (os.setsid(), time.sleep(9)); os._exit(3)",
        r"crashed \(exit status 3\)",
    ),
    "prints without end": (
        "[sys.stderr.write('x' * 1000 + '\\n') for _ in iter(int, 1)]",
        r"printed more than 64 MiB and was killed: x{1,400}$",
    ),
    "prints junk": ("say('junk')", "printed what is no answer"),
    "prints binary": ("sys.stdout.buffer.write(b'\\xff\\n'); say('')", "printed what is no answer"),
    "prints deep junk": ("say('[' * 100_000)", "printed what is no answer"),
    "prints other JSON": ("say('[1, 2]')", "printed what is no answer"),
    "prints an error": ('say(\'{"id": 2, "error": "e"}\')', "printed what is no answer"),
    "answers twice": ("say(json.dumps(reply)); say(json.dumps(reply))", "answered request 2"),
    "answers another": ("reply['id'] = 5", "answered request 5 instead of 2"),
    "forgets a result": ("reply['results'].pop()", "sent 1 results for 2 traces"),
    "stops mid-line": ("sys.stdout.write('{\"id\"'); sys.exit()", r"crashed \(exit status 0\)"),
    "closes its output": ("os.close(1); time.sleep(1); sys.exit(5)", "crashed"),
}


@pytest.mark.sample(13)
@pytest.mark.parametrize("how", BREAKS)
def test_a_host_that_breaks_is_named_and_the_next_batch_starts_another(
    host: Make, tmp_path: Path, how: str
) -> None:
    what, words = BREAKS[how]
    target = host(once(tmp_path, what))
    error = harness_error(lambda: (target.run(TRACES), target.run(TRACES)))
    assert re.match(f"host of it {words}", str(error))
    assert str(error).splitlines() == [str(error)]
    assert error.exit_code == VOID
    assert target.run(TRACES) == ReferenceTarget().run(TRACES)


def test_a_host_that_hangs_is_killed(host: Make, tmp_path: Path) -> None:
    target = host(
        once(tmp_path, "print(os.getpid(), file=sys.stderr, flush=True); time.sleep(999)"), 2
    )
    with pytest.raises(HarnessError, match="gave no answer for 2 s and was killed") as caught:
        target.run(TRACES)
    assert not is_alive(int(str(caught.value).rpartition(" ")[2]))
    assert target.run(TRACES) == ReferenceTarget().run(TRACES)


def test_what_a_host_has_started_ends_with_it(host: Make, tmp_path: Path) -> None:
    (pids := tmp_path / "pids").touch()
    child = f"open('{pids}', 'w').write(str(os.getpid())), time.sleep(999)"
    target = host(once(tmp_path, f"os.fork() == 0 and ({child})"))
    target.run(TRACES)
    while not pids.read_text():
        pass
    target.close()
    with suppress(ProcessLookupError):
        process = os.pidfd_open(int(pids.read_text()))
        select.select([process], [], [])
        os.close(process)


def test_what_a_host_writes_in_passing_goes_with_it(
    host: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (passing := tmp_path / "passing").mkdir()
    monkeypatch.setattr(process.tempfile, "tempdir", str(passing))
    (mark := tmp_path / "mark").touch()
    target = host(f"import tempfile; open('{mark}', 'w').write(tempfile.mkdtemp())")
    target.run(TRACES)
    assert Path(mark.read_text()).is_relative_to(passing)
    target.close()
    assert list(passing.iterdir()) == []


def test_a_host_that_never_says_hello_is_an_error(host: Make) -> None:
    with pytest.raises(HarnessError, match="crashed"):
        assert host("sys.exit(3)").protocol


def test_an_interpreter_that_is_not_there_is_an_error() -> None:
    target = HostTarget("it", None, ["/no/such/python"], {})
    with pytest.raises(HarnessError, match="does not start: /no/such/python: No such file"):
        target.run(TRACES)


def test_a_plug_in_that_the_host_refuses_is_the_users_error(host: Make) -> None:
    with pytest.raises(InputError, match="target it: no such class; expected MODULE:CLASS"):
        host("reply['refusal'] = 'no such class'").run(TRACES)


def test_a_search_reports_a_broken_host_goes_on_and_is_void(host: Make, tmp_path: Path) -> None:
    outcome = search(host(once(tmp_path, "sys.exit(7)")), [LANE], against=None, seeds=range(120))
    (error,) = outcome.harness_errors
    assert error.startswith("encoder cache, from seed 0: host of it ")
    assert outcome.lanes[0].traces == 120 - BATCH_TRACES
    assert outcome.breaks == []
    assert Verdict(outcome, []).exit_code == VOID


@pytest.mark.full
def test_a_search_gives_up_on_a_host_that_breaks_every_time(host: Make) -> None:
    target = host("if request['do'] == 'run': sys.exit(7)")
    outcome = search(target, [LANE], against=None, seeds=range(5000))
    assert HARNESS_ERRORS_MAX <= len(outcome.harness_errors) <= HARNESS_ERRORS_MAX + 2
    assert outcome.lanes[0].traces == 0
    assert "no trace was judged" in Verdict(outcome, []).void_because


def test_what_a_search_gave_up_on_does_not_answer_the_next(host: Make, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    ended = f"len(os.listdir('{marks}')) >= {HARNESS_ERRORS_MAX}"
    end = f"open(f'{marks}/{{os.getpid()}}', 'w'); sys.exit(7)"
    target = host(f"if request['do'] == 'run' and not {ended}:\n    {end}")
    outcome = search(target, [LANE], against=None, seeds=range(9 * BATCH_TRACES))
    assert len(outcome.harness_errors) == HARNESS_ERRORS_MAX
    assert target.run(TRACES) == ReferenceTarget().run(TRACES)


def test_a_host_that_closes_its_output_and_goes_on_is_ended(
    host: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "EXIT_SECONDS", 0.1)
    target = host(once(tmp_path, "os.close(1); time.sleep(999)"))
    error = harness_error(lambda: target.run(TRACES))
    assert str(error).startswith("host of it crashed (it closed its output and went on)")


def test_a_host_whose_parent_is_gone_ends() -> None:
    script = textwrap.dedent(
        """
        import os
        from tests.differential.targets.reference_process import ReferenceProcess

        target = ReferenceProcess()
        assert target.hello
        print(target._process.pid, flush=True)
        input()
        os.kill(os.getpid(), 9)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    host = os.pidfd_open(int(parent.stdout.readline()))
    parent.communicate(b"go\n")
    assert parent.returncode == -9
    select.select([host], [], [])
    os.close(host)


def test_closing_ends_the_process() -> None:
    target = ReferenceProcess()
    assert target.hello
    assert target._process is not None
    host = target._process.pid
    target.close()
    assert not is_alive(host)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that nobody waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
