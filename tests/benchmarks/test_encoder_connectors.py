"""The page of connectors says what a run of the newest release shows."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from cacheproof.reference.releases import NEWEST

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("encoder_connectors")


def test_releases_that_differ_are_told_apart(script) -> None:
    told = {"0.30.0": "kept", "0.31.0": "serves other rows", "0.32.0": "kept"}
    assert script._by_release(told) == "kept (0.30.0, 0.32.0); serves other rows (0.31.0)"
    assert script._by_release({"0.30.0": "kept", "0.31.0": "kept"}) == "kept"


@pytest.mark.full
def test_the_page_is_what_a_run_shows(script, monkeypatch, capsys) -> None:
    monkeypatch.setattr(script, "FIRST", NEWEST)
    script.main()
    ran = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    page = (ROOT / "docs" / "encoder-connectors-checked.md").read_text().splitlines()
    assert ran == [line for line in page if line.startswith("|")]
    assert len(ran) == 2 + len(script.SCENARIOS)
