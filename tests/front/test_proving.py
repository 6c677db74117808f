"""The exit code of prove says whether all that is told holds."""

from dataclasses import replace

import pytest

from cacheproof.differential.verdict import HOLDS, UNLISTED, VOID
from cacheproof.proofs.evidence import Evidence, Outcome, RedTwin
from cacheproof.proving import exit_code

ROW = Evidence(
    "EC-1", "reference", "EncoderCacheManager", "proof", "unbounded", Outcome.HOLDS, "", "d", 0.0,
    (RedTwin("a change", refuted=True),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.HOLDS, HOLDS),
        (Outcome.REFUTED, UNLISTED),
        (Outcome.UNKNOWN, VOID),
        (Outcome.ALONE, VOID),
        (Outcome.DISAGREE, VOID),
        (Outcome.VACUOUS, VOID),
    ],
)
def test_one_row_decides(outcome: Outcome, code: int) -> None:
    assert exit_code([ROW, replace(ROW, outcome=outcome)], []) == code


def test_a_check_that_no_change_was_seen_to_fail_is_void() -> None:
    assert exit_code([replace(ROW, twins=())], []) == VOID
    assert exit_code([], []) == VOID
