"""No input brings a command to a traceback, to two lines where it says one, to hang, to send
control characters to a terminal, or to leave something behind."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from cacheproof import cli
from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.provision.cache import Cache
from cacheproof.differential.targets.process import HostTarget
from tests.hostile import checker
from tests.hostile.cases import QUICK, SLOW, Case, cases
from tests.hostile.checker import complaints, memory_complaints, run_apart, run_here

COUNT = 2_000
AT_ONCE = 50
FIRST = 100
FIRST_AT_ONCE = 10
APART_EVERY = 40
SHARED = ("releases", "environments", "engines", "models")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of its own, with the releases and the libraries of the user's."""
    releases.install("0.33.0", report=print)
    folder = tmp_path_factory.mktemp("home")
    for name in SHARED:
        (folder / name).mkdir()
        for one in (Cache.locate().root / name).glob("*"):
            (folder / name / one.name).symlink_to(one)
    return folder


def wrong_with(some: Iterable[Case], home: Path, folder: Path) -> list[str]:
    """What is wrong with what becomes of cases, each in a folder of its own."""
    found = []
    for case in some:
        where = Path(tempfile.mkdtemp(dir=folder))
        words = case.prepare(where)
        run = run_apart if case.number % APART_EVERY == 0 else run_here
        ran = run(words, where, home)
        found += [f"{case}: {words}: {one}" for one in [*complaints(ran), *memory_complaints()]]
    return found


@pytest.mark.full
@pytest.mark.parametrize("start", range(0, FIRST, FIRST_AT_ONCE))
def test_the_first_quick_cases(start: int, home: Path, tmp_path: Path) -> None:
    quick = [case for case in cases(FIRST_AT_ONCE, start) if not case.is_slow]
    assert wrong_with(quick, home, tmp_path) == []


@pytest.mark.full
@pytest.mark.parametrize("start", range(0, COUNT, AT_ONCE))
def test_all_cases(start: int, home: Path, tmp_path: Path) -> None:
    assert wrong_with(cases(AT_ONCE, start), home, tmp_path) == []


def test_every_kind_has_its_turn_and_a_number_makes_the_same_case(tmp_path: Path) -> None:
    assert {case.kind for case in cases(COUNT)} == {*QUICK, *SLOW}
    for case in cases(60):
        folders = tmp_path / f"{case.number}", tmp_path / f"{case.number} again"
        made = []
        for folder in folders:
            folder.mkdir()
            words = case.prepare(folder)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            made.append((words, [path.read_bytes()[:9999] for path in files]))
        assert made[0] == made[1], case


def refuse() -> int:
    raise InputError("no")


def leave_a_process() -> int:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(9)"])
    return refuse()


def say(*lines: str) -> int:
    for line in lines:
        print(line, file=sys.stderr)
    return InputError.exit_code


DEFECTS: dict[str, tuple[Callable[[], object], str]] = {
    "a traceback": (lambda: {}["no"], "a traceback: "),
    "another exit code": (lambda: 7, "exit code 7"),
    "two lines": (lambda: say("cacheproof: one", "cacheproof: two"), "2 lines of an error"),
    "no line": (lambda: InputError.exit_code, "0 lines of an error"),
    "a line behind it": (lambda: say("cacheproof: one", "two"), "or not at the end"),
    "a strange line": (lambda: say("see: this", "cacheproof: one"), "a strange line: see: this"),
    "an escape code": (lambda: print("\x1b[2J"), "on stdout: '\\x1b'"),
    "one in an error": (lambda: say("cacheproof: \u202e"), "on stderr: '\\u202e'"),
    "a file": (lambda: (Path(".draft").touch(), refuse()), "left behind: '.draft'"),
    "a process": (leave_a_process, "left behind: process "),
    "no end": (lambda: time.sleep(99), "exit code None"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_each_defect_is_seen(
    name: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defect, words = DEFECTS[name]
    monkeypatch.setattr(cli, "app", lambda **_: defect())
    monkeypatch.setattr(checker, "SECONDS_OF_GRACE", 0.2)
    found = complaints(run_here(["contracts"], tmp_path, home, seconds=1))
    assert any(words in one for one in found), found


@pytest.mark.full
def test_a_command_that_does_as_it_should_is_not_complained_of(home: Path, tmp_path: Path) -> None:
    for run in (run_here, run_apart):
        assert complaints(run(["contracts"], tmp_path, home)) == []
        assert complaints(run(["replay", "nothing"], tmp_path, home)) == []


def test_a_command_run_here_ends_no_host_but_its_own(
    newest: HostTarget, home: Path, tmp_path: Path
) -> None:
    traces = [LANES["scheduler"].trace(0, newest.release)]
    answers = newest.run(traces)
    assert complaints(run_here(["replay", "nothing"], tmp_path, home)) == []
    assert newest.run(traces) == answers


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise ValueError", "a traceback: "),
        ("import time; time.sleep(99)", "exit code None"),
        ("import subprocess as s; s.Popen(['sleep', '30'], stdout=-3, stderr=-3)", "process "),
        ("open('left', 'w')", "left behind: 'left'"),
    ],
)
def test_each_defect_of_a_process_is_seen(
    program: str, words: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "COMMAND", [sys.executable, "-c", program])
    monkeypatch.setattr(checker, "SECONDS_OF_GRACE", 0.2)
    found = complaints(run_apart([], tmp_path, home, seconds=3))
    assert any(words in one for one in found), found


def test_much_memory_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, "-c", "b'1' * (1 << 20)"], check=True)
    assert memory_complaints() == []
    monkeypatch.setattr(checker, "CHILD_BYTES_MAX", 1 << 20)
    assert len(memory_complaints()) == 1
