"""What docs/how-to/nightly.md says is run: the script night after night, the units, the line of
cron and the workflow's steps."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from cacheproof.differential.provision import releases
from cacheproof.differential.provision.cache import Cache
from cacheproof.reference.releases import NEWEST
from tests.front.test_campaign import ended

FILES = Path(__file__).resolve().parent.parent / "docs" / "how-to" / "nightly"
PAGE = FILES.with_suffix(".md").read_text()
SRV = "/srv/cacheproof"
MANAGER = Path("vllm/v1/core/encoder_cache_manager.py")
GUARD = re.compile(r"if not self\.cached\[\w+\]:")
TARGETS = '"vllm@${release#v}", "engine@${release#v}", "path:vllm", "path:fork"'
SMALL = 'lanes = ["encoder cache", "encoder-decoder"]\nuntil = 0.001'


SCRIPT = (FILES / "night.sh").read_text()
WORKFLOW = (FILES / "night.yml").read_text()


def git(folder: Path, *arguments: str) -> str:
    who = "-c", "user.name=someone", "-c", "user.email=someone@example.org"
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path) -> Path:
    """A git repository of what is in a folder."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder)
    return folder


def commit(folder: Path) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "a change")
    return git(folder, "rev-parse", "HEAD")


@dataclass
class Place:
    """The folder of the page, with this cacheproof in it, and the origins of its clones."""

    folder: Path
    origins: Path
    environment: dict[str, str] = field(default_factory=dict)
    running: list["subprocess.Popen[str]"] = field(default_factory=list)

    @classmethod
    def made(cls, folder: Path, origins: Path) -> "Place":
        command = folder / "cacheproof" / ".venv" / "bin" / "cacheproof"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m cacheproof "$@"\n')
        command.chmod(0o755)
        for name in ("vllm", "fork"):
            origin = repository(origins / name)
            for tag in ("v0.9.0", f"v{NEWEST}", "v0.99.0rc1"):
                git(origin, "tag", tag)
            git(folder, "clone", "--quiet", str(origin), name)
        return cls(folder, origins)

    @property
    def nights(self) -> list[Path]:
        return sorted((self.folder / "nights").glob("*/"))

    def plan(self, targets: str, rest: str = SMALL) -> None:
        """Write the page's script, with a plan that is small."""
        text = SCRIPT.replace(TARGETS, targets).replace("until = 14400", rest)
        assert text.count(targets) == text.count(rest) == 1
        script = self.folder / "night.sh"
        script.write_text(text)
        script.chmod(0o755)

    def started(self) -> "subprocess.Popen[str]":
        """A night that runs, in a process group of its own."""
        night = subprocess.Popen(
            [self.folder / "night.sh"],
            cwd="/",
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.running.append(night)
        return night

    def end(self) -> None:
        """Kill what of nights still runs."""
        for night in self.running:
            with suppress(ProcessLookupError):
                os.killpg(night.pid, signal.SIGKILL)

    def night(self) -> tuple[int, str]:
        """Run one to its end; the exit code and what was printed."""
        started = self.started()
        out, _ = started.communicate()
        return started.returncode, out

    def pass_days(self, days: int) -> None:
        """Have `date` say another day."""
        programs = self.origins / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "date").write_text(
            f'#!/bin/sh\nexec {shutil.which("date")} -d "+{days} days" "$@"\n'
        )
        (programs / "date").chmod(0o755)
        self.environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[], Place]]:
    """Makes the folder of the page; what of its nights still runs ends with the test."""
    with ExitStack() as running:

        def make() -> Place:
            (tmp_path / "place").mkdir()
            (tmp_path / "origins").mkdir(exist_ok=True)
            place = Place.made(tmp_path / "place", tmp_path / "origins")
            running.callback(place.end)
            return place

        yield make


@pytest.fixture
def place(made: Callable[[], Place]) -> Place:
    place = made()
    place.plan('"reference@0.28.0", "reference@${release#v}"')
    return place


def seeds_of(night: Path) -> range:
    first, last = re.findall(r'seeds = "(\d+):(\d+)"', (night / "plan.toml").read_text())[0]
    return range(int(first), int(last))


def records(place: Place) -> dict[str, dict[str, Any]]:
    lines = (place.folder / "faults.jsonl").read_text().splitlines()
    return {one["identity"]: one for one in map(json.loads, lines)}


@pytest.mark.full
def test_the_second_night_has_fresh_seeds_and_checkouts_and_goes_on_from_the_register(
    place: Place,
) -> None:
    assert place.night()[0] == 0
    (first,) = place.nights
    assert {one.name for one in first.iterdir()} >= {
        *("plan.toml", "report.txt", "report.json", "report.xml", "report.sarif"),
        *("progress.txt", "code", "store"),
    }
    assert (first / "code").read_text() == "0\n"
    assert f'"reference@{NEWEST}"' in (first / "plan.toml").read_text()
    assert {one["status"] for one in records(place).values()} == {"listed"}
    before = records(place).keys()

    new = commit(place.origins / "vllm")
    place.pass_days(1)
    assert place.night()[0] == 0
    _, second = place.nights
    assert git(place.folder / "vllm", "rev-parse", "HEAD") == new
    assert len(seeds_of(first)) == len(seeds_of(second)) == 10_000
    assert not {*seeds_of(first)} & {*seeds_of(second)}
    report = json.loads((second / "report.json").read_text())
    told = {one["identity"]: one for one in report["faults"]}
    assert told.keys() >= before
    assert "mended" in {told[one]["status"] for one in before}
    assert "mended: " in (second / "report.txt").read_text()


@pytest.mark.full
def test_while_a_night_runs_no_other_begins(place: Place) -> None:
    with (place.folder / "night.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out = place.night()
    assert (code, place.nights) == (0, [])
    assert "still runs; nothing is begun" in out
    assert "still runs" not in place.night()[1]


@pytest.mark.full
def test_what_a_killed_night_found_is_kept_by_the_next(place: Place) -> None:
    place.plan('"reference@0.28.0"', 'lanes = ["encoder cache"]\nuntil = 100000')
    started = place.started()
    while not any(ended(night / "store") > 8 for night in place.nights):
        assert started.poll() is None
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate()
    (killed,) = place.nights
    assert not (killed / "code").exists()
    assert not (place.folder / "faults.jsonl").exists()
    place.plan('"reference"')
    while "still runs" in (ran := place.night())[1]:
        pass  # processes of it are still going
    assert ran[0] == 0
    assert (killed / "code").read_text() == "3\n"
    assert "void: only " in (killed / "report.txt").read_text()
    assert records(place)


@pytest.mark.full
def test_a_night_that_cannot_begin_says_why_and_ends_with_2(place: Place) -> None:
    place.plan('"nobody"')
    assert place.night()[0] == 2
    (night,) = place.nights
    (line,) = (night / "progress.txt").read_text().splitlines()
    assert "key targets: target 'nobody': expected" in line


@pytest.mark.full
def test_without_its_origin_a_checkout_is_searched_as_it_is(place: Place) -> None:
    shutil.rmtree(place.origins / "fork")
    code, out = place.night()
    assert code == 0
    assert "fork: not brought up to date; it is searched as it is" in out
    assert "vllm: not brought" not in out


@pytest.mark.full
def test_nights_of_the_last_month_are_kept_and_older_ones_are_not(place: Place) -> None:
    for days in (20, 40):
        old = place.folder / "nights" / f"{days}-days-ago"
        old.mkdir(parents=True)
        past = (old.stat().st_mtime - days * 24 * 3600,) * 2
        os.utime(old, past)
    place.night()
    before, tonight = place.nights
    assert before.name == "20-days-ago"
    assert (tonight / "code").exists()


@pytest.mark.full
def test_a_night_of_the_newest_release_and_of_checkouts_finds_what_a_change_breaks(
    made: Callable[[], Place], tmp_path: Path
) -> None:
    tree = releases.install(NEWEST, report=print).tree
    for name in ("vllm", "fork"):
        shutil.copytree(tree, tmp_path / "origins" / name, copy_function=os.symlink)
    changed = tmp_path / "origins" / "vllm" / MANAGER
    text, count = GUARD.subn("if True:", changed.read_text())
    assert count
    changed.unlink()
    changed.write_text(text)
    place = made()
    place.environment["CACHEPROOF_HOME"] = str(Cache.locate().root)
    lanes = 'lanes = ["encoder cache", "LLaVA"]'
    small = f"{lanes}\nreference = false\nshard_seeds = 1\nuntil = 0.001"
    place.plan(TARGETS, small)
    assert place.night()[0] == 1
    (night,) = place.nights
    report = json.loads((night / "report.json").read_text())
    codes = {one["name"]: one["exit_code"] for one in report["targets"]}
    assert codes == {
        f"vllm@{NEWEST}": 0,
        f"engine@{NEWEST}": 0,
        "path:vllm": 1,
        "path:fork": 0,
    }
    runs = json.loads((night / "report.sarif").read_text())["runs"]
    failing = {
        run["automationDetails"]["id"]: json.dumps(run["results"])
        for run in runs
        if any("suppressions" not in one for one in run["results"])
    }
    ((name, results),) = failing.items()
    assert name == "cacheproof campaign/path:vllm/"
    assert str(MANAGER) in results


def units() -> dict[str, str]:
    return {one.name: one.read_text() for one in FILES.glob("cacheproof-night.*")}


def complaints(place: Place, texts: dict[str, str]) -> str:
    """What systemd says of units whose command is the script of this place."""
    for name, text in texts.items():
        assert f"[{name}](nightly/{name})" in PAGE
        (place.origins / name).write_text(text.replace(SRV, str(place.folder)))
    command = ["systemd-analyze", "verify", "--man=no", *texts]
    ran = subprocess.run(command, cwd=place.origins, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr


needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")


@needs_systemd
def test_systemd_takes_the_units(place: Place) -> None:
    assert complaints(place, units()) == ""


@needs_systemd
@pytest.mark.parametrize(("old", "new"), [("01:15", "31:15"), ("oneshot", "often")])
def test_a_unit_that_is_wrong_is_noticed(place: Place, old: str, new: str) -> None:
    spoiled = {name: text.replace(old, new) for name, text in units().items()}
    assert new in complaints(place, spoiled)


@needs_systemd
def test_systemctl_enables_the_timer(place: Place) -> None:
    folder = place.folder / "etc" / "systemd" / "system"
    folder.mkdir(parents=True)
    for name, text in units().items():
        (folder / name).write_text(text)
    (line,) = re.findall(r"^systemctl enable --now (.*)$", PAGE, re.MULTILINE)
    subprocess.run(["systemctl", f"--root={place.folder}", "enable", line], check=True)
    assert (folder / "timers.target.wants" / line).is_symlink()


@pytest.mark.full
def test_cron_mails_nothing_and_runs_the_night(place: Place) -> None:
    (line,) = re.findall(r"^((?:[\d*]+ ){5}.*)$", PAGE, re.MULTILINE)
    *_, command = line.split(" ", 5)
    command = command.replace(SRV, str(place.folder))
    ran = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert len(place.nights) == 1


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(WORKFLOW)["jobs"]["search"]["steps"]
    return found


def step(name: str) -> str:
    (script,) = [str(one["run"]) for one in steps() if one.get("name", "").startswith(name)]
    return script


@pytest.fixture
def bash(place: Place) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a script as GitHub does, with repositories of this machine in the place of others."""
    other = repository(place.origins / "cacheproof")
    (other / "Makefile").write_text("setup:\n\ttouch made\n")
    made = commit(other)
    folder = place.origins / "workspace"
    (folder / "fork" / ".github").mkdir(parents=True)
    (folder / "fork" / ".github" / "night.sh").write_text(SCRIPT)
    environment = {
        **os.environ,
        "CACHEPROOF_REPOSITORY": str(other),
        "CACHEPROOF_COMMIT": made,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{place.origins}/vllm.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/vllm-project/vllm",
    }

    def run(script: str, folder: Path = folder) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_workflow_sets_up_the_folder_of_the_page(bash, place: Place) -> None:
    ran = bash(step("Set up"))
    assert ran.returncode == 0, ran.stderr
    folder = place.origins / "workspace"
    assert (folder / "cacheproof" / "made").exists()
    assert (folder / "night.sh").read_text() == SCRIPT
    assert git(folder / "vllm", "tag", "--list", f"v{NEWEST}")


def test_the_environments_are_kept_by_locks_that_are_there() -> None:
    (pattern,) = re.findall(r"hashFiles\('cacheproof/(.*\.lock)'\)", WORKFLOW)
    assert list(FILES.parents[2].glob(pattern))


def test_the_commands_of_the_folder_make_it(bash, place: Place) -> None:
    (commands,) = re.findall(r"^```\n(git clone /path/to.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    empty = place.origins / "empty"
    empty.mkdir()
    commands = commands.replace("/path/to/cacheproof", str(place.origins / "cacheproof"))
    ran = bash(commands.replace("YOUR-FORK", str(place.origins / "fork")), empty)
    assert ran.returncode == 0, ran.stderr
    assert sorted(one.name for one in empty.iterdir()) == ["cacheproof", "fork", "vllm"]


@pytest.mark.parametrize(("code", "comes_to"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0)])
def test_the_workflow_fails_by_all_but_decisions(
    bash, place: Place, code: int, comes_to: int
) -> None:
    (place.origins / "workspace" / "night.sh").write_text(f"exit {code}\n")
    ran = bash(step("Search"))
    assert ran.returncode == comes_to
    assert ("::warning::" in ran.stdout) == (code == 4)


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq, which GitHub's machines have")
def test_alerts_are_of_the_fork_and_of_what_is_not_listed(bash, place: Place) -> None:
    listed, new = {"ruleId": "EC-6", "suppressions": [{}]}, {"ruleId": "EC-7"}
    runs = [
        {"automationDetails": {"id": f"cacheproof campaign/{one}/"}, "results": [listed, new]}
        for one in ("vllm@0.33.0", "path:vllm", "path:fork")
    ]
    night = place.origins / "workspace" / "nights" / "one"
    night.mkdir(parents=True)
    (night / "report.sarif").write_text(json.dumps({"runs": runs}))
    assert bash(step("Leave out")).returncode == 0
    left = json.loads((place.origins / "workspace" / "unlisted.sarif").read_text())
    assert left == {"runs": [{**runs[2], "results": [new]}]}


def test_the_register_goes_from_run_to_run_whatever_the_search_ends_with() -> None:
    (restore,) = [one for one in steps() if "cache/restore" in one.get("uses", "")]
    (save,) = [one for one in steps() if "cache/save" in one.get("uses", "")]
    assert save["if"].startswith("always()")
    assert restore["with"]["path"] == save["with"]["path"] == "faults.jsonl"
    assert save["with"]["key"].startswith(restore["with"]["restore-keys"])
    assert f"--register {save['with']['path']}" in SCRIPT
