"""The page of a GPU is written when all of it has run, and not otherwise."""

import importlib
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    module = importlib.import_module("gpu")
    monkeypatch.setattr(module, "PAGE", tmp_path / "gpu.md")
    return module


def test_without_a_gpu_it_says_so_and_leaves_the_page(gpu, monkeypatch, capsys) -> None:
    gpu.PAGE.write_text("as it was")
    monkeypatch.setattr("sys.argv", ["gpu.py", "--python", sys.executable])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected one whose torch sees a GPU" in line
    assert gpu.PAGE.read_text() == "as it was"


@pytest.fixture
def facts() -> dict[str, object]:
    return {"device": "a GPU", "memory": 80 << 30, "torch": "2.13"}


CHOSEN = Namespace(python="PYTHON", rounds=3, workloads=5)


def test_the_page_has_what_each_part_printed(gpu, facts, monkeypatch) -> None:
    ran = []

    def run(command: Sequence[str], *, expected: int = 0) -> list[str]:
        ran.append((Path(command[1]).name, expected))
        return ["a heading", f"| {command[1]} |", "7 passed"]

    monkeypatch.setattr(gpu, "run", run)
    page = gpu.write(CHOSEN, facts)
    assert "a GPU (80 GiB), torch 2.13." in page
    for part in ("devices", "time_to_first_token", "splice", "decode_attention"):
        assert f"{part}.py |" in page
    assert ran.count(("devices.py", 1)) == 1


@pytest.mark.parametrize(("ends", "expected"), [(1, 0), (0, 1)])
def test_a_part_that_ends_otherwise_stops_it(gpu, ends: int, expected: int) -> None:
    command = [sys.executable, "-c", f"raise SystemExit({ends})"]
    with pytest.raises(gpu.Failed, match=f"ended with {ends}, expected {expected}"):
        gpu.run(command, expected=expected)


def test_a_part_that_fails_leaves_the_page(gpu, facts, monkeypatch, capsys) -> None:
    gpu.PAGE.write_text("as it was")

    def fails(*_: Any, **__: Any) -> list[str]:
        raise gpu.Failed("the tests ended with 1")

    monkeypatch.setattr(gpu, "FACTS", f"print({json.dumps(facts)!r})")
    monkeypatch.setattr(gpu, "run", fails)
    monkeypatch.setattr("sys.argv", ["gpu.py", "--python", sys.executable])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "the tests ended with 1; gpu.md stays as it is\n"
    assert gpu.PAGE.read_text() == "as it was"
