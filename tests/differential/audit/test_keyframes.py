"""An audit begins at any keyframe, and goes on at the next one behind a gap."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.judging import AuditJudge
from cacheproof.differential.recording.messages import Keyframe, Opened
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.reference.releases import NEWEST
from tests.differential import scheduler_traces
from tests.differential.audit.conftest import PLANTED
from tests.differential.audit.spoiled import audit, file_of, parts_of, records_of
from tests.differential.recording.driven import Driven, found_by, run_recorded


def keyframes_of(records: Sequence[Any]) -> list[int]:
    """Where a record's keyframes are, the first left out."""
    places = [place for place, one in enumerate(records) if one[0] == "k"]
    return places[1:]


def from_keyframe(records: Sequence[Any], place: int) -> Auditor:
    """The audit of what a later file holds: the head, and all from that keyframe on."""
    return audit(parts_of(file_of([records[0], *records[place:]])), skips=True)


def times_broken(auditor: Auditor) -> Counter[str]:
    """How often each contract was broken."""
    count: Counter[str] = Counter()
    for (contract, _), times in auditor.account.broken.items():
        count[contract] += times
    return count


def breaks_after(records: Sequence[Any], place: int) -> Counter[str]:
    """What the audit of the whole record finds broken from there on."""
    whole = audit(parts_of(file_of(records)), skips=True)
    until = audit(parts_of(file_of(records[:place])), skips=True)
    return times_broken(whole) - times_broken(until)


@pytest.mark.full
def test_a_later_beginning_cries_no_wolf_on_right_traces(driven: list[Driven]) -> None:
    begun = 0
    for one in driven:
        if one.fault is not None:
            continue
        records = records_of(one.folder)
        for place in keyframes_of(records):
            late = from_keyframe(records, place)
            begun += late.account.judged_steps > 0
            assert found_by(late) <= found_by(one.audited()), (one.trace.header, place)
    assert begun > 20


@pytest.mark.full
@pytest.mark.parametrize("fault", PLANTED)
def test_a_later_beginning_finds_the_fault_that_is_met_after_it(
    driven: list[Driven], fault: str
) -> None:
    (one,) = [one for one in driven if one.fault == fault]
    records = records_of(one.folder)
    compared = 0
    for place in keyframes_of(records):
        after = breaks_after(records, place)
        assert set(after) == found_by(from_keyframe(records, place)), place
        compared += bool(after)
    assert compared > 0


@pytest.mark.full
def test_a_beginning_that_forgets_what_is_idle_cries_wolf(
    driven: list[Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_at = AuditJudge._begin_at

    def forgetful(self: AuditJudge, keyframe: Keyframe) -> None:
        begin_at(self, msgspec.structs.replace(keyframe, queue=[]))

    monkeypatch.setattr(AuditJudge, "_begin_at", forgetful)
    with pytest.raises(AssertionError):
        test_a_later_beginning_cries_no_wolf_on_right_traces(driven)


def test_a_gap_suspends_judging_until_the_next_keyframe(driven: list[Driven]) -> None:
    (one,) = [one for one in driven if one.fault is None and one.trace.header.seed is None]
    records = records_of(one.folder)
    missing = 64
    (resumed,) = [place for place in keyframes_of(records) if place >= missing + 8][:1]
    ended = audit(parts_of(file_of(records, missing)), skips=True)
    assert ended.account.gaps == ["8 records are missing"]
    assert ended.account.unjudged_records == resumed - (missing + 8)
    unseen = sum(one[0] == "s" for one in records[missing : missing + 8])
    unjudged = sum(one[0] == "s" for one in records[missing + 8 : resumed])
    whole = one.audited().account
    assert ended.account.steps == whole.steps - unseen
    assert ended.account.judged_steps == whole.judged_steps - unseen - unjudged
    assert found_by(ended) == set()


def test_a_keyframe_that_shows_something_else_than_the_records_before_it_is_a_gap(
    driven: list[Driven],
) -> None:
    one = driven[-1]
    records = records_of(one.folder)
    (place, *_) = keyframes_of(records)
    records[place][8] += 1  # free slots
    (gap, *_) = audit(parts_of(file_of(records)), skips=True).account.gaps
    assert gap == f"keyframe {place} shows other free slots than the records before it"


@pytest.mark.full
def test_an_engine_of_text_alone_is_judged(tmp_path: Path) -> None:
    """Its encoder cache has no room, and nothing is budgeted for encoders."""
    asked = [Add(f"q{number}", prompt=20, max_tokens=9) for number in range(3)]
    trace = scheduler_traces.trace(*asked, *[Schedule(), Update()] * 12)
    (one,) = run_recorded(NEWEST, [(trace, None)], tmp_path, 7)
    records = records_of(one.folder)
    fields = {"o": Opened.__struct_fields__, "k": Keyframe.__struct_fields__}
    for record in records:
        for number, name in enumerate(fields.get(record[0], ()), 1):
            if name == "settings":
                record[number] |= {"capacity": 0, "compute_budget": 0}
            elif name in ("free_slots", "freeable_slots"):
                record[number] = 0
    judged = audit(parts_of(file_of(records)), skips=True)
    assert (found_by(judged), judged.account.gaps) == (set(), [])
    assert judged.account.judged_steps == 12
