"""Small texts in which one construct matters: the translator says of them what CPython does."""

import ast
from collections import Counter
from dataclasses import replace

import pytest

from cacheproof.proofs.conformance.claims import TABLES, ConformanceClaim, claims
from cacheproof.proofs.conformance.cpython import OfCPython
from cacheproof.proofs.conformance.judges import OfTranslator, complaints

ALL = tuple(claims())


def test_there_are_texts_of_every_table_and_no_two_alike() -> None:
    assert len({str(one) for one in ALL}) == len(ALL)
    texts = len(ALL) + sum(one.claimed is not None for one in ALL)
    assert texts >= 200
    assert all(any(claims([table])) for table in TABLES)
    by_construct = Counter(one.construct for one in ALL)
    assert min(by_construct.values()) >= 3


@pytest.mark.sample(20)
@pytest.mark.parametrize("claim", ALL, ids=str)
def test_the_translator_says_what_cpython_does(
    cpython: OfCPython, translator: OfTranslator, claim: ConformanceClaim
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
