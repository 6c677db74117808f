"""Standalone tests of block keys on real releases: red where found, green where mended."""

from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.findings.finding import LOCKSTEP, Finding, found_in
from cacheproof.differential.findings.standalone.writing import standalone_test, why_none
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.semantics import Semantics
from tests.differential.findings.standalone.files import written

pytestmark = pytest.mark.full

FAULTY, MENDED = "0.28.0", "0.33.0"
CONTRACTS = ("BK-1", "BK-2", "BK-3", "BK-4")
LANES_OF_KEYS = ("block keys", "block keys while decoding", "block keys of continued requests")
CASES = [(contract, lane) for contract in CONTRACTS for lane in LANES_OF_KEYS]


def target_of(release: str) -> ReferenceTarget:
    """The reference with that release's faults, and its very digests."""
    return ReferenceTarget(Semantics.of_vllm(release), name=f"reference@{release}", release=release)


def find(release: str, contract: str, lane: str) -> Finding:
    target = target_of(release)
    for seed in range(100):
        trace = LANES[lane].trace(seed, release)
        if contract in examine(trace, target.run([trace])[0], target).violations:
            found = found_in(target, trace, contract)
            assert found is not None
            return found
    raise AssertionError(f"{contract} does not break in {lane}")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    folder = tmp_path_factory.mktemp("standalone")
    return {
        (contract, lane): written(find(FAULTY, contract, lane), folder / f"test_{number}.py")
        for number, (contract, lane) in enumerate(CASES)
    }


@pytest.mark.parametrize(("release", "expected"), [(FAULTY, "AssertionError"), (MENDED, "passes")])
def test_a_standalone_test_fails_where_it_was_found_and_passes_where_it_is_mended(
    sources: dict[tuple[str, str], Path], verdicts: Any, release: str, expected: str
) -> None:
    words = [one.partition(":")[0] for one in verdicts(release, sources.values())]
    assert dict(zip(sources, words, strict=True)) == dict.fromkeys(CASES, expected)


def test_a_difference_from_the_reference_has_none_and_says_so() -> None:
    trace = LANES["block keys of continued requests"].trace(0, FAULTY)
    found = found_in(target_of(FAULTY), trace, LOCKSTEP, ReferenceTarget())
    assert found is not None
    assert standalone_test(found) is None
    assert why_none(found) == "a difference from the reference is shown by its replay"
