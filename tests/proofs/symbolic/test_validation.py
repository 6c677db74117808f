"""The translator's reading of a manager is held against what CPython does with its text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from cacheproof.proofs.symbolic.checking.validated import Validation
from cacheproof.proofs.symbolic.checking.validator import PlayedCall, ShownCalls
from cacheproof.proofs.symbolic.checking.witnesses import ManagerExploring
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary
from cacheproof.proofs.symbolic.deciding.subject import CallEnd, Operation, Subject
from cacheproof.proofs.symbolic.reading.source import source_in
from cacheproof.proofs.symbolic.subjects import encoder_cache, encoder_decoder_cache
from cacheproof.proofs.symbolic.values.state import State

REFERENCE = encoder_cache.of_reference()
ABOUT = {"encoder cache": encoder_cache, "encoder-decoder cache": encoder_decoder_cache}
Shows = Callable[[Subject, str], ShownCalls]


@pytest.fixture(scope="module")
def exploring() -> ManagerExploring:
    return ManagerExploring(REFERENCE)


@pytest.fixture(scope="module")
def made(exploring: ManagerExploring) -> Mapping[str, Sequence[PlayedCall]]:
    return exploring.calls(())


@pytest.fixture(scope="module")
def shows(exploring: ManagerExploring, made: Mapping[str, Sequence[PlayedCall]]) -> Shows:
    validator = exploring.validator()

    def show(subject: Subject, name: str) -> ShownCalls:
        (operation,) = [one for one in subject.operations if one.name == name]
        return validator.shown(subject, operation, made[name])

    return show


@pytest.mark.full
@pytest.mark.parametrize("name", ABOUT)
def test_every_operation_is_admitted_and_nothing_else(name: str) -> None:
    subject = ABOUT[name].of_reference()
    exploring = ManagerExploring(subject)
    shown = exploring.validator().all_shown(subject, exploring.calls(()), ())
    witness = Validation(ProverLibrary()).witness(subject, shown, ())
    assert (witness.against, witness.vacuous, witness.unreached) == ("", "", "")
    assert witness.twin.refuted
    # the translator knows no order of what `sorted` gives: another order after `free` is admitted
    admitting = {name for name, one in shown.items() if one.refused < one.calls}
    assert admitting <= {"free"}
    assert shown["free"].refused > shown["free"].calls / 2


def changed(old: str, new: str) -> Subject:
    """The reference with a text that is not its class's."""
    text = REFERENCE.sources["m"].module
    assert text.count(old) == 1
    source = source_in(text.replace(old, new), encoder_cache.CLASS, "changed")
    return replace(REFERENCE, sources={**REFERENCE.sources, "m": source})


OTHERWISE = {
    "check": ("holders.add(request.request_id)", "pass"),
    "can": ("next(iter(self.freeable))", "next(reversed(self.freeable))"),
    "allocate": ("self.num_free_slots -= need", "self.num_free_slots -= need + 1"),
    "release": ("self.num_freeable_slots += size", "self.num_freeable_slots -= size"),
    "free": ("sorted(self.get_cached_input_ids(request))", "[]"),
    "notices": ("if identifier not in self.cached]", "if identifier in self.cached]"),
    "reset": ("        self.freeable.clear()\n", ""),
}
"""Operation -> a change of the text that the class which was run has not. Others change nothing,
and of their answers contracts say nothing."""


@pytest.mark.full
@pytest.mark.parametrize("operation", OTHERWISE)
def test_a_class_that_is_not_its_text_is_named(shows: Shows, operation: str) -> None:
    found = shows(changed(*OTHERWISE[operation]), operation)
    assert found.against.startswith(f"{operation}(")
    assert found.against.endswith("which no path admits")


def assuming_nonsense(subject: Subject, name: str) -> Subject:
    """A subject of whose operation a proof takes for granted what is never so."""

    def run(play: Play, state: State) -> Iterable[CallEnd]:
        (operation,) = [one for one in subject.operations if one.name == name]
        return operation.run(play, state.assuming(False))

    operations = [
        Operation(one.name, run, one.method, one.begins) if one.name == name else one
        for one in subject.operations
    ]
    return replace(subject, operations=operations)


@pytest.mark.parametrize("name", [one.name for one in REFERENCE.operations])
def test_an_operation_that_cannot_happen_as_assumed_is_vacuous(
    exploring: ManagerExploring, made: Mapping[str, Sequence[PlayedCall]], name: str
) -> None:
    subject = assuming_nonsense(REFERENCE, name)
    subject = replace(subject, operations=[one for one in subject.operations if one.name == name])
    shown = exploring.validator().all_shown(subject, made, ())
    witness = Validation(ProverLibrary()).witness(subject, shown, ())
    assert witness.vacuous == name
    assert witness.against == ""
