"""Small texts in which one construct matters: what the translator says against what CPython does.

By default a slice of them is judged: `CACHEPROOF_SLICE=N` takes another, `-m slow` takes all.
"""

import ast
import os
from collections import Counter
from dataclasses import replace

import pytest

from cacheproof.proofs.conformance.claims import TABLES, Claim, claims
from cacheproof.proofs.conformance.cpython import OfCPython
from cacheproof.proofs.conformance.judges import OfTranslator, complaints

ALL = tuple(claims())
SLICES = 6
"""So many slices have all claims between them."""
SLICE = ALL[int(os.environ.get("CACHEPROOF_SLICE", "0")) % SLICES :: SLICES]


@pytest.fixture(scope="module")
def cpython() -> OfCPython:
    return OfCPython()


@pytest.fixture(scope="module")
def translator() -> OfTranslator:
    return OfTranslator()


def test_there_are_texts_of_every_table_and_no_two_alike() -> None:
    assert len({str(one) for one in ALL}) == len(ALL)
    texts = len(ALL) + sum(one.claimed is not None for one in ALL)
    assert texts >= 200
    assert all(any(claims([table])) for table in TABLES)
    by_construct = Counter(one.construct for one in ALL)
    assert min(by_construct.values()) >= 3


@pytest.mark.parametrize("claim", SLICE, ids=str)
def test_the_translator_says_what_cpython_does(
    cpython: OfCPython, translator: OfTranslator, claim: Claim
) -> None:
    assert complaints(claim, cpython, translator) == []


@pytest.mark.slow
@pytest.mark.parametrize("claim", [one for one in ALL if one not in SLICE], ids=str)
def test_the_translator_says_what_cpython_does_of_the_others(
    cpython: OfCPython, translator: OfTranslator, claim: Claim
) -> None:
    assert complaints(claim, cpython, translator) == []


def test_a_claim_that_is_not_so_is_complained_of(
    cpython: OfCPython, translator: OfTranslator
) -> None:
    by_name = {str(one): one for one in ALL}
    good = by_name["numbers: True is one"]
    assert good.claimed is not None
    wrong = replace(good, claimed=ast.UnaryOp(ast.Not(), good.claimed))
    assert complaints(good, cpython, translator) == []
    assert len(complaints(wrong, cpython, translator)) == 4
