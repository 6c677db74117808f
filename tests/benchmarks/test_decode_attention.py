"""Both ways of attending are timed, once they have answered alike."""

import pytest

pytestmark = pytest.mark.full


def test_a_round_times_both_ways(script, monkeypatch, capsys) -> None:
    monkeypatch.setattr(script, "CASES", [script.Case(4, 2, 8, 5, 3, 90)])
    monkeypatch.setattr("sys.argv", ["decode_attention.py", "--rounds", "1"])
    script.main()
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith("| 4 on 2 of 8 | 5 | 3 to 90 | ")
