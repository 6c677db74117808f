"""Conditions, without CrossHair: what they call and judge, and that nothing is left out."""

from dataclasses import replace
from functools import partial

import pytest

from cacheproof.proofs.crosshair import encoder_cache, encoder_decoder_cache
from cacheproof.proofs.crosshair.encoder_decoder_cache import Debits, DecoderItem
from cacheproof.proofs.crosshair.episode import (
    OF_THE_SCHEDULER,
    REMEMBERED,
    BrokenRule,
    ConditionSubject,
    about,
    rules_of,
)
from cacheproof.proofs.crosshair.job import COMPONENTS, ConditionSet
from cacheproof.proofs.crosshair.states import Shape, SymbolicEntry
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics
from cacheproof.spec.registry import by_id, contracts

HOLDS_TWICE = Shape(
    0, SymbolicEntry(1, True, False), SymbolicEntry(1, True, True), True, True, True, True
)


def without(flag: str) -> EncoderCacheSemantics:
    return replace(EncoderCacheSemantics(), **{flag: False})


@pytest.mark.parametrize("component", COMPONENTS.values(), ids=COMPONENTS)
def test_each_contract_is_judged_unless_it_is_the_schedulers(component: ConditionSet) -> None:
    judged = {
        rule.id
        for condition in component.conditions
        for rule in rules_of(component.name, condition.operations, None)
    }
    of_component = {rule.id for rule in contracts() if rule.component == component.name}
    assert judged == of_component - OF_THE_SCHEDULER


@pytest.mark.parametrize("component", COMPONENTS.values(), ids=COMPONENTS)
def test_each_contract_and_each_condition_has_a_mutant_that_it_can_refute(
    component: ConditionSet,
) -> None:
    of_condition = {
        condition.name: {rule.id for rule in rules_of(component.name, condition.operations, None)}
        | {REMEMBERED.id}
        for condition in component.conditions
    }
    assert {one.condition for one in component.mutants} == of_condition.keys()
    assert {one.contract for one in component.mutants} == set().union(*of_condition.values())
    assert all(one.contract in of_condition[one.condition] for one in component.mutants)


def test_a_release_of_a_first_occurrence_breaks_the_rule_that_names_it() -> None:
    semantics = without("holds_until_last_occurrence")
    about(ConditionSubject(partial(EncoderCacheManager, semantics=semantics), [by_id("EC-6a")]))
    with pytest.raises(BrokenRule) as broken:
        encoder_cache.release(HOLDS_TWICE, second=False, past_both=False)
    assert broken.value.rule.id == "EC-6a"
    assert broken.value.why == (
        "release: for h = 'a': g.needed[h] <= s.holders[h] is false: {'r'} <= {}"
    )


def test_the_same_release_by_the_reference_breaks_nothing() -> None:
    about(ConditionSubject(EncoderCacheManager, list(contracts("encoder_cache"))))
    encoder_cache.release(HOLDS_TWICE, second=False, past_both=False)


def test_a_stale_notice_breaks_the_rule_of_notices() -> None:
    semantics = without("drops_stale_notices")
    about(ConditionSubject(partial(EncoderCacheManager, semantics=semantics), [by_id("EC-9")]))
    empty = Shape(1, SymbolicEntry(1, False, False), SymbolicEntry(1, False, False), *[False] * 4)
    encoder_cache.draw(empty, 1, departed=True, returns=False)
    with pytest.raises(BrokenRule, match="EC-9"):
        encoder_cache.draw(empty, 1, departed=True, returns=True)


def test_a_second_credit_breaks_the_rule_of_releases() -> None:
    semantics = without("releases_decoder_once")
    about(
        ConditionSubject(partial(EncoderDecoderCacheManager, semantics=semantics), [by_id("ED-2")])
    )
    debited, not_debited = DecoderItem(2, True), DecoderItem(2, False)
    encoder_decoder_cache.release(Debits(0, debited, debited, debited))
    with pytest.raises(BrokenRule, match="ED-2"):
        encoder_decoder_cache.release(Debits(0, not_debited, debited, debited))


def test_a_call_that_raises_breaks_the_rule_and_ends_the_episode() -> None:
    class Raises(EncoderCacheManager):
        def free_encoder_input(self, request: object, input_id: int) -> None:
            raise KeyError(input_id)

    about(ConditionSubject(Raises, [by_id("EC-13")]))
    with pytest.raises(BrokenRule) as broken:
        encoder_cache.update(HOLDS_TWICE, other_first=True, past_both=True, need=1)
    assert broken.value.why == "release: c.raised == '' is false: 'KeyError' == ''"
    about(ConditionSubject(Raises, [by_id("EC-6")]))
    encoder_cache.update(HOLDS_TWICE, other_first=True, past_both=True, need=1)


def test_what_does_not_meet_the_preconditions_is_not_judged() -> None:
    with pytest.raises(AssertionError) as unmet:
        encoder_cache.release(replace(HOLDS_TWICE, free=-1), second=False, past_both=False)
    assert not isinstance(unmet.value, BrokenRule)
