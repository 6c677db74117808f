"""A command that is stopped, or cannot write, says so in one line and leaves nothing behind."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cacheproof.differential.findings import finding_file

LONG = "fuzz", "--depth", "manager", "--seconds", "600"


@pytest.fixture
def scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of what is started."""
    folder = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def search(
    start: Callable[..., "subprocess.Popen[str]"],
    two_releases: tuple[str, str],
    scratch: Path,
    tmp_path: Path,
) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A long search of a real release, and a descriptor of its host process."""
    nothing = tmp_path.with_name(f"{tmp_path.name}-known")
    nothing.mkdir()
    where = "--findings", str(tmp_path), "--known", str(nothing), "--sarif", str(sarif_of(tmp_path))
    arguments = (*LONG, "--target", two_releases[0], *where)
    command = start(*arguments)
    host = host_of(command)
    yield command, host
    os.close(host)


def sarif_of(folder: Path) -> Path:
    """Where a search with that folder of findings writes its SARIF."""
    return folder.with_name(f"{folder.name}.sarif")


def host_of(command: "subprocess.Popen[str]") -> int:
    """Waits until the command has a host; children of its threads count as well."""
    while command.poll() is None:
        for children in Path(f"/proc/{command.pid}/task").glob("*/children"):
            if started := children.read_text().split():
                return os.pidfd_open(int(started[0]))
    raise AssertionError("it ended before it started a host")


@pytest.mark.sample(2)
@pytest.mark.parametrize("arguments", [(), ("--json", "-")])
def test_a_reader_that_leaves_is_no_finding(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "cacheproof", "contracts", *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (2, b"")


@pytest.mark.sample(2)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [(), ("--json", "-")])
def test_a_full_disk_is_named_in_one_line(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "cacheproof", "contracts", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == 2
    assert ended.stderr == b"cacheproof: standard output: No space left on device\n"


def wait_for(process: int) -> None:
    select.select([process], [], [])


@pytest.mark.full
def test_an_interrupted_search_says_what_it_has_found_and_ends_with_130(
    search: tuple["subprocess.Popen[str]", int], tmp_path: Path
) -> None:
    command, host = search
    found_at(tmp_path)
    command.send_signal(signal.SIGINT)
    out, err = command.communicate()
    assert command.returncode == 130
    assert "Traceback" not in err
    faces = r"( \(\d+ other faces?\))?"
    assert re.match(
        rf"The search of .* was interrupted and shows \d+ new faults?{faces}, which breaks? ", out
    )
    assert re.search(r" at event \d+ ", out)
    for file in tmp_path.iterdir():
        assert file.suffix == ".py" or finding_file.load(file)
    (written,) = json.loads(sarif_of(tmp_path).read_text())["runs"]
    (invocation,) = written["invocations"]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (130, False)
    assert written["results"]
    wait_for(host)


def found_at(folder: Path) -> None:
    """Waits until a finding is small, and lies in the folder."""
    while not list(folder.glob("*.json")):
        time.sleep(0.05)


def test_what_was_found_by_a_search_that_is_killed_lies_on_disk_whole(
    search: tuple["subprocess.Popen[str]", int], tmp_path: Path
) -> None:
    command, host = search
    found_at(tmp_path)
    command.kill()
    command.communicate()
    wait_for(host)
    files = [file for file in tmp_path.iterdir() if not file.name.startswith(".")]
    assert [file for file in files if file.suffix == ".json"]
    for file in files:
        assert file.suffix == ".py" or finding_file.load(file)


@pytest.mark.parametrize(
    "by", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.full)]
)
def test_a_killed_search_leaves_no_host_and_no_temporary_file(
    search: tuple["subprocess.Popen[str]", int], scratch: Path, by: signal.Signals
) -> None:
    command, host = search
    assert any(scratch.iterdir())
    command.send_signal(by)
    command.communicate()
    wait_for(host)
    while any(scratch.iterdir()):
        time.sleep(0.05)
