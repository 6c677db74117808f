"""The page of connectors says what a run of the newest releases shows."""

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("encoder_connectors")


def rows(script: Any, broken: dict[tuple[str, str], int]) -> list[str]:
    """The page's rows where every connector breaks these."""
    said = {
        script.Task(target, column.lane, 10): (broken, [])
        for column in script.columns()
        for target in column.targets.values()
    }
    return [line for line in "\n".join(script.page(said, 10)).splitlines() if "| EX-" in line]


def test_a_cell_says_how_often_a_rule_broke_and_after_what(script: Any) -> None:
    broken = {("EX-4", ""): 2, ("EX-4", "of another model"): 3, ("EX-2", ""): 1}
    shown = rows(script, broken)
    assert all("2, 3 of another model" in line for line in shown if "| EX-4:" in line)
    assert len([line for line in shown if "| EX-2:" in line]) == len(script.columns())
    assert all("| kept |" in line for line in shown if "| EX-1:" in line)


def test_a_rule_of_which_a_lane_says_nothing_has_no_row(script: Any) -> None:
    assert len([line for line in rows(script, {}) if "| EX-2:" in line]) == 2


def test_the_page_has_the_columns_that_there_are(script: Any) -> None:
    page = (ROOT / "docs" / "evidence" / "encoder-connectors-checked.md").read_text()
    titles = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert titles == [column.name for column in script.columns()]
    for column in script.columns():
        assert f"| | {' | '.join(column.targets)} |" in page


@pytest.mark.full
def test_the_page_is_what_a_run_shows(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own,) = [one for one in script.columns() if one.name == "cacheproof's, on a disk"]
    monkeypatch.setattr(script, "columns", lambda: [own])
    monkeypatch.setattr("sys.argv", ["encoder_connectors", "--seeds", "20"])
    script.main()
    ran = [line for line in capsys.readouterr().out.splitlines() if "| EX-" in line]
    assert len(ran) == 9
    assert all(line.count("kept") == len(own.targets) for line in ran)
