"""The timing of the lockstep runs: the release alone, beside the reference, and that judged."""

import pytest

pytestmark = pytest.mark.full


def test_a_round_times_the_release_alone_the_lockstep_and_the_reference(
    script, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(script, "SEEDS", range(1))
    monkeypatch.setattr("sys.argv", ["scheduler_lockstep.py", "--rounds", "1"])
    script.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if "steps" not in line]
    rates = [float(line.split("|")[2].split()[0].replace(",", "")) for line in lines[-3:]]
    assert all(rate > 0 for rate in rates)
