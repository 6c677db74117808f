"""An engine ends several requests with one call, as it does for clients that hang up together."""

from pathlib import Path

import msgspec
import pytest

from cacheproof.differential.audit.streams import Numbered
from cacheproof.differential.recording.messages import Aborted, Message
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Abort, Schedule
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import NEWEST
from tests.differential import scheduler_traces
from tests.differential.recording.driven import audited, found_by, run_recorded
from tests.differential.recording.made import parts_of, written

STEP = [Schedule(), Update()]
TRACE = scheduler_traces.trace(
    *[Add(f"q{number}", prompt=9, items=(), max_tokens=20) for number in range(4)],
    *STEP * 3,
    Abort("q1"),
    Abort("q2"),
    *STEP * 3,
)


WITH_ITEMS = scheduler_traces.trace(
    *[
        Add(f"q{number}", prompt=3, items=(Item(f"item {number}", 0, 2),), max_tokens=20)
        for number in range(4)
    ],
    Schedule(),
    Abort("q1"),
    Abort("q2"),
    Update(),
    *STEP * 5,
)
"""Each that is ended holds an item, which its step has encoded."""


def record_of_one_call(folder: Path, trace: Trace = TRACE) -> list[Message]:
    """The record of the trace, with both aborts as one call's."""
    (driven,) = run_recorded(NEWEST, [(trace, None)], folder)
    messages: list[Message] = []
    for part in parts_of(*sorted(driven.folder.iterdir())):
        assert isinstance(part, Numbered)
        message = part.message
        if isinstance(message, Aborted) and isinstance(messages[-1], Aborted):
            before = messages.pop()
            assert isinstance(before, Aborted)
            message = msgspec.structs.replace(
                message,
                requests=[*before.requests, *message.requests],
                calls=[*before.calls, *message.calls],
            )
        messages.append(message)
    return messages


def broken(messages: list[Message], file: Path) -> set[str]:
    """What an audit of these messages finds, which judges every step."""
    file.parent.mkdir()
    file.write_bytes(written([messages]))
    auditor = audited(file)
    assert auditor.account.judged_steps == auditor.account.steps == 6
    return found_by(auditor)


@pytest.mark.full
def test_several_that_are_ended_at_once_are_all_ended(tmp_path: Path) -> None:
    messages = record_of_one_call(tmp_path)
    (ended,) = (one for one in messages if isinstance(one, Aborted))
    assert ended.requests == [1, 2]
    assert broken(messages, tmp_path / "changed" / "scheduler-1-1-000001.cprec") == set()


def test_who_is_ended_first_is_told_by_what_the_release_frees_first(tmp_path: Path) -> None:
    messages = [
        msgspec.structs.replace(one, requests=[2, 1]) if isinstance(one, Aborted) else one
        for one in record_of_one_call(tmp_path, WITH_ITEMS)
    ]
    (ended,) = (one for one in messages if isinstance(one, Aborted))
    assert [call[1] for call in ended.calls if call[6] is not None] == [1, 2]
    assert broken(messages, tmp_path / "changed" / "scheduler-1-1-000001.cprec") == set()


@pytest.mark.full
def test_one_that_is_gone_and_was_not_ended_is_missed(tmp_path: Path) -> None:
    messages = [
        msgspec.structs.replace(one, requests=[2]) if isinstance(one, Aborted) else one
        for one in record_of_one_call(tmp_path)
    ]
    assert "SC-19" in broken(messages, tmp_path / "changed" / "scheduler-1-1-000001.cprec")
