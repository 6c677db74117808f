"""Steps that encode for new requests beside some that start over, as an audit sees them."""

from pathlib import Path

from cacheproof.audit.listing import ANOTHER_SOUND, of_mixed_steps
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.reference.releases import NEWEST
from tests.differential.recording.driven import Driven, run_recorded, whole_traces

LANES = ("scheduler of encoder-decoders", "scheduler")


def num_mixed(one: Driven) -> int:
    """How many steps of a decoder's run encode for both."""
    if one.trace.header.manager != "encoder_decoder":
        return 0
    steps = zip(one.trace.events, one.result.records, strict=False)
    outcomes = [record.outcome for event, record in steps if isinstance(event, Schedule)]
    return sum(
        all(set(step["encode"]) & set(step[kind]) for kind in ("new", "resumed"))
        for step in outcomes
    )


def test_an_audit_sees_each_of_them_and_no_other(tmp_path: Path) -> None:
    runs = [(trace, None) for trace in whole_traces(NEWEST, 30, LANES)]
    driven = run_recorded(NEWEST, runs, tmp_path)
    assert {one.trace.header.manager for one in driven} == {"encoder_cache", "encoder_decoder"}
    found = [len(one.audited().mixed) for one in driven]
    assert found == [num_mixed(one) for one in driven]
    assert sum(found) > 3


def test_they_are_a_listed_fault_of_releases_that_have_it(tmp_path: Path) -> None:
    (one,) = run_recorded(NEWEST, [(next(whole_traces(NEWEST, 1, LANES[:1])), None)], tmp_path)
    auditor, faults = one.audited(), load()
    fault = of_mixed_steps(faults, auditor)
    assert fault is not None
    assert fault.name == ANOTHER_SOUND
    assert of_mixed_steps([one for one in faults if one is not fault], auditor) is None
    auditor.release = None
    assert of_mixed_steps(faults, auditor) is None
    assert of_mixed_steps(faults, Auditor()) is None
