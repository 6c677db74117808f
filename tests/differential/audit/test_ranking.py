"""What an engine died of comes before all else that it broke."""

from dataclasses import replace

import pytest

from cacheproof.differential.audit.account import At, Failure, FoundBreak
from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.ranking import ranked
from cacheproof.differential.audit.streams import Numbered
from cacheproof.differential.judges import rules  # noqa: F401  (registers all contracts)
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.recording.messages import (
    SCHEMA,
    AnyMessage,
    Opened,
    Raised,
    Scheduled,
    Stored,
)
from cacheproof.reference.releases import NEWEST
from cacheproof.spec.registry import by_id
from tests.differential.recording.made import updated

DIED = Failure("execute_model", "RuntimeError", "Encoder cache miss", "", step=50)
SCHEDULED = Scheduled(1, [], [], None, {}, [], [], {}, [], None, None, 9, {})
STORED = Stored(1, 50, 3, {})


def audited(*steps: tuple[str, int, int], died: Failure | None = DIED) -> Auditor:
    """Of each contract the steps of its first and last break, in the order in which they broke."""
    auditor = Auditor()
    for contract, first, last in steps:
        found = FoundBreak(
            Violation(by_id(contract), 0, "schedule", "", "", "why"), At(first, first, 0.0, 0), ()
        )
        auditor.found.append(found)
        auditor.last[found.key] = replace(found, at=At(last, last, 0.0, 0))
        auditor.account.broken[found.key] = last - first + 1
    if died is not None:
        auditor._failures[0] = died
    return auditor


def order(auditor: Auditor) -> list[str]:
    return [one.first.key[0] for one in ranked(auditor)]


def test_the_fatal_break_comes_first_whatever_broke_before() -> None:
    steps = ("EC-8b", 2, 50), ("EC-6", 9, 9), ("SC-9", 50, 50)
    assert order(audited(*steps)) == ["SC-9", "EC-6", "EC-8b"]
    assert [one.is_fatal for one in ranked(audited(*steps))] == [True, False, False]


def test_of_an_engine_that_lives_what_harms_most_comes_first_and_then_what_broke_first() -> None:
    steps = ("EC-8b", 2, 50), ("LV-1", 3, 3), ("EC-6", 9, 9), ("SC-9", 50, 50)
    assert order(audited(*steps, died=None)) == ["EC-6", "SC-9", "LV-1", "EC-8b"]
    assert not any(one.is_fatal for one in ranked(audited(*steps, died=None)))


def test_what_has_been_broken_for_long_is_less_likely_to_be_why() -> None:
    assert order(audited(("WM-1", 4, 50), ("WM-2", 50, 50))) == ["WM-2", "WM-1"]
    (alone,) = ranked(audited(("WM-1", 4, 50)))
    assert alone.is_fatal
    assert (alone.first.at.step, alone.shown.at.step) == (4, 50)


@pytest.mark.parametrize("steps", [("EC-8b", 50, 50), ("SC-9", 40, 49)])
def test_an_engine_dies_of_no_break_that_costs_time_alone_or_that_was_before(
    steps: tuple[str, int, int],
) -> None:
    assert not any(one.is_fatal for one in ranked(audited(steps)))


@pytest.mark.parametrize(
    ("contract", "is_fatal"), [("PM-2", False), ("PM-3", False), ("PM-8", True)]
)
def test_a_request_that_is_refused_ends_no_engine(contract: str, is_fatal: bool) -> None:
    (one,) = ranked(audited((contract, 50, 50)))
    assert one.is_fatal is is_fatal


@pytest.mark.parametrize(
    ("operation", "dies"),
    [("get_and_update_features", True), ("recording", False), ("clear_cache", False)],
)
def test_a_worker_dies_of_what_it_cannot_read_in_shared_memory(operation: str, dies: bool) -> None:
    auditor = Auditor()
    opened = Opened(SCHEMA, "receiver", "", NEWEST, 1, 0, 0.0, True, settings={"store": "shm"})
    raised = Raised(0, operation, "ValueError", "it is another's", [])
    for number, message in enumerate((opened, raised)):
        auditor.feed_media("receiver", Numbered(number, message), 1.0)
    assert (auditor.fatal is not None) is dies
    assert auditor.account.raised == {f"{operation}: ValueError": 1}
    assert auditor.account.gap_count == (operation == "recording")


def engine_of(role: str, process: int, parent: int) -> str | None:
    """The engine that a process belongs to: one of process 30 under 20, or one of 31 under 10."""
    audit_of = Audit(".", waits=True)
    for stem, of, under in (("one", 30, 20), ("other", 31, 10)):
        auditor = audit_of.auditors[stem] = Auditor()
        auditor.opened = Opened(SCHEMA, "scheduler", "", NEWEST, of, under, 0.0, True)
    found = Opened(SCHEMA, role, "", NEWEST, process, parent, 0.0, True)
    return audit_of._engine_of(found)


def test_each_process_belongs_to_its_engine() -> None:
    assert engine_of("worker", 40, 30) == "one"
    assert engine_of("sender", 20, 1) == "one"
    assert engine_of("receiver", 41, 31) == "other"
    assert engine_of("answers", 50, 10) == "other"  # beside it, under who has started both
    assert engine_of("worker", 50, 10) is None
    assert engine_of("answers", 50, 11) is None


def fed(*messages: AnyMessage, worker: tuple[AnyMessage, ...] = ()) -> Auditor:
    auditor = Auditor()
    for number, message in enumerate(messages):
        auditor.feed(Numbered(number, message))
    for number, message in enumerate(worker):
        auditor.feed_worker(0, Numbered(number, message))
    return auditor


def test_the_exception_is_fatal_after_which_nothing_follows() -> None:
    raised = Raised(1, "schedule", "AssertionError", "", [])
    fatal = fed(SCHEDULED, raised).fatal
    assert fatal is not None
    assert (fatal.words, fatal.step) == ("AssertionError", 1)
    assert fed(SCHEDULED, raised, updated(1)).fatal is not None
    assert fed(SCHEDULED, raised, SCHEDULED).fatal is None


def test_a_worker_that_goes_on_has_not_died() -> None:
    raised = Raised(1, "execute_model", "RuntimeError", "no", [], "", 51)
    fatal = fed(worker=(STORED, raised)).fatal
    assert fatal is not None
    assert (fatal.words, fatal.step) == ("RuntimeError: no", 51)
    assert fed(worker=(raised, STORED)).fatal is None


def test_of_a_record_that_does_not_say_in_which_step_a_worker_raised_it_is_the_next() -> None:
    fatal = fed(worker=(STORED, Raised(0, "execute_model", "RuntimeError", "", []))).fatal
    assert fatal is not None
    assert fatal.step == STORED.step + 1


def test_an_exception_outside_of_steps_ends_no_engine() -> None:
    auditor = fed(Raised(1, "add_request", "ValueError", "", []))
    assert auditor.fatal is None
    assert auditor.account.raised == {"add_request: ValueError": 1}
