"""Paths that are joined say what they said apart."""

import ast
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from cacheproof.proofs.conformance.claims import ConformanceClaim, claims
from cacheproof.proofs.conformance.cpython import OfCPython
from cacheproof.proofs.conformance.judges import OfTranslator, complaints
from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary, prove
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.reading import execution, joins
from cacheproof.proofs.symbolic.reading.execution import PATHS_MAX
from cacheproof.proofs.symbolic.subjects.encoder_cache import of_reference
from cacheproof.proofs.symbolic.values.state import Fact
from cacheproof.proofs.symbolic.values.values import Universe

ALL = tuple(claims())
WRONG = ("truth values: of a number of slots", "evaluation order: a key with effects")
"""Claims that notice a join of the first path alone, and one of no path's condition."""
REFERENCE = of_reference()
(CAN,) = [one for one in REFERENCE.operations if one.name == "can"]
CONDITIONS = 12


@pytest.fixture
def _joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever two paths go on, they are joined if they can be."""
    monkeypatch.setattr(execution, "PATHS_MAX", 1)


@pytest.mark.usefixtures("_joined")
@pytest.mark.sample(20)
@pytest.mark.parametrize("claim", ALL, ids=str)
def test_joined_paths_say_what_cpython_does(cpython: OfCPython, claim: ConformanceClaim) -> None:
    """Each by a translator of its own: how much work a proof is hangs on what was read before, and
    joins are more of it."""
    assert complaints(claim, cpython, OfTranslator()) == []


def first_alone(
    universe: Universe, several: Sequence[Mapping[object, object]], there: Sequence[list[Fact]]
) -> dict[object, object]:
    return dict(several[0])


def of_no_path(parts: object) -> bool:
    return True


@pytest.mark.usefixtures("_joined")
@pytest.mark.parametrize(
    ("name", "undone", "claim"),
    [("_merged", first_alone, WRONG[0]), ("disjunction", of_no_path, WRONG[1])],
)
def test_a_join_that_loses_something_is_complained_of(
    monkeypatch: pytest.MonkeyPatch, cpython: OfCPython, name: str, undone: object, claim: str
) -> None:
    (one,) = [one for one in ALL if str(one) == claim]
    monkeypatch.setattr(joins, name, undone)
    assert complaints(one, cpython, OfTranslator())


def with_conditions(body: str) -> Subject:
    """The reference with several conditions in a row at the start of can_allocate()."""
    source = REFERENCE.sources["m"]
    (method,) = ast.parse(ast.unparse(source.methods["can_allocate"])).body
    assert isinstance(method, ast.FunctionDef)
    text = "\n".join(
        textwrap.dedent(body).format(number=number) for number in range(1, CONDITIONS + 1)
    )
    method.body[1:1] = ast.parse(text).body
    changed = replace(source, methods={**source.methods, method.name: method})
    sources = {**REFERENCE.sources, "m": changed}
    return replace(REFERENCE, sources=sources, operations=[CAN], replay=None)


ASIDE = """
if num_embeds_to_schedule > {number}:
    assert self.num_free_slots == self.num_free_slots
"""
NUMBERS = """
if num_embeds_to_schedule > {number}:
    self.num_freeable_slots += 0
"""


@pytest.mark.parametrize("body", [ASIDE, NUMBERS])
def test_conditions_in_a_row_do_not_double_the_paths(body: str) -> None:
    subject = with_conditions(body)
    library = ProverLibrary()
    assert {one.word for one in prove(subject, library).values()} == {"proved"}
    plain = len(ProverLibrary().prover(replace(subject, sources=REFERENCE.sources), CAN).play.ends)
    assert len(library.prover(subject, CAN).play.ends) <= PATHS_MAX * plain < 2**CONDITIONS


def test_a_wrong_branch_among_many_is_not_proved() -> None:
    subject = with_conditions(NUMBERS.replace("+= 0", "+= 1 if {number} == 7 else 0"))
    assert {one.word for one in prove(subject, ProverLibrary()).values()} != {"proved"}


def test_each_path_that_was_joined_is_looked_at_with_its_places() -> None:
    subject = with_conditions(NUMBERS)
    play = ProverLibrary().prover(subject, CAN).play
    ends = [end.after for end in play.ends]
    apart = [one for end in ends for one in play.machine.joins.apart(end)]
    joined = frozenset(place for end in ends for place in end.ran)
    places = joined.union(*(one.ran for one in apart))
    ways = {(one.node, one.way) for one in places if one.way}
    assert {way for _, way in ways} == {"True", "False"}
    assert len(ways) >= 2 * CONDITIONS
    assert places > joined
