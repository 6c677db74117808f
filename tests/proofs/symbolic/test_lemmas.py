"""The facts of sums are proved, rest on what they say they rest on, and Python agrees."""

from dataclasses import replace

import pytest
import z3

from cacheproof.proofs.symbolic.deciding import lemmas
from cacheproof.proofs.symbolic.deciding.lemmas import LEMMAS, N, prove_lemmas
from cacheproof.proofs.witness.sums import meaning
from cacheproof.spec.evidence import Outcome


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(5))
def test_each_lemma_holds_and_fails_without_what_it_rests_on(seed: int) -> None:
    rows = prove_lemmas(seed)
    assert len(rows) == len(LEMMAS)
    assert [row.outcome for row in rows] == [Outcome.HOLDS] * len(LEMMAS)
    assert all(row.counts for row in rows)
    assert all(one.twin.refuted for row in rows for one in row.witnesses)
    assert [len(row.witnesses) for row in rows] == [1] * len(LEMMAS)


@pytest.mark.parametrize("lemma", LEMMAS, ids=lambda lemma: lemma.name)
def test_what_python_breaks_is_no_lemma_whatever_the_solver_says(
    lemma: lemmas.Lemma, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solver that proves everything: of the negation, and of a claim that says nothing."""
    monkeypatch.setattr(lemmas, "_follows", lambda *_: Outcome.HOLDS)
    denied = replace(lemma, claim=lambda n: z3.Not(lemma.claim(n)))
    trivial = replace(lemma, claim=lambda n: n == n)
    monkeypatch.setattr(lemmas, "LEMMAS", (denied, trivial))
    rows = prove_lemmas()
    assert [row.outcome for row in rows] == [Outcome.DISAGREE, Outcome.ALONE]
    assert not any(row.counts for row in rows)


def test_a_lemma_that_no_entry_can_be_as_it_assumes_is_vacuous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lemma = LEMMAS[1]
    impossible = replace(lemma, rests_on={**lemma.rests_on, "there is no entry": N < 0})
    monkeypatch.setattr(lemmas, "LEMMAS", (impossible,))
    (row,) = prove_lemmas()
    assert row.outcome is Outcome.VACUOUS


def test_a_term_without_a_meaning_is_refused() -> None:
    with pytest.raises(KeyError, match="product_f"):
        meaning(z3.Function("product_f", z3.IntSort(), z3.IntSort())(N))
