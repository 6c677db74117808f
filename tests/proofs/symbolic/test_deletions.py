"""Any statement left out of a reference manager makes the proofs go red, and name the contract."""

from types import ModuleType
from typing import Any

import pytest

from cacheproof.proofs.symbolic.checking.mutants import EVERY, ClassMutant, mutants
from cacheproof.proofs.symbolic.checking.twins import first_broken
from cacheproof.proofs.symbolic.subjects import encoder_cache, encoder_decoder_cache
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.spec.registry import contracts

LEFT_TO_THE_SEARCH = {
    "if self.semantics.remembers_claims:": "a way of releases",
    "if not claims:": "a table of no claims answers as none does",
    "self._claims.pop(request.request_id, None)": "the same",
    "self.freed.clear()": "a worker that has forgotten all is told to drop what it has not",
    "self._claims.clear()": "who claimed before a reset may release once more, in vain",
    "if not self.semantics.releases_decoder_once:": "a way of releases",
    "if not self.semantics.delays_decoder_notices:": "a way of releases",
    "self.semantics = semantics or EncoderCacheSemantics()": "proofs are of one way, and told it",
    "self.allocated.clear()": "a reset comes between steps, when nothing is there",
    "self.to_free.clear()": "what a worker is told in vain is for WM-4, and the search",
}
"""Statements that proofs do without, and why."""


def deletions(*, of_start: bool) -> list[Any]:
    """The mutants that lack a statement of what a class itself defines: of where it starts, or of
    all else."""
    found = []
    for about in (encoder_cache, encoder_decoder_cache):
        source = about.of_reference().sources["m"]
        for one in mutants(source, EVERY[:1]):
            is_own = f"def {one.method}(" in source.text
            is_listed = any(each in one.name for each in LEFT_TO_THE_SEARCH)
            if is_own and not is_listed and of_start == _leaves_unset(one):
                found.append(pytest.param(about, one, id=f"{about.CLASS}.{one.name}"))
    return found


def _leaves_unset(mutant: ClassMutant) -> bool:
    return mutant.method == "__init__" and "cache_size" in mutant.name


def first_broken_contract(about: ModuleType, mutant: ClassMutant) -> str | None:
    own = [rule.id for rule in contracts(about.COMPONENT) if rule.component == about.COMPONENT]
    return first_broken(about.of_reference(), mutant, own)


@pytest.mark.sample(12)
@pytest.mark.parametrize(("about", "mutant"), deletions(of_start=False))
def test_a_statement_left_out_is_refuted(about: ModuleType, mutant: ClassMutant) -> None:
    assert first_broken_contract(about, mutant)


@pytest.mark.parametrize(("about", "mutant"), deletions(of_start=True))
def test_what_is_not_set_at_the_start_is_named(about: ModuleType, mutant: ClassMutant) -> None:
    with pytest.raises(NotTranslated, match="nothing has set"):
        first_broken_contract(about, mutant)


@pytest.mark.parametrize(
    "about", [encoder_decoder_cache, pytest.param(encoder_cache, marks=pytest.mark.full)]
)
def test_the_reference_as_it_is_is_not_refuted(about: ModuleType) -> None:
    source = about.of_reference().sources["m"]
    assert first_broken_contract(about, ClassMutant("nothing", "free", source)) is None
