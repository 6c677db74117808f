"""Steps that say nothing new are judged as all others would be, only faster."""

import random
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.judging import AuditJudge
from cacheproof.differential.audit.streams import Part
from cacheproof.differential.findings.leading import steps_before
from tests.differential.audit.spoiled import audit, file_of, parts_of, records_of, spoil
from tests.differential.recording.driven import Driven, found_by

SPOILED_EACH = 40


def verdict(auditor: Auditor) -> dict[str, Any]:
    """All that an audit says, and of each finding what is shown."""
    found = [
        (one.violation, one.at, steps_before(one.events, one.violation))
        for one in (*auditor.found, *auditor.last.values())
    ]
    return {**asdict(auditor.account), "found": found, "events": auditor.events}


def differing(parts: Sequence[Part]) -> list[str]:
    """In what both ways differ."""
    short, long = (verdict(audit(parts, skips=skips)) for skips in (True, False))
    return [name for name in short if repr(short[name]) != repr(long[name])]


def test_both_ways_say_the_same_of_real_traces(driven: list[Driven]) -> None:
    for one in driven:
        assert differing(parts_of(file_of(records_of(one.folder)))) == []


@pytest.mark.full
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


def _stands_still_too(quiet: Any) -> Any:
    def wrong(self: Any, record: Any) -> Any:
        return quiet(self, record) or (None if record.outcome["scheduled"] else record.outcome)

    return wrong


def _forgets_other_steps(steady_update: Any) -> Any:
    def wrong(self: Any) -> Any:
        outcome = steady_update(self)
        if outcome is not None:
            self._at.in_flight.append(outcome["scheduled"])
        return outcome

    return wrong


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("_quiet", _stands_still_too), ("steady_update", _forgets_other_steps)],
)
def test_a_short_way_that_is_wrong_says_something_else(
    monkeypatch: pytest.MonkeyPatch, driven: list[Driven], name: str, wrong: Any
) -> None:
    monkeypatch.setattr(AuditJudge, name, wrong(getattr(AuditJudge, name)))
    assert any(differing(parts_of(file_of(records_of(one.folder)))) for one in driven)


def test_most_steps_of_requests_that_decode_are_judged_the_short_way(
    monkeypatch: pytest.MonkeyPatch, driven: list[Driven]
) -> None:
    (one,) = [one for one in driven if one.fault is None and one.trace.header.seed is None]
    short = 0
    is_steady = Auditor._is_steady

    def counted(self: Auditor, *arguments: Any) -> bool:
        nonlocal short
        found = is_steady(self, *arguments)
        short += found
        return found

    monkeypatch.setattr(Auditor, "_is_steady", counted)
    assert short < one.audited().events < 2 * short
