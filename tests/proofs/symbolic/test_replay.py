"""Counterexamples of proofs are run again on the class, and only what it breaks is said to be."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from cacheproof.proofs.symbolic.checking.mutants import EVERY, mutants
from cacheproof.proofs.symbolic.deciding.refuter import Counterexample, Refuter
from cacheproof.proofs.symbolic.deciding.replay import CounterexampleReplay
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects import encoder_cache, encoder_decoder_cache
from cacheproof.proofs.symbolic.values.values import Universe

BROKEN = [
    (encoder_cache, "check", "check_and_update_cache() ", "'not not holders'", "EC-2"),
    (encoder_cache, "can", "can_allocate() ", "need >= self.num_freeable_slots", "EC-12"),
    (encoder_cache, "allocate", "allocate() ", "without 'self.num_free_slots -= need'", "EC-1"),
    (encoder_cache, "release", "free_encoder_input() ", "without 'if not holders:", "EC-13"),
    (encoder_cache, "notices", "get_freed_mm_hashes() ", "all of them", "EC-9"),
    (encoder_cache, "reset", "reset() ", "without 'self.freeable.clear()", "EC-4"),
    (encoder_decoder_cache, "can", "can_allocate() ", "'need < encoder", "ED-6"),
]


class OfAnotherClass(CounterexampleReplay):
    """Runs the reference in the place of the class that a counterexample is of."""

    def breaks(self, source: Source, *given: Any) -> bool:
        unchanged = encoder_cache.of_reference().sources["m"]
        assert source.methods != unchanged.methods
        return super().breaks(unchanged, *given)


def refuted(
    about: ModuleType,
    operation: str,
    method: str,
    change: str,
    contract: str,
    replay: CounterexampleReplay | None,
) -> Counterexample:
    subject: Subject = about.of_reference()
    named = (
        one
        for one in mutants(subject.sources["m"], EVERY)
        if one.name.startswith(method) and change in one.name
    )
    broken = replace(subject, sources={**subject.sources, "m": next(named).source})
    if replay is not None:
        broken = replace(broken, replay=replay)
    (called,) = [one for one in broken.operations if one.name == operation]
    found = Refuter(broken, [RuleLanguage(Universe(2))]).counterexample(called, contract)
    assert found is not None
    return found


@pytest.mark.parametrize(("about", "operation", "method", "change", "contract"), BROKEN)
def test_the_class_breaks_the_contract_from_the_state_that_was_found(
    about: ModuleType, operation: str, method: str, change: str, contract: str
) -> None:
    assert refuted(about, operation, method, change, contract, None).replayed


def test_a_class_that_keeps_the_contract_there_is_not_said_to_break_it() -> None:
    case = ("allocate", "allocate() ", "without 'self.num_free_slots -= need'", "EC-1")
    replay = encoder_cache.of_reference().replay
    assert replay is not None
    other = OfAnotherClass(replay.state_of, replay.has_ledger)
    assert refuted(encoder_cache, *case, None).replayed
    assert not refuted(encoder_cache, *case, other).replayed
