"""What strangers wrote is shown on a terminal, and does nothing to it."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.finding import Finding, found_in
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.wording import visible, visible_line
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput, VisibleConsole
from cacheproof.output.verdict_line import VerdictLine
from cacheproof.reference.semantics import Semantics
from tests.front.conftest import Run

ODD = "\x1b[2J\x1b]0;title\x07\x9b\u202e\ud800\x00"
SEEN = r"\x1b[2J\x1b]0;title\x07\x9b\u202e\ud800\x00"
WORDS_OF_A_FINDING = (
    "title", "source", "harm", "sentence", "why", "known", "known_note", "kind", "shape", "replays",
    "generator", "standalone",
)  # fmt: skip
TRACE = (
    '{"depth":"manager","schema":1,"manager":"encoder_cache","config":{"capacity":4,'
    '"compute_budget":4}}\n{"event":"notices"}\n'
)


def test_all_but_ends_of_lines_is_shown() -> None:
    assert visible(f"é\n{ODD}") == f"é\n{SEEN}"
    assert visible_line(f"é\n{ODD}") == rf"é\n{SEEN}"


def table_with(words: str) -> Table:
    table = Table(words, box=None, title=words)
    table.add_row(words)
    table.add_row(Text(words))
    return table


@pytest.mark.parametrize("make", [str, Text, table_with])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_console_shows_them_whatever_holds_them(
    make: Callable[[str], RenderableType], is_terminal: bool
) -> None:
    file = io.StringIO()
    console = VisibleConsole(file=file, force_terminal=is_terminal, width=200, color_system=None)
    console.print(make("words" + ODD.replace("\x07", "")))  # what rings is dropped by rich
    written = re.sub("\x1b\\[[0-9;]*m", "", file.getvalue())  # of rich's own
    assert "words" + SEEN.replace(r"\x07", "") in written
    assert written.replace("\n", "").isprintable()


def test_what_is_shown_is_wrapped_and_not_cut() -> None:
    file = io.StringIO()
    table = Table(box=None, padding=0)
    table.add_column(overflow="fold")
    table.add_row(Text("\x1b" * 50))
    VisibleConsole(file=file, width=20).print(table)
    assert "".join(file.getvalue().split()).count(r"\x1b") == 50


@pytest.mark.parametrize("is_terminal", [True, False])
def test_lines_are_filled_up_on_a_terminal_alone(is_terminal: bool) -> None:
    file = io.StringIO()
    console = VisibleConsole(file=file, force_terminal=is_terminal, width=40, color_system=None)
    console.print(Padding("a finding", (0, 0, 0, 2)))
    console.print("replay   ", end="")
    console.print("cacheproof replay FILE")
    first, second = file.getvalue().splitlines()
    assert first == ("  a finding".ljust(40) if is_terminal else "  a finding")
    assert second.rstrip() == "replay   cacheproof replay FILE"


@pytest.fixture(scope="module")
def finding() -> Finding:
    target = ReferenceTarget(Semantics.of_vllm("0.28.0"), name="reference@0.28.0", release="0.28.0")
    found = found_in(target, manager_trace(0), "EC-6a", times=2, seconds=1)
    assert found is not None
    return found


def test_a_finding_is_shown_and_does_nothing(run: Run, finding: Finding, tmp_path: Path) -> None:
    words = ODD.replace("\ud800", "")
    dressed = msgspec.structs.replace(finding, **dict.fromkeys(WORDS_OF_A_FINDING, words))
    (path := tmp_path / f"{words[:-1]}.json").write_bytes(msgspec.json.encode(dressed))
    assert isinstance(finding_file.load(path), Finding)
    ran = run("replay", path, "--times", 1)
    assert ran.code == 1
    assert ran.out.replace("\n", "").isprintable()
    assert ran.err.replace("\n", "").isprintable()
    assert r"\x1b[2J" in ran.out


def test_json_on_a_terminal_does_nothing_either(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ODD.replace("\ud800", "\U000e0001é")
    for to in ("-", str(tmp_path / "out.json")):
        CommandOutput(to).tell(Conclusion(0, VerdictLine("said"), {"words": words}))
    out = capsys.readouterr().out
    assert out == (tmp_path / "out.json").read_text()
    assert out.replace("\n", "").isprintable()
    assert json.loads(out)["words"] == words


def test_an_error_is_one_line_however_many_are_in_its_words(run: Run, tmp_path: Path) -> None:
    refusal = run("replay", f"/no/such\n{ODD[:9]}\nfile").refusal
    assert refusal.startswith(r"/no/such\n\x1b[2J")
    refusal = run("fuzz", "--target", "a\nb\x1b[0m").refusal
    assert r"a\nb\x1b[0m" in refusal or r"a\\nb\\x1b[0m" in refusal


NO_UTF_8 = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("settings", "code"),
    [({"LC_ALL": "C"}, 0), (NO_UTF_8, 2), ({"PYTHONIOENCODING": "ascii"}, 0),
     ({"PYTHONIOENCODING": "latin-1:strict"}, 0)],
)  # fmt: skip
def test_any_encoding_takes_any_name(settings: dict[str, str], code: int, tmp_path: Path) -> None:
    (path := tmp_path / "日本é.jsonl").write_text(TRACE)
    for target, expected in (("reference", code), ("参照", 2)):
        ran = subprocess.run(
            [sys.executable, "-m", "cacheproof", "replay", path, "--target", target],
            env={**os.environ, **settings},
            capture_output=True,
            check=False,
        )
        assert ran.returncode == expected, ran.stderr
        assert b"Traceback" not in ran.stderr
        assert len(ran.stderr.splitlines()) == (expected == 2)


def test_a_word_that_is_no_text_is_refused() -> None:
    command = [sys.executable, "-m", "cacheproof", "replay", b"/tmp/\xff"]
    ran = subprocess.run(command, capture_output=True, check=False)
    assert ran.returncode == 2
    (line,) = ran.stderr.decode().splitlines()
    assert line.startswith(r"cacheproof: /tmp/\udcff: no text in utf-8, the locale's encoding; ")


def test_progress_on_a_terminal_shows_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with CommandOutput(None).live("searching [/red]\x1b[2J\nx"):
            pass
    written = ""
    with open(ours, "rb", buffering=0) as screen, suppress(OSError):  # at its end
        while data := screen.read(1 << 16):
            written += data.decode()
    assert r"searching [/red]\x1b[2J\nx" in re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", written)


def test_a_report_on_a_full_disk_leaves_the_older_one(tmp_path: Path) -> None:
    (path := tmp_path / "report.json").write_text("older")
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    ran = subprocess.run(
        [sys.executable, "-c", f"{limited}from cacheproof.cli import main; main()",
         "contracts", "--json", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"cacheproof: --json {path}: cannot be written: File too large")
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["fifo", "/dev/full", "/dev/zero"])
def test_a_report_goes_to_a_regular_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    assert "no regular file; expected" in run("contracts", "--json", name).refusal
    assert "no regular file; expected" in run("vllm", "texts", "--toml", name).refusal
    assert "no regular file; " in run("replay", name).refusal
    assert "no regular file; " in run("fuzz", "--target", "reference", "--known", name).refusal
