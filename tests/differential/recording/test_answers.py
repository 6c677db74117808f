"""A front end that cannot go on with what an engine said leaves word of it; an audit tells it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cacheproof.audit.answer import Answered, headline
from cacheproof.audit.listing import ENDED_WITHOUT_RESULT, Listing
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.streams import Folder, Numbered
from cacheproof.differential.recording.answers import AnswersRecording
from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.messages import SCHEMA, AnswersFailed, Opened, Raised
from cacheproof.differential.recording.writer import Limits, Writer
from cacheproof.differential.search.fault_folders import load
from cacheproof.reference.releases import NEWEST

OPENED = Opened(SCHEMA, "answers", "", NEWEST, 1, 0, 0.0, True)
FAULTS = load()


class Processor:
    """Stands in for vLLM's: tokens are wanted of what has no result."""

    def __init__(self, **is_pooling: bool) -> None:
        self.request_states = {
            name: SimpleNamespace(detokenizer=None if pooling else object())
            for name, pooling in is_pooling.items()
        }

    def process_outputs(self, engine_core_outputs: list[Any]) -> int:
        for one in engine_core_outputs:
            if one.pooling_output is None:
                assert self.request_states[one.request_id].detokenizer is not None, "no detokenizer"
        return len(engine_core_outputs)


def output(name: str, reason: str | None = "abort", result: object = None) -> SimpleNamespace:
    return SimpleNamespace(request_id=name, finish_reason=reason, pooling_output=result)


def recorded(folder: Path, processor: Processor, *outputs: SimpleNamespace) -> list[Numbered]:
    """What is written of a call that may raise."""
    writers: list[Writer] = []

    def records() -> Writer:
        writers.append(Writer(folder, "answers-1-1", Limits()))
        return writers[0]

    AnswersRecording(processor, records, Hasher(b"salt", plain=True), OPENED)
    try:
        processor.process_outputs(list(outputs))
    except AssertionError:
        assert writers
    for writer in writers:
        writer.close()
    read = Folder(folder)
    read.look()
    parts = [part for stream in read.streams.values() for part in stream.end()]
    return [part for part in parts if isinstance(part, Numbered)]


def told(parts: list[Numbered], release: str | None) -> Answered:
    auditor = Auditor()
    auditor.release = release
    for part in parts:
        auditor.feed_media("answers", part, 5.0)
    return Answered.of("engine", auditor, Listing(FAULTS))


def test_what_goes_well_leaves_no_file(tmp_path: Path) -> None:
    processor = Processor(a=True, b=False)
    assert recorded(tmp_path, processor, output("a", result=object()), output("b")) == []
    assert list(tmp_path.iterdir()) == []


def test_a_request_that_is_ended_without_a_result_is_told_as_the_listed_fault(
    tmp_path: Path,
) -> None:
    processor = Processor(a=True, b=False, c=True)
    parts = recorded(tmp_path, processor, output("b"), output("a"), output("c", None, object()))
    opened, raised, failed = (part.message for part in parts)
    assert isinstance(opened, Opened)
    assert isinstance(raised, Raised)
    assert (raised.operation, raised.error) == ("process_outputs", "AssertionError")
    assert isinstance(failed, AnswersFailed)
    assert failed.ended == ["abort"]
    one = told(parts, NEWEST)
    assert (
        f"front end ended, 1970-01-01 00:00:05 UTC, of a known fault, {ENDED_WITHOUT_RESULT}"
        in (headline(one))
    )
    assert ("told that", "the engine had ended a request without a result (abort)") in one.death()
    assert one.auditor.account.raised == {"process_outputs: AssertionError": 1}


@pytest.mark.parametrize(
    ("release", "reason"), [(NEWEST, None), (None, "abort"), ("0.10.2", "abort")]
)
def test_another_end_is_none_that_is_listed(
    tmp_path: Path, release: str | None, reason: str | None
) -> None:
    one = told(recorded(tmp_path, Processor(a=True), output("a", reason)), release)
    assert one.front_end_ended is not None
    assert one.front_end_faults == []
    assert "of what no listed fault does" in headline(one)
