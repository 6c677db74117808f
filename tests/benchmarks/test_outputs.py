"""The table of all engines: a row for each and each model, and an exit code that tells."""

from collections import Counter
from types import SimpleNamespace

import pytest


@pytest.fixture
def engines(script, monkeypatch) -> None:
    """Two engines that answer as the runner does, but one of them to a Whisper."""

    def compare(engine, runner, model, seeds, *, ahead, asked, under):
        counts = Counter(workloads=len(seeds), steps=30, tokens=20, **{"equal tokens": 20})
        tally = script.Tally(counts, logprob_apart=2e-5, broken=Counter({"ED-1": 2}))
        if (engine.name, model) != ("engine@0.32.0", "whisper"):
            return tally, []
        tally.counts["workloads"] -= 1
        return tally, [(1, "token of r2: 5 against 6")]

    def pair_of(name):
        target = SimpleNamespace(name=name, close=lambda: None)
        return target, target

    monkeypatch.setattr(script.sources, "engines", lambda: ["0.31.0", "0.32.0"])
    monkeypatch.setattr(script, "pair_of", pair_of)
    monkeypatch.setattr(script, "compare", compare)


@pytest.fixture(autouse=True)
def words(monkeypatch) -> None:
    """What the script is called with."""
    monkeypatch.setattr("sys.argv", ["outputs.py", "--all", "--workloads", "3"])


def test_each_engine_and_model_has_a_row_and_a_difference_is_told(script, engines, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 1
    rows = capsys.readouterr().out.splitlines()
    assert "| 0.32.0 | whisper | 3 | 0 | 1 | 30 | 20 | 20 | 2.0e-05 | ED-1 2 |" in rows
    assert "| 0.31.0 | whisper | 3 | 0 | 0 | 30 | 20 | 20 | 2.0e-05 | ED-1 2 |" in rows
    models = {of: sum(row.startswith(f"| {of} ") for row in rows) for of in ("0.31.0", "0.32.0")}
    assert models == {"0.31.0": 6, "0.32.0": 6}
    assert rows[-1] == "0.32.0, whisper, seed 1: token of r2: 5 against 6"


@pytest.mark.parametrize(
    ("words", "models"),
    [
        (["--asked", "adapters"], ["llava"]),
        (["--asked", "tower adapters"], ["qwen2_5_vl"]),
        (["--ahead", "--asked", "adapters"], []),
        (["--runner", "second", "--asked", "priority"], ["llava"]),
        (
            ["--runner", "second", "--ahead"],
            ["llava", "qwen2_5_vl", "qwen3_vl", "qwen2_audio", "cohere2_vision"],
        ),
    ],
)
def test_what_requests_ask_for_has_rows_of_the_models_that_are_searched_so(
    script, engines, monkeypatch, capsys, words, models
) -> None:
    monkeypatch.setattr(script.sources, "engines", lambda: ["0.32.0"])
    monkeypatch.setattr("sys.argv", ["outputs.py", "--all", *words])
    script.main()
    rows = [row.split(" | ")[1] for row in capsys.readouterr().out.splitlines() if "0.32.0" in row]
    assert rows == models


def test_engines_that_answer_alike_are_no_failure(script, engines, monkeypatch, capsys) -> None:
    monkeypatch.setattr(script.sources, "engines", lambda: ["0.31.0"])
    script.main()
    *_, last = capsys.readouterr().out.splitlines()
    assert last == "| 0.31.0 | whisper | 3 | 0 | 0 | 30 | 20 | 20 | 2.0e-05 | ED-1 2 |"
