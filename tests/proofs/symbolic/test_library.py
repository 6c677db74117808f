"""What was proved of a method is taken for a text that has the same one, and for no other."""

import ast
from collections.abc import Callable
from dataclasses import replace

import pytest

from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary
from cacheproof.proofs.symbolic.deciding.subject import Operation, Subject
from cacheproof.proofs.symbolic.subjects.encoder_cache import of_reference
from cacheproof.proofs.symbolic.subjects.encoder_cache import subject_of as manager
from cacheproof.proofs.text.definitions import reading_of
from cacheproof.reference.semantics import Semantics

SUBJECT = of_reference()
OPERATIONS = {one.name: one for one in SUBJECT.operations}


def changed(method: str, change: Callable[[ast.FunctionDef], None]) -> Subject:
    """The reference with a method that is another one."""
    source = SUBJECT.sources["m"]
    (definition,) = ast.parse(ast.unparse(source.methods[method])).body
    assert isinstance(definition, ast.FunctionDef)
    change(definition)
    ast.fix_missing_locations(definition)
    methods = {**source.methods, method: definition}
    return replace(SUBJECT, sources={**SUBJECT.sources, "m": replace(source, methods=methods)})


def without_a_statement(definition: ast.FunctionDef) -> None:
    del definition.body[-1]


def without_docstring(definition: ast.FunctionDef) -> None:
    assert ast.get_docstring(definition)
    del definition.body[0]


def same_prover(one: Subject, other: Subject, operation: Operation) -> bool:
    library = ProverLibrary()
    return library.prover(one, operation) is library.prover(other, operation)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_same_text_is_proved_once(name: str) -> None:
    assert same_prover(SUBJECT, of_reference(), OPERATIONS[name])


def test_a_docstring_makes_no_other_text() -> None:
    assert same_prover(SUBJECT, changed("free", without_docstring), OPERATIONS["free"])


@pytest.mark.parametrize("name", ["release", "free"])
def test_a_method_that_is_called_belongs_to_the_text(name: str) -> None:
    other = changed("_retire", without_a_statement)
    assert not same_prover(SUBJECT, other, OPERATIONS[name])
    assert same_prover(SUBJECT, other, OPERATIONS["embeds"])


def test_what_is_asked_belongs_to_the_text() -> None:
    other = replace(SUBJECT, invariants=SUBJECT.invariants[1:])
    assert not same_prover(SUBJECT, other, OPERATIONS["check"])


def test_constants_belong_to_the_text() -> None:
    source = SUBJECT.sources["m"]
    constants = {("m", "semantics"): Semantics.of_vllm("0.28.0").encoder_cache}
    other = manager("other", source, None, (), constants)
    assert not same_prover(SUBJECT, other, OPERATIONS["check"])


def test_a_decorator_belongs_to_the_text() -> None:
    def decorated(definition: ast.FunctionDef) -> None:
        definition.decorator_list.append(ast.Name("property"))

    one, other = (
        each.sources["m"].methods["free"] for each in (SUBJECT, changed("free", decorated))
    )
    assert reading_of(one) != reading_of(other)


def test_a_counterexample_is_of_no_text_but_its_own() -> None:
    library, free = ProverLibrary(), OPERATIONS["free"]
    broken = changed("free", without_a_statement)
    assert library.refuter(broken).is_soon_refuted(free, "EC-14")
    assert library.refuter(broken).counterexample(free, "EC-14") is not None
    assert not library.refuter(SUBJECT).is_soon_refuted(free, "EC-14")
    assert library.refuter(SUBJECT).counterexample(free, "EC-14") is None


def test_a_counterexample_without_rules_is_none_with_them() -> None:
    library, release = ProverLibrary(), OPERATIONS["release"]
    every = [rule.id for rule in SUBJECT.invariants]
    assert library.refuter(SUBJECT).is_soon_refuted(release, "EC-2", every)
    assert not library.refuter(SUBJECT).is_soon_refuted(release, "EC-2")
