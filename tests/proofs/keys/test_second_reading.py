"""What is proved of keys is held against Python, which runs the same text."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pytest
import z3

from cacheproof.proofs.keys import (
    block_items,
    checks,
    exploration,
    media_values,
    paths,
    scopes,
    symbolic,
    validation_of_loops,
)
from cacheproof.proofs.keys.claim import Claim
from cacheproof.proofs.keys.media import Texts
from cacheproof.proofs.keys.media_values import Constructed
from cacheproof.proofs.keys.prove import claims
from cacheproof.proofs.keys.symbolic import Data, Number
from cacheproof.proving.proving import exit_code
from cacheproof.spec import registry
from cacheproof.spec.evidence import Outcome

HELD = ("lists", "MH-1", "MH-3", "ID-1", "BK-1", "BK-2", "BK-3")


@cache
def of_reference() -> dict[str, Claim]:
    return {one.contract: one for one in claims()}


def few_twins(claim: Claim) -> Claim:
    """The same claim with its first change alone."""
    return replace(claim, twins=claim.twins[:1])


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    """Answers that were kept of other readings would hide what a test changes."""
    yield
    for one in (checks.beside_confusion, checks.chain_failure, checks.items_failure):
        one.cache_clear()
    for validated in (validation_of_loops.of_chain, validation_of_loops.of_items):
        validated.cache_clear()


@contextmanager
def always_true(contract: str) -> Iterator[None]:
    """The contract claims nothing."""
    rule = registry.by_id(contract)
    registry._CONTRACTS[contract] = replace(rule, predicate=lambda _: True)
    try:
        yield
    finally:
        registry._CONTRACTS[contract] = rule


@pytest.mark.sample(6)
@pytest.mark.parametrize("contract", HELD[1:])
def test_a_contract_that_is_always_true_makes_no_row_green(contract: str) -> None:
    claim = of_reference()[contract]
    second = replace(claim.second, validate=None)
    with always_true(contract):
        row = replace(claim, twins=claim.twins[:1], second=second).evidence()
    assert row.outcome in (Outcome.ALONE, Outcome.DISAGREE)
    assert exit_code([row], set()) == 3


def test_what_python_breaks_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader takes every text for true, as it once did; Python runs `None` and `[]` alike."""
    texts = Texts()
    changed = texts.content.replace(
        'return Node(ord("X"), bytes(value))',
        'return Node(ord("X"), bytes(value)) if value else Node(ord("N"), b"")',
    )
    assert changed != texts.content
    monkeypatch.setattr(symbolic.Data, "__bool__", lambda _: True)
    row = replace(
        few_twins(of_reference()["MH-3"]), text=replace(texts, content=changed)
    ).evidence()
    assert row.outcome is Outcome.DISAGREE
    assert "exploration saw one stream for {'x': None} and {'x': b''}" in row.note


Wrong = Callable[[pytest.MonkeyPatch], None]


def little_ends(patch: pytest.MonkeyPatch) -> None:
    """Numbers are written little end first, whatever is asked."""
    to_bytes = symbolic.Number.to_bytes

    def wrong(self: Number, width: int | Number, order: str, *, signed: bool = False) -> Data:
        return to_bytes(self, width, "little", signed=signed)

    patch.setattr(symbolic.Number, "to_bytes", wrong)


def lost_signs(patch: pytest.MonkeyPatch) -> None:
    to_bytes = symbolic.Number.to_bytes

    def wrong(self: Number, width: int | Number, order: str, *, signed: bool = False) -> Data:
        return to_bytes(self, width, order)

    patch.setattr(symbolic.Number, "to_bytes", wrong)


def floats_otherwise(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(media_values.FLOAT_FORMATS, "d", 4)


@pytest.mark.sample(3)
@pytest.mark.parametrize("wrong", [little_ends, lost_signs, floats_otherwise])
def test_a_wrong_reading_of_numbers_is_noticed(
    monkeypatch: pytest.MonkeyPatch, wrong: Wrong
) -> None:
    claim = of_reference()["MH-3"]
    wrong(monkeypatch)
    assert claim.second.validate is not None
    assert claim.second.validate(claim.text, claim.text).against


@pytest.mark.full
def test_an_assumption_that_cannot_be_met_makes_its_row_vacuous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of floats everything is proved then, as of all that does not exist."""
    made = media_values.Float.__init__

    def contradictory(self: media_values.Float) -> None:
        made(self)
        paths.assume(self.bits < 0)

    monkeypatch.setattr(media_values.Float, "__init__", contradictory)
    claim = of_reference()["MH-3"]
    text = replace(claim.text, content=claim.text.content.replace(">d", "<d"))
    row = replace(claim, text=text, twins=claim.twins[:1]).evidence()
    assert row.outcome is Outcome.DISAGREE
    assert "which no path of the proof admits" in row.note
    assert row.witnesses[1].vacuous == "float"
    assert exit_code([row], set()) == 3


@pytest.mark.full
def test_paths_that_no_input_takes_make_their_row_vacuous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it was of items that lie before the request they are of."""
    claim = of_reference()["MH-3"]
    made = media_values.kinds()
    beside = {**made, "a float of no bits": lambda: _of_no_bits(made["float"]())}
    monkeypatch.setattr("cacheproof.proofs.keys.media.kinds", lambda: beside)
    row = replace(claim, twins=claim.twins[:1]).evidence()
    assert row.outcome is Outcome.VACUOUS
    assert row.note == "proved of calls that cannot happen: a float of no bits"
    assert exit_code([row], set()) == 3


def _of_no_bits(constructed: Constructed) -> Constructed:
    """Below zero and above it."""
    (term,) = constructed[1]
    paths.assume(term > 0, term < 0)
    return constructed


def test_items_of_which_there_are_none_are_paths_that_no_input_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        block_items, "COUNT", z3.If(block_items.ANY > 5, block_items.ANY, z3.IntVal(0))
    )
    claim = of_reference()["BK-3"]
    assert claim.second.validate is not None
    assert claim.second.validate(claim.text, claim.text).vacuous


@pytest.mark.parametrize("contract", HELD[1:])
def test_a_text_that_is_refused_is_unknown_with_its_place(contract: str) -> None:
    claim = of_reference()[contract]
    text = claim.text.stream if isinstance(claim.text, Texts) else claim.text
    refused = f"{text}\n\nexec('')\n"
    if isinstance(claim.text, Texts):
        refused = replace(claim.text, stream=refused)
    row = replace(claim, text=refused, twins=()).evidence()
    assert row.outcome is Outcome.UNKNOWN
    line = text.count("\n") + 3
    assert row.note.endswith(f":{line}: no reading of a module that runs exec('')")


@pytest.mark.parametrize("text", ["", "def", "1 / 0", "import no_such_module"])
def test_a_text_that_is_no_module_ends_in_no_traceback(text: str) -> None:
    for contract in ("ID-1", "BK-1", "BK-2", "BK-3"):
        row = replace(of_reference()[contract], text=text, twins=()).evidence()
        assert row.outcome is Outcome.UNKNOWN
        assert "reference/" in row.note


def test_the_scopes_have_every_kind_and_no_content_twice() -> None:
    kinds = {made.kind for made in scopes.media()} | {"call"}
    assert kinds - {"media with their bytes"} == {*media_values.kinds(), "call"}
    for made in scopes.media():
        assert hash(made.identity) is not None


def test_what_has_no_content_has_no_key() -> None:
    assert len(list(scopes.refused())) == 10
    assert exploration.explored(exploration.media_apart, "calls")(Texts()).against == ""


def test_the_stand_in_of_a_tensor_answers_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    import numpy as np

    from cacheproof.proofs.keys.running import StandIn

    array = np.arange(6, dtype="float32").reshape(2, 3)
    one, other = torch.from_numpy(array), StandIn(array, "float32")
    assert str(one.dtype) == other.dtype
    assert tuple(one.shape) == other.shape
    assert one.numel() == other.numel()
    flat = one.reshape(-1).view(torch.uint8).numpy()
    assert flat.tobytes() == other.reshape(-1).view("uint8").numpy().tobytes()
