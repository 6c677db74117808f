"""The language that is written down is the one that the gate lets through."""

import ast
from collections.abc import Sequence

import pytest

from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.gate.gate import CHECKS, refuse_subject
from cacheproof.proofs.symbolic.gate.language_page import PAGE, page
from cacheproof.proofs.symbolic.reading.block_pool_readings import POOL_READINGS
from cacheproof.proofs.symbolic.reading.execution import Readings
from cacheproof.proofs.symbolic.reading.machine import READINGS, Machine
from cacheproof.proofs.symbolic.reading.source import source_in
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects import block_pool, encoder_cache, encoder_decoder_cache
from cacheproof.proofs.symbolic.subjects.calls import TOLD
from cacheproof.proofs.symbolic.values import language
from cacheproof.proofs.symbolic.values.language import METHODS, NotTranslated
from cacheproof.proofs.symbolic.values.state import Evaluated, Operand, State
from cacheproof.proofs.symbolic.values.values import Universe

REFERENCES = [one.of_reference() for one in (encoder_cache, encoder_decoder_cache, block_pool)]


def test_the_page_is_that_of_the_tables() -> None:
    assert PAGE.read_text() == page(), "run python -m cacheproof.proofs.symbolic.gate.language_page"


def test_the_page_has_a_line_for_every_check() -> None:
    assert all(check.__doc__ for check in CHECKS)
    assert page().count("\n* ") >= len(CHECKS)


@pytest.mark.parametrize("subject", REFERENCES, ids=lambda one: one.sources["m"].name)
def test_the_gate_lets_every_text_through_that_is_run(subject: Subject) -> None:
    refuse_subject(subject)


@pytest.mark.parametrize("subject", REFERENCES[:2], ids=lambda one: one.sources["m"].name)
def test_every_method_of_the_ghost_that_is_run_is_asked_of(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: set[str] = set()
    call = Machine.call

    def seen(
        self: Machine, owner: str, name: str, arguments: Sequence[Operand], state: State
    ) -> list[Evaluated]:
        called.update([name] if owner == "g" else [])
        return call(self, owner, name, arguments, state)

    monkeypatch.setattr(Machine, "call", seen)
    language = RuleLanguage(Universe())
    for operation in subject.operations:
        Play(subject, operation, language)
    assert called <= {*TOLD["g"]} | {"_unneed"}
    assert called >= {"claim", "encode", "release", "consume", "reset", "step", "withdraw"}


@pytest.mark.parametrize("owner", ["g", "m", "q"])
def test_a_text_that_is_run_beside_is_refused_as_well(owner: str) -> None:
    subject = REFERENCES[0] if owner == "g" else REFERENCES[2]
    source = subject.sources[owner]
    tree = ast.parse(source.module)
    for found in tree.body:
        if isinstance(found, ast.ClassDef) and found.name == source.name:
            for method in found.body:
                if isinstance(method, ast.FunctionDef):
                    method.body.append(ast.parse("assert self is self").body[0])
    changed = source_in(ast.unparse(tree), source.name, "changed.py")
    broken = Subject(**{**vars(subject), "sources": {**subject.sources, owner: changed}})
    with pytest.raises(NotTranslated, match=r"changed\.py:\d+: no reading of self is self"):
        refuse_subject(broken)


def test_methods_are_those_that_containers_of_python_have() -> None:
    from collections import OrderedDict

    kinds = {"dict": dict, "OrderedDict": OrderedDict, "set": set, "list": list}
    for name, methods in METHODS.items():
        assert all(hasattr(kinds[name], method) for method in methods)


@pytest.mark.parametrize("readings", [READINGS, POOL_READINGS])
def test_what_the_gate_lets_through_has_a_reader_and_nothing_else_has_one(
    readings: Readings,
) -> None:
    """But for what is read with what it stands in."""
    assert {*language.STATEMENTS} == {*readings.statements, ast.Continue}
    assert {*language.EXPRESSIONS} == {*readings.expressions, ast.GeneratorExp}


def test_functions_that_the_gate_lets_through_have_readers() -> None:
    names = {str(name) for name, *_ in READINGS.functions}
    of_containers = {f".{name}" for methods in language.METHODS.values() for name in methods}
    of_requests = {".get_num_encoder_embeds", ".get_num_encoder_tokens"}
    assert {one for one in names if one.startswith(".")} == of_containers | of_requests
    elsewhere = {"all", "any", "bool", "property"}  # with what they are given, of pools, decorators
    functions = {one for one in names if one.isidentifier()}
    assert functions == {*language.BUILTINS, language.ORDERED} - elsewhere
