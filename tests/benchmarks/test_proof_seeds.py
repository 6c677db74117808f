"""A row that hangs on the solver's seed is told, and fails the command."""

from typing import Any

import pytest

from benchmarks import proof_seeds

ROW: dict[str, Any] = {
    "contract": "EC-1",
    "target": "reference",
    "subject": "EncoderCacheManager",
    "method": "proof",
    "scope": "unbounded",
    "outcome": "holds",
    "digest": "d",
    "work_max": 0.02,
}
OTHERWISE = {**ROW, "outcome": "unknown"}


def test_rows_alike_differ_in_nothing() -> None:
    by_seed = {0: [ROW], 1: [{**ROW, "work_max": 0.03}]}
    assert list(proof_seeds.differing(by_seed)) == []


@pytest.mark.parametrize("other", [[OTHERWISE], [], [ROW, OTHERWISE]])
def test_a_row_that_one_seed_makes_otherwise_is_told(other: list[dict[str, Any]]) -> None:
    assert list(proof_seeds.differing({0: [ROW], 1: other, 2: [ROW]}))


def test_a_seed_under_which_prove_fails_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_seeds.sys, "executable", "false")
    with pytest.raises(SystemExit, match="seed 3: exit code 1"):
        proof_seeds.evidence(3, ["reference"])
