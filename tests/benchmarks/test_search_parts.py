"""What a search spends its processor time on."""

import time
from types import ModuleType

import pytest


def busy(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_what_is_done_within_another_part_counts_for_itself_alone(script: ModuleType) -> None:
    spending = script.Spending()
    within = spending.of("within", busy)
    with spending.on("around"):
        within(0.2)
        busy(0.1)
    assert 0.2 <= spending.seconds["within"] < sum(spending.seconds.values())
    assert spending.seconds["around"] < spending.seconds["within"]


def test_a_process_that_has_ended_has_used_nothing(script: ModuleType) -> None:
    assert script.used(2**30) == 0.0
    assert script.used(1) >= 0.0


@pytest.mark.full
def test_a_table_has_all_parts(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lanes = {name: script.LANES[name] for name in ("encoder cache", "scheduler")}
    monkeypatch.setattr(script, "LANES", lanes)
    monkeypatch.setattr("sys.argv", ["search_parts.py", "--seeds", "3"])
    script.main()
    out = capsys.readouterr().out
    for part in ("planted faults", "seeds", "telling causes apart", "imports"):
        assert f"| {part} |" in out
