"""The timing of steps runs: it drives both schedulers by hand, past the sessions of the tests."""

import re

import pytest

pytestmark = pytest.mark.full


def test_a_round_times_both_sides(script, monkeypatch, capsys) -> None:
    monkeypatch.setattr(script, "WORKLOADS", [(2, 1_000)])
    monkeypatch.setattr("sys.argv", ["scheduler.py", "--rounds", "1"])
    script.main()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 2 |")]
    theirs, ours = (float(cell.split()[0]) for cell in line.split("|")[3:5])
    assert theirs > 0
    assert ours > 0
    assert re.search(r"\d\.\d\d \(\d\.\d\d to \d\.\d\d\) \|$", line)
