"""An audit of what a release's scheduler recorded comes to the harness's own verdict."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from cacheproof.differential.provision import releases
from cacheproof.differential.targets.host.faults.scheduler import SCHEDULER_FAULTS
from cacheproof.reference.releases import MODELLED, NEWEST
from cacheproof.spec.versions import Versions
from tests.differential.recording.driven import (
    Driven,
    found_by,
    long_trace,
    run_recorded,
    whole_traces,
)

INSTALLED = {release.version for release in releases.list_installed()}
OLDER = [
    pytest.param(release, marks=[pytest.mark.full] if release != "0.28.0" else [])
    for release in MODELLED
    if release in INSTALLED | {"0.28.0"} and release != NEWEST and release in Versions(">=0.10.2")
]
BESIDE_THE_HOST = ("offers_less", "allocates_again")
"""These stand between the host's recorder, which is told what the manager itself is asked, and
that of the record, which is told what the scheduler asks."""
UNSEEN = {
    "reads_what_nobody_wrote": "which KV a request reads",
    "overlooks_failed_loads": "a KV connector",
    "tells_of_a_block_too_few": "which KV a request reads",
    "counts_a_block_too_few": "which KV a request reads",
    "has_a_slot_too_many": "the configured size: a record has the size that came of it",
    "refuses_requests": "a request that was never taken in: it is told as an exception",
}
"""Faults in what no record says anything of."""

RARE = ("gives_back_in_reverse",)
"""Faults that break nothing in the first two traces of each lane: it takes two releases in a step
that leave entries idle."""


def differing(driven: Iterable[Driven]) -> list[str]:
    """Where the audit of a record without a gap says something else than the harness."""
    found = []
    for one in driven:
        audited = one.audited()
        expected = one.harness() - audited.silent
        if not audited.account.gap_count and found_by(audited) != expected:
            found.append(f"{one.folder}: {one.fault}: {sorted(found_by(audited) ^ expected)}")
    return found


@pytest.mark.full
@pytest.mark.parametrize("release", [NEWEST, *OLDER])
def test_the_audit_of_a_record_is_the_harness_s_verdict(release: str, tmp_path: Path) -> None:
    runs = [(trace, None) for trace in [*whole_traces(release, 3), long_trace(4)]]
    driven = run_recorded(release, runs, tmp_path)
    assert differing(driven) == []
    judged = [one for one in driven if not one.audited().account.gap_count]
    assert 2 * len(judged) > len(driven) > 0
    assert all(one.audited().account.judged_steps > 0 for one in judged)
    for one in driven:
        opened = one.audited().opened
        assert opened is not None
        assert opened.text is not None
        assert (opened.text.nearest, opened.text.differing) == (release, {})


@pytest.mark.full
@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.sample(24)) for name in SCHEDULER_FAULTS]
)
def test_a_planted_fault_is_found_as_the_harness_finds_it(fault: str, tmp_path: Path) -> None:
    count = 3 if fault in RARE else 2
    traces = [*whole_traces(NEWEST, count), long_trace(4)]
    runs = [(trace, named) for named in (None, fault) for trace in traces]
    driven = run_recorded(NEWEST, runs, tmp_path)
    if fault not in BESIDE_THE_HOST:
        assert differing(driven) == []
    found = {
        named: {
            (one.trace.header.generator, contract)
            for one in driven
            if one.fault == named
            for contract in found_by(one.audited())
        }
        for named in (None, fault)
    }
    assert bool(found[fault] - found[None]) != (fault in UNSEEN)
