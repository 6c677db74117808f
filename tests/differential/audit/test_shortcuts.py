"""What an audit does not ask again, it would have found to hold."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.judging import AuditJudge
from cacheproof.differential.judges.evaluator import Evaluator
from cacheproof.differential.judges.scheduler import SchedulerJudge
from cacheproof.spec.scheduler_records import Presence
from tests.differential.audit.spoiled import audit, file_of, parts_of, records_of, spoil
from tests.differential.recording.driven import Driven

SPOILED_EACH = 15


def said(auditor: Auditor) -> list[Any]:
    """How often each contract was broken, and where first."""
    found = [(one.violation.sentence, one.at) for one in auditor.found]
    return [auditor.account.broken, auditor.account.gaps, found, auditor.account.judged_steps]


def every_audit(driven: list[Driven]) -> Iterator[Auditor]:
    """Of right records, of planted faults, and of records that were spoiled."""
    for number, one in enumerate(driven):
        records = records_of(one.folder)
        yield audit(parts_of(file_of(records)), skips=True)
        for seed in range(SPOILED_EACH):
            spoiled = spoil(records, random.Random(1000 * number + seed))
            yield audit(parts_of(file_of(spoiled)), skips=True)


def audits(driven: list[Driven]) -> list[Any]:
    """What they say."""
    return list(map(said, every_audit(driven)))


def _asks_whole(patch: pytest.MonkeyPatch) -> None:
    """Have each contract asked as it stands, of every state and call."""

    def whole(name: str) -> Any:
        judged = getattr(Evaluator, name)

        def asked(self: Evaluator, *arguments: Any) -> None:
            judged(self, *arguments[:-1], changed=None)

        return asked

    patch.setattr(Evaluator, "transition", whole("transition"))
    patch.setattr(Evaluator, "state", whole("state"))


@pytest.mark.full
def test_narrowed_contracts_say_what_whole_ones_say(
    driven: list[Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrowed = audits(driven)
    assert len({contract for broken, *_ in narrowed for contract, _ in broken}) > 15
    _asks_whole(monkeypatch)
    assert audits(driven) == narrowed


@pytest.mark.full
def test_a_judge_that_says_that_nothing_changed_says_something_else(
    driven: list[Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = audits(driven)
    monkeypatch.setattr(AuditJudge, "_changed", lambda *_: ())
    assert audits(driven) != right


@pytest.mark.full
def test_who_is_there_is_asked_again_where_it_may_have_changed(
    driven: list[Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = audits(driven)
    judge_presence = SchedulerJudge._judge_presence

    def afresh(self: SchedulerJudge, event: Any, outcome: Any) -> None:
        self._presence = None, None, None
        judge_presence(self, event, outcome)

    def never_again(self: SchedulerJudge, event: Any, outcome: Any) -> None:
        judge_presence(self, event, outcome)
        self._presence = self._at.present, outcome["running"], outcome["waiting"]
        self._held[Presence] = self._present

    monkeypatch.setattr(SchedulerJudge, "_judge_presence", afresh)
    assert audits(driven) == asked
    assert any(("SC-19", "") in broken for broken, *_ in asked)
    monkeypatch.setattr(SchedulerJudge, "_judge_presence", never_again)
    assert audits(driven) != asked


def judges(driven: list[Driven]) -> Iterator[AuditJudge]:
    """Judges that have steps with which workers' stores are to be compared."""
    for auditor in every_audit(driven):
        if auditor.judge is not None and auditor.judge.steps:
            yield auditor.judge


def broken_by_stores(driven: list[Driven]) -> int:
    """How often stores that hold what they should break something."""
    count = 0
    for judge in judges(driven):
        for number, tokens, step, _ in list(judge.steps):
            judge.violations.clear()
            assert judge.judge_store(number, tokens, dict(step.store))
            count += len(judge.violations)
    return count


@pytest.mark.full
def test_a_store_that_lacks_an_entry_and_has_another_is_found(driven: list[Driven]) -> None:
    found = 0
    for judge in judges(driven):
        for number, tokens, step, held in list(judge.steps):
            if held and step.store:
                (_, size), *others = step.store.items()
                judge.violations.clear()
                assert judge.judge_store(number, tokens, {**dict(others), "another": size})
                assert judge.violations.keys() & {"WM-1", "WM-2"}  # an encoder-decoder has WM-2
                found += 1
                break
    assert found > 5


@pytest.mark.full
def test_a_store_as_it_should_be_is_asked_about_where_a_step_broke_something(
    driven: list[Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = broken_by_stores(driven)
    step = Evaluator.step

    def holds(self: Evaluator, *arguments: Any) -> bool:
        step(self, *arguments)
        return True

    monkeypatch.setattr(Evaluator, "step", holds)
    assert broken_by_stores(driven) < broken
