"""No command ends without a verdict: those that are quick are run here, of the others the module is
read that says it."""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from cacheproof.cli import app
from cacheproof.listed.pages import kept_traces
from tests.front.conftest import Run

TRACE = kept_traces()["uncomputed-hit"]
MANAGER = "--depth", "manager", "--seeds", "0:1"
QUICK = {
    "fuzz": ("--target", "reference", *MANAGER),
    "replay": (TRACE, "--target", "reference", "--times", "2"),
    "simulate": ("--requests", "5", "--traffic", "chat"),
    "contracts": ("EC-6",),
    "explain": ("repeated-item",),
    "assess": ("0.33.0",),
    "vllm list": (),
    "connector list": (),
}
"""Commands with arguments with which they take a moment and need no release."""
SLOW = {
    "check": "search.main_job",
    "gallery": "search.main_job",
    "diff": "search.searching",
    "report": "reporting.command",
    "review": "review.reviewing",
    "explore": "explore.exploring",
    "prove": "proving.proving",
    "bisect": "replay.bisecting",
    "minimise": "replay.minimising",
    "audit": "audit.report",
    "http": "serving.serving",
    "generate": "serving.generating",
    "campaign start": "campaign.report",
    "campaign resume": "campaign.report",
    "campaign report": "campaign.report",
    "campaign status": "campaign.report",
    "campaign merge": "campaign.report",
    "vllm install": "commands.installed",
    "vllm texts": "tables.text_table",
    "connector install": "commands.installed",
}
"""Commands that take longer, with the module that says their verdict."""
WITHOUT = {
    "record": "becomes the command that it records, and says on standard error what to do then",
    "campaign serve": "serves a page until it is stopped",
    "vllm remove": "removes what it is told to, and has nothing to say of it",
}


def commands(group: TyperGroup, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{name} ")
        else:
            yield f"{before}{name}"


def test_every_command_is_known_here() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    told = [*QUICK, *SLOW, *WITHOUT]
    assert sorted(told) == sorted(commands(group))


@pytest.mark.parametrize("command", QUICK)
def test_a_report_begins_and_ends_with_the_same_sentence(
    run: Run, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHEPROOF_HOME", str(tmp_path))
    ran = run(*command.split(), *QUICK[command])
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].endswith(".")
    at = [number for number, line in enumerate(lines) if line == lines[0]]
    after = [line for line in lines[at[-1] + 1 :] if not line.startswith(("Next: ", "  "))]
    assert after == []
    assert len(at) == (2 if len(lines) > 4 else 1)


@pytest.mark.parametrize("command", SLOW)
def test_what_takes_longer_says_its_verdict(command: str) -> None:
    module = importlib.import_module(f"cacheproof.{SLOW[command]}")
    assert "output.tell(" in inspect.getsource(module)
