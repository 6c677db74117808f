"""A job's rows: what holds, what is refuted by which trace, and which green would say nothing."""

import pytest

from cacheproof.differential.provision.releases import install
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.canary import NO_CANARY
from cacheproof.differential.search.explore.job import ExploreReport, Task, run, variants
from cacheproof.differential.search.explore.scopes import SMALL
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.spec.evidence import Outcome, digest_of

DECODERS = tuple(scope for scope in SMALL if scope.subject == "encoder_decoder")
SHARED = tuple(scope for scope in SMALL if scope.subject == "encoder_cache")
REPEATED = tuple(scope for scope in SHARED if scope.name == "repeated item")


@pytest.fixture(scope="module")
def reference() -> ExploreReport:
    return run([Task("reference", "encoder_decoder", DECODERS)])[0]


@pytest.mark.full
def test_every_contract_of_the_reference_holds_and_has_refuted_a_red_twin(
    reference: ExploreReport,
) -> None:
    rows = list(reference.evidence())
    assert {row.outcome for row in rows} == {Outcome.HOLDS}
    assert [row.contract for row in rows if not row.counts] == ["WM-2"]
    assert ("encoder_decoder", "manager", "WM-2") in NO_CANARY
    assert reference.unshown == ["WM-2"]
    assert reference.unrefuted == []


def test_a_row_says_what_was_explored_and_of_which_text(reference: ExploreReport) -> None:
    row = next(iter(reference.evidence()))
    assert (row.contract, row.target, row.method) == ("ED-1", "reference", "exploration")
    assert row.subject == "EncoderDecoderCacheManager"
    assert row.scope.startswith(
        "sizes: closed: 2 identifiers x 2 requests x capacity 2, 1,301 states; budget"
    )
    assert row.digest == digest_of([EncoderDecoderCacheManager, EncoderCacheManager])


def test_every_faulty_manager_of_the_gallery_is_refuted_by_a_contract(
    reference: ExploreReport,
) -> None:
    twins = {twin.name for several in reference.twins.values() for twin in several}
    assert twins == {variant.name for variant in variants("encoder_decoder")}


@pytest.mark.full
def test_the_shared_cache_of_the_reference_too() -> None:
    report = run([Task("reference", "encoder_cache", SHARED)])[0]
    assert all(row.counts and row.outcome is Outcome.HOLDS for row in report.evidence())
    assert report.unrefuted == []


def test_contracts_that_no_red_twin_breaks_within_the_scopes_are_named() -> None:
    """Red twin of the job: within so little, a second release is never seen."""
    report = run([Task("reference", "encoder_decoder", ())])[0]
    assert set(report.unshown) == set(report.contracts)
    assert "decoder-second-release-raises" in report.unrefuted


@pytest.fixture(scope="module")
def releases() -> dict[str, ExploreReport]:
    reports = {}
    for version in ("0.28.0", "0.33.0"):
        install(version, report=print)
        reports[version] = run([Task(f"vllm@{version}", "encoder_cache", REPEATED)])[0]
    return reports


@pytest.mark.full
def test_a_listed_fault_comes_out_with_a_shortest_trace_and_is_told_to_be_listed(
    releases: dict[str, ExploreReport],
) -> None:
    report = releases["0.28.0"]
    assert {one.contract: (len(one.events), one.replays) for one in report.findings} == {
        "EC-6a": (4, "10 of 10"),
        "EC-6": (6, "10 of 10"),
    }
    report.annotate([])
    assert not any(map(report.is_listed, report.broken))
    report.annotate(fault_folders.load())
    assert {one.fault for one in report.findings} == {"repeated-item"}
    refuted = [row for row in report.evidence() if row.outcome is Outcome.REFUTED]
    assert [row.contract for row in refuted] == ["EC-6", "EC-6a"]
    assert refuted[1].note.startswith("4 events in repeated item: for h = 'y'")


@pytest.mark.full
def test_the_release_that_mends_it_holds_beside_red_twins_of_its_own(
    releases: dict[str, ExploreReport],
) -> None:
    report = releases["0.33.0"]
    rows = {row.contract: row for row in report.evidence()}
    for contract in ("EC-6", "EC-6a"):
        assert rows[contract].outcome is Outcome.HOLDS
        assert rows[contract].counts
    assert rows["EC-6"].twins[0].name == "evicts_what_is_held"
    assert report.digest != releases["0.28.0"].digest


@pytest.mark.full
def test_a_release_without_such_a_manager_has_no_rows() -> None:
    install("0.12.0", report=print)
    report = run([Task("vllm@0.12.0", "encoder_decoder", DECODERS)])[0]
    assert report.missing == "vLLM 0.12.0 has no EncoderDecoderCacheManager"
    assert list(report.evidence()) == []
    assert report.unshown == []
