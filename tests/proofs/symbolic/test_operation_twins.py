"""Of each operation a change of what it runs shows at that operation, or nothing holds."""

from dataclasses import replace
from typing import Any

import pytest

from cacheproof.proofs.symbolic import evidence
from cacheproof.proofs.symbolic.checking.twins import twins_of_operations
from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary
from cacheproof.proofs.symbolic.deciding.subject import Operation, Subject
from cacheproof.proofs.symbolic.evidence import NO_TWIN, prove_texts
from cacheproof.proofs.symbolic.subjects import (
    block_pool,
    encoder_cache,
    encoder_decoder_cache,
    entry_table,
)
from cacheproof.proofs.symbolic.texts import ClassText
from cacheproof.proofs.symbolic.values.state import State
from cacheproof.proving.proving import exit_code
from cacheproof.spec.evidence import Outcome

DECODER = encoder_decoder_cache.of_reference()
SUBJECTS = (
    DECODER,
    *(one.of_reference() for one in (encoder_cache, block_pool, entry_table)),
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda one: one.sources["m"].name)
def test_a_change_of_what_it_runs_shows_at_each_operation(subject: Subject) -> None:
    found = twins_of_operations(subject, (), ProverLibrary())
    assert list(found) == [one.name for one in subject.operations]
    assert None not in found.values()


def assuming_nonsense(subject: Subject, name: str) -> Subject:
    """A subject of whose operation a proof takes for granted what is never so."""

    def run(one: Operation) -> Any:
        def assume(play: Any, state: State) -> Any:
            return one.run(play, state.assuming(False))

        return assume

    operations = [
        replace(one, run=run(one)) if one.name == name else one for one in subject.operations
    ]
    return replace(subject, operations=operations)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [one.name for one in DECODER.operations])
def test_at_an_operation_that_cannot_happen_as_assumed_nothing_shows(name: str) -> None:
    subject = assuming_nonsense(DECODER, name)
    found = twins_of_operations(subject, (), ProverLibrary())
    assert [one for one, change in found.items() if change is None] == [name]


@pytest.mark.full
def test_a_row_counts_only_with_a_twin_of_every_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    found = twins_of_operations
    monkeypatch.setattr(
        evidence, "twins_of_operations", lambda *given: {**found(*given), "reset": None}
    )
    text = ClassText(encoder_decoder_cache.CLASS, ("reference",), DECODER.sources["m"], None)
    rows = prove_texts([text])
    assert {row.outcome for row in rows} == {Outcome.HOLDS}
    for row in rows:
        assert len(row.twins) == 1 + len(DECODER.operations)
        assert [one.name for one in row.twins if not one.refuted] == [f"reset: {NO_TWIN}"]
    assert exit_code(rows, set()) == 3
