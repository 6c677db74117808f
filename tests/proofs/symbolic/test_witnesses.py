"""A proof is held against CPython, which runs the class."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from cacheproof.proofs.symbolic.checking.mutants import ClassMutant
from cacheproof.proofs.symbolic.checking.twins import red_twins
from cacheproof.proofs.symbolic.checking.validated import Validation
from cacheproof.proofs.symbolic.checking.witnesses import ManagerExploring
from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary, prove
from cacheproof.proofs.symbolic.evidence import prove_texts
from cacheproof.proofs.symbolic.reading import expressions
from cacheproof.proofs.symbolic.reading.execution import Run
from cacheproof.proofs.symbolic.reading.source import source_in
from cacheproof.proofs.symbolic.subjects.encoder_cache import CLASS, of_reference
from cacheproof.proofs.symbolic.texts import ClassText
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.state import Operand, State
from cacheproof.spec.encoder_cache import COMPONENT
from cacheproof.spec.evidence import Outcome
from cacheproof.spec.registry import contracts

TEXT = of_reference().sources["m"].module
REFERENCE = of_reference()
CONTRACTS = [
    rule.id for rule in contracts(COMPONENT) if rule.component == COMPONENT and rule.id != "EC-8b"
]


@pytest.fixture(scope="module")
def exploring() -> ManagerExploring:
    return ManagerExploring(REFERENCE)


@pytest.mark.full
def test_every_operation_is_called(exploring: ManagerExploring) -> None:
    called = {name for one in exploring.of(()) for name in one.calls}
    assert called == {one.name for one in REFERENCE.operations} - {"init"}


@pytest.fixture(scope="module")
def twins() -> Mapping[str, ClassMutant]:
    return red_twins(REFERENCE, CONTRACTS)


@pytest.mark.full
@pytest.mark.parametrize("contract", CONTRACTS)
def test_it_can_break_every_contract_and_does_not(
    exploring: ManagerExploring, twins: Mapping[str, ClassMutant], contract: str
) -> None:
    witness = exploring.witness(contract, (), twins[contract])
    assert witness.against == ""
    assert witness.twin.refuted


@pytest.mark.full
def test_one_wrong_reading_makes_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the translator once read calls: keyword arguments by their place."""

    def by_place(
        run: Run, node: ast.Call, owner: str, name: str, given: Sequence[Operand], at: State
    ) -> list[Operand]:
        return list(given)

    monkeypatch.setattr(expressions, "_arranged", by_place)
    changed = TEXT.replace(
        "if need > self.num_freeable_slots:",
        "if self._over(limit=need, wanted=self.num_freeable_slots):",
    ).replace(
        "    def free(self",
        "    def _over(self, wanted, limit):\n        return wanted > limit\n\n    def free(self",
    )
    source = source_in(changed, CLASS, "changed")
    subject = replace(REFERENCE, sources={**REFERENCE.sources, "m": source})
    assert prove(subject)["EC-12"].word == "proved"
    witness = ManagerExploring(subject).witness("EC-12", (), None)
    assert "can(" in witness.against


@pytest.mark.full
@pytest.mark.parametrize(
    ("hidden", "where"),
    [
        (
            "        if len(self.cached) > 5:\n            self.freed.clear()\n",
            "len(self.cached) > 5",
        ),
        (
            "        many = [h for h in self.cached if len(self.cached) > 5]\n"
            "        found = any(h in self.freeable for h in many)\n",
            "any((h in self.freeable for h in many))",
        ),
        (
            "        found = len(self.cached) > 5 and len(self.freeable) > 1\n",
            "len(self.freeable) > 1",
        ),
    ],
)
def test_what_no_small_state_goes_through_is_proved_alone(
    hidden: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = "    def reset(self) -> None:\n"
    for text, is_named in ((TEXT, False), (TEXT.replace(first, first + hidden), True)):
        source = source_in(text, CLASS, "changed.py")
        reset = [one for one in REFERENCE.operations if one.name == "reset"]
        sources = {**REFERENCE.sources, "m": source}
        exploring = ManagerExploring(replace(REFERENCE, sources=sources))
        subject = replace(REFERENCE, sources=sources, operations=reset)
        shown = exploring.validator().all_shown(subject, exploring.calls(()), ())
        witness = Validation(ProverLibrary()).witness(subject, shown, ())
        assert witness.against == ""
        assert (f"reset at {where}" in witness.unreached) == is_named
        assert bool(witness.unreached) == is_named
    monkeypatch.setattr(
        "cacheproof.proofs.symbolic.checking.validated.unseen", lambda *_: frozenset()
    )
    assert not Validation(ProverLibrary()).witness(subject, shown, ()).unreached


def test_a_text_that_the_gate_refuses_is_unknown_with_its_line() -> None:
    changed = TEXT.replace("    def free(self", "    @staticmethod\n    def free(self")
    rows = prove_texts(
        [ClassText(CLASS, ("changed",), source_in(changed, CLASS, "changed.py"), "0.33.0")]
    )
    assert {one.outcome for one in rows} == {Outcome.UNKNOWN}
    assert rows[0].note.startswith("changed.py:")
    assert "a decorated method, free" in rows[0].note


@pytest.mark.full
def test_a_call_that_does_not_end_ends_the_exploration() -> None:
    changed = TEXT.replace("self._evict(next(iter(self.freeable)))", "pass")
    source = source_in(changed, CLASS, "changed")
    subject = replace(REFERENCE, sources={**REFERENCE.sources, "m": source})
    found = ManagerExploring(subject).of(())[0]
    assert found.broken["EC-13"].why == "it does not end"


@pytest.mark.parametrize(
    ("own", "refused"),
    [
        ("self.freed", "which answers with freed itself"),
        ("self.freeable.keys()", "no reading of w.notices"),
        ("reversed(self.freed)", r"no reading of reversed\(self.freed\)"),
    ],
)
def test_an_answer_that_may_change_after_the_call_is_read_by_neither(
    own: str, refused: str
) -> None:
    """Empty notices that a later call fills: contracts see them while they are empty."""
    changed = TEXT.replace(
        "        freed, self.freed = self.freed, []\n",
        f"        if not self.freed and not self.freeable:\n            return {own}\n"
        "        freed, self.freed = self.freed, []\n",
    )
    assert changed != TEXT
    source = source_in(changed, CLASS, "changed.py")
    subject = replace(REFERENCE, sources={**REFERENCE.sources, "m": source})
    with pytest.raises(NotTranslated, match=refused):
        prove(subject)
    witness = ManagerExploring(subject).witness("EC-9", (), None)
    assert "goes on using" in witness.reach
    assert not witness.twin.refuted
