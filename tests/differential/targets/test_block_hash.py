"""Block keys of real releases: equal to the reference's, byte for byte, and judged."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.seeded import SearchOutcome, search
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import reference_for
from tests.differential.targets.parameters import newest_and

LANES_OF_KEYS = [lane for lane in LANES.values() if lane.depth == "block_hash"]
SEEDS = range(200)


@pytest.fixture(
    scope="module",
    params=newest_and("0.10.2", "0.12.0", "0.18.1", "0.22.1", "0.28.0", "0.30.0", "0.31.0"),
)
def outcome(
    request: pytest.FixtureRequest, hosted: Callable[[str], AbstractContextManager[HostTarget]]
) -> SearchOutcome:
    with hosted(request.param) as target:
        return search(target, LANES_OF_KEYS, against=reference_for(target), seeds=SEEDS)


def broken(outcome: SearchOutcome, lane: str) -> set[str]:
    return {contract for contract, name in outcome.broken if name == lane}


@pytest.mark.full
def test_every_digest_is_that_of_the_reference(outcome: SearchOutcome) -> None:
    assert not outcome.harness_errors
    assert all(report.compared.calls > 5_000 for report in outcome.lanes)
    assert "lockstep" not in {contract for contract, _ in outcome.broken}


def test_a_moved_item_has_another_key_where_that_is_mended(outcome: SearchOutcome) -> None:
    is_mended = outcome.release not in ("0.10.2", "0.12.0", "0.18.1")
    assert broken(outcome, "block keys of items") == (set() if is_mended else {"BK-1", "BK-2"})


def test_growing_names_every_item_where_that_is_mended(outcome: SearchOutcome) -> None:
    is_mended = outcome.release in ("0.31.0", "0.33.0")
    found = broken(outcome, "block keys while decoding")
    assert ("BK-3" in found) is not is_mended


def test_a_zero_embedding_passes_for_token_0_in_the_newest(outcome: SearchOutcome) -> None:
    if outcome.release in ("0.31.0", "0.33.0"):
        assert {"BK-1", "BK-2"} <= broken(outcome, "block keys")


def test_a_discarded_token_stays_in_a_key_until_that_is_mended(outcome: SearchOutcome) -> None:
    lane = "block keys of continued requests"
    assert ("BK-3" in broken(outcome, lane)) is (outcome.release != "0.33.0")
    continues = outcome.release not in ("0.10.2", "0.12.0")
    met = next(report.reach.met for report in outcome.lanes if report.lane.name == lane)
    assert (met["discarded token fills a block"] > 100) is continues


def test_keys_in_cbor_lose_no_hits_to_shared_objects(outcome: SearchOutcome) -> None:
    if outcome.release == "0.33.0":
        lost = [found.trace for found in outcome.breaks if found.contract == "BK-4"]
        functions = {trace.header.config.algorithm for trace in lost}
        assert functions
        assert functions <= {"sha256", "xxhash"}
