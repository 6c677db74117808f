"""The facts of sums are proved, and rest on what they say they rest on."""

import pytest

from cacheproof.proofs.evidence import Outcome
from cacheproof.proofs.symbolic.lemmas import LEMMAS, prove_lemmas


@pytest.mark.parametrize("seed", range(5))
def test_each_lemma_holds_and_fails_without_what_it_rests_on(seed: int) -> None:
    rows = prove_lemmas(seed)
    assert len(rows) == len(LEMMAS)
    assert [row.outcome for row in rows] == [Outcome.HOLDS] * len(LEMMAS)
    assert all(row.counts for row in rows)
