"""Steps that say nothing new are judged as all others would be, only faster."""

import random
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from cacheproof.audit_report import _steps_before
from cacheproof.differential.audit import auditor as auditor_module
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.judging import AuditJudge
from cacheproof.differential.audit.steady import Steady
from cacheproof.differential.audit.streams import Part
from tests.differential.audit.spoiled import audit, file_of, parts_of, records_of, spoil
from tests.differential.recording.driven import Driven, found_by

SPOILED_EACH = 40


def verdict(auditor: Auditor) -> dict[str, Any]:
    """All that an audit says, and of each finding what is shown."""
    found = [
        (one.violation, one.record, one.step, one.at, _steps_before(one)) for one in auditor.found
    ]
    return {**asdict(auditor.account), "found": found, "events": auditor.events}


def differing(parts: Sequence[Part]) -> list[str]:
    """In what both ways differ."""
    short, long = (verdict(audit(parts, skips=skips)) for skips in (True, False))
    return [name for name in short if repr(short[name]) != repr(long[name])]


def skipped(monkeypatch: pytest.MonkeyPatch) -> list[Steady]:
    """Collects the steps that are judged the short way."""
    seen = []

    def noted(*arguments: Any) -> Steady:
        seen.append(Steady(*arguments))
        return seen[-1]

    monkeypatch.setattr(auditor_module, "Steady", noted)
    monkeypatch.setattr(noted, "observed", Steady.observed, raising=False)
    return seen


def test_both_ways_say_the_same_of_real_traces(driven: list[Driven]) -> None:
    for one in driven:
        assert differing(parts_of(file_of(records_of(one.folder)))) == []


def test_both_ways_say_the_same_of_records_in_which_something_was_changed(
    driven: list[Driven],
) -> None:
    broken, gaps = set(), 0
    for number, one in enumerate(driven):
        records = records_of(one.folder)
        for seed in range(SPOILED_EACH):
            draw = random.Random(1000 * number + seed)
            parts = parts_of(file_of(spoil(records, draw)))
            assert differing(parts) == [], (number, seed)
            ended = audit(parts, skips=True)
            broken |= found_by(ended)
            gaps += bool(ended.account.gap_count)
    assert len(broken) > 15
    assert gaps > 50


def test_an_engine_that_stands_still_is_found_at_the_same_step(driven: list[Driven]) -> None:
    (one,) = [one for one in driven if one.fault == "stops"]
    assert "LV-1" in found_by(one.audited())


def _never_leaves(self: Any) -> None:
    self._row = 0


def _stands_still_too(base: Any) -> Any:
    def wrong(self: Any, record: Any) -> Any:
        return base(self, record) or (None if record.outcome["scheduled"] else record.outcome)

    return wrong


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_leave_row", _never_leaves),
        ("_base", _stands_still_too(AuditJudge._base)),
    ],
)
def test_a_short_way_that_is_wrong_says_something_else(
    monkeypatch: pytest.MonkeyPatch, driven: list[Driven], name: str, wrong: Any
) -> None:
    monkeypatch.setattr(AuditJudge, name, wrong)
    assert any(differing(parts_of(file_of(records_of(one.folder)))) for one in driven)
