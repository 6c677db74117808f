"""Where two targets part, in the exceptions that end them."""

import pytest

from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.traces.records import Raised, StepRecord, TraceResult


def ended(raised: str | None) -> TraceResult:
    """One record, which ends with an exception of that type, or with none."""
    record = StepRecord(
        outcome=None,
        calls=[],
        state=None,
        raised=None if raised is None else Raised(raised, raised),
    )
    return TraceResult([record])


@pytest.mark.parametrize(
    ("ours", "theirs", "part"),
    [
        ("AssertionError", "AssertionError", False),
        ("AssertionError", "ValueError", True),
        ("EncoderCacheMiss", "AssertionError", False),
        ("RuntimeError", "EncoderCacheMiss", False),
        ("EncoderCacheMiss", None, True),
        (None, "AssertionError", True),
        (None, None, False),
    ],
)
def test_a_worker_misses_a_row_in_its_own_words(
    ours: str | None, theirs: str | None, *, part: bool
) -> None:
    difference = compare(ended(ours), ended(theirs))
    assert (difference is not None) is part
    if difference is not None:
        assert difference.field == "exception"
