"""What an audit does not ask again, it would have found to hold."""

import random
from collections.abc import Iterator
from copy import copy
from typing import Any

import pytest

from cacheproof.differential.audit import judging, shortcuts
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.judging import AuditJudge
from cacheproof.differential.audit.shortcuts import ShortcutJudge, is_kept
from cacheproof.differential.judges.evaluator import Evaluator
from cacheproof.differential.judges.manager import ManagerJudge
from cacheproof.differential.judges.rules import (
    SCHEDULER,
    Rules,
    by_subject,
    rules_for,
    rules_of,
)
from cacheproof.differential.judges.scheduler import SchedulerJudge
from cacheproof.differential.recording.messages import OPERATIONS
from cacheproof.spec.records import Step
from cacheproof.spec.registry import Contract, contracts
from cacheproof.spec.scheduler_records import (
    Claims,
    Fills,
    Inputs,
    Overtaking,
    Presence,
    Reads,
    Stops,
    Telling,
)
from tests.differential.audit.spoiled import audit, file_of, parts_of, records_of, spoil
from tests.differential.judges.drawing import records
from tests.differential.recording.driven import Driven, found_by

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


CHECK = OPERATIONS.index("check")


def _claims_that_are_not_noted(driven: list[Driven]) -> Iterator[list[Any]]:
    """Right records in which a manager says that it has an item, and notes no holder."""
    for one in driven:
        records = [] if one.fault else records_of(one.folder)
        for record in records:
            calls = record[7] if record[0] == "s" else []
            hits = [at for at, call in enumerate(calls) if call[0] == CHECK and call[6]]
            if hits and one.trace.header.manager == "encoder_cache":
                record[7] = [*calls[: hits[0]], [*calls[hits[0]][:6], None], *calls[hits[0] + 1 :]]
                yield records
                break


def _found_in(records: list[Any]) -> set[str]:
    return found_by(audit(parts_of(file_of(records)), skips=True))


def test_a_claim_that_changes_nothing_else_is_followed(
    driven: list[Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled = list(_claims_that_are_not_noted(driven))
    assert len(spoiled) > 3
    assert all("EC-6a" in _found_in(records) for records in spoiled)
    following = shortcuts._following_claims

    def told_nothing(rules: Rules) -> Rules:
        told = copy(following(rules))
        holds = told.narrowed.states
        told.narrowed = told.narrowed._replace(
            states=lambda pre, s, g, changed: holds(pre, s, g, changed if pre is not s else ())
        )
        return told

    monkeypatch.setattr(shortcuts, "_following_claims", told_nothing)
    assert not all("EC-6a" in _found_in(records) for records in spoiled)


def _never(*_: Any) -> bool:
    return False


def _always(*_: Any) -> bool:
    return True


@pytest.mark.full
def test_a_quiet_step_is_judged_as_any_other(
    driven: list[Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = audits(driven)
    monkeypatch.setattr(ShortcutJudge, "_is_as_it_was", _never)
    assert audits(driven) == short
    monkeypatch.setattr(ShortcutJudge, "_is_as_it_was", _always)
    assert audits(driven) != short


@pytest.mark.full
def test_a_step_with_the_entries_of_the_one_before_is_judged_as_any_other(
    driven: list[Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = audits(driven)
    with monkeypatch.context() as patch:
        patch.setattr(shortcuts, "_has_same_entries", _never)
        assert audits(driven) == short
    monkeypatch.setattr(shortcuts, "_has_same_entries", _always)
    assert audits(driven) != short


@pytest.mark.full
def test_a_call_that_is_judged_the_short_way_is_judged_as_any_other(
    driven: list[Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = audits(driven)
    with monkeypatch.context() as patch:
        patch.setattr(ShortcutJudge, "_call", ManagerJudge._call)
        assert audits(driven) == short
    made = shortcuts._made
    monkeypatch.setattr(shortcuts, "_made", lambda told: made(told)._replace(granted=False))
    assert audits(driven) != short


@pytest.mark.full
def test_contracts_that_are_all_said_to_hold_are_missed(
    driven: list[Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = audits(driven)

    def said_to_hold(*arguments: Any) -> Any:
        rules = copy(rules_of(*arguments))
        subjects = dict.fromkeys(rules.of_scheduler, _always)
        rules.narrowed = rules.narrowed._replace(step=_always, of_scheduler=subjects)
        return rules

    monkeypatch.setattr(judging, "rules_of", said_to_hold)
    assert audits(driven) != asked


EMPTY = (
    Inputs({}, {}),
    Fills((), {"h0"}),
    Reads({}, {"h0"}, {}, {"h0"}),
    Claims({}, {}),
    Stops({"r0": 4}, {}, {}),
    Telling({"r0": 1}, {}, {}, 1),
    Overtaking(set(), set(), set(), set(), set(), set()),
)
"""What contracts look at in a quiet step, and are not asked about."""


@pytest.mark.parametrize("record", EMPTY, ids=lambda record: type(record).__name__)
def test_of_what_is_empty_all_contracts_hold(record: Any) -> None:
    asked = by_subject(contracts(SCHEDULER, None))[type(record)]
    assert all(rule.predicate(record) for rule in asked)


def test_contracts_of_steps_that_look_at_entries_alone_are_kept() -> None:
    kept = {
        manager: [
            rule.id for rule in rules_for(manager, None, "scheduler").of_step if is_kept(rule)
        ]
        for manager in ("encoder_cache", "encoder_decoder")
    }
    assert kept == {
        "encoder_cache": ["EC-8b", "EC-9", "WM-1", "WM-2", "WM-3", "WM-4"],
        "encoder_decoder": ["WM-2", "WM-3", "WM-4"],
    }


def _broken_by_an_idle_step(rule: Contract) -> int:
    """How often a step that does nothing with entries breaks a contract that the step before it,
    with the same entries, has kept."""
    steps = [one for one in records(Step, range(3000)) if rule.predicate(one)]
    assert len(steps) > 50
    nothing: dict[str, Any] = dict.fromkeys(("encoded", "gathered", "evicting"), frozenset())
    idle = [one._replace(before=one.store, notices=(), **nothing) for one in steps]
    return sum(not rule.predicate(one) for one in idle)


def test_an_idle_step_keeps_them() -> None:
    rules = rules_for("encoder_cache", None, "scheduler").of_step
    assert [_broken_by_an_idle_step(rule) for rule in rules] == [0] * len(rules)


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
