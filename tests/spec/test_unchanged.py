"""A call that changes nothing needs no second look, unless its contract says so.

The judge skips transition contracts without `also_unchanged` when the state stayed as it was; that
is sound only if they hold of any state beside itself.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cacheproof.spec.encoder_cache
import cacheproof.spec.encoder_decoder_cache  # noqa: F401  (registers its contracts)
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call, DecoderCacheState, EncoderCacheState
from cacheproof.spec.registry import Contract, contracts

NUMBERS = st.integers(-5, 20)
IDENTIFIERS = st.sampled_from(["a", "b", "c"])
REQUESTS = st.sampled_from(["r1", "r2"])
SIZES = st.dictionaries(IDENTIFIERS, NUMBERS)
NOTICES = st.lists(IDENTIFIERS, max_size=3).map(tuple)


@st.composite
def encoder_states(draw: st.DrawFn) -> EncoderCacheState:
    """Any state, lawful or not; sizes and holders have the same keys, as the record says."""
    size = draw(SIZES)
    holders = {identifier: draw(st.frozensets(REQUESTS)) for identifier in size}
    return EncoderCacheState(
        draw(NUMBERS), draw(NUMBERS), draw(NUMBERS), size, holders, draw(SIZES), draw(NOTICES)
    )


DECODER_STATES = st.builds(DecoderCacheState, NUMBERS, NUMBERS, NOTICES)
GHOSTS = st.builds(
    Ghost,
    needed=st.dictionaries(IDENTIFIERS, st.sets(REQUESTS, min_size=1)),
    idle_since=SIZES,
    size=SIZES,
)
CALLS = st.builds(
    Call,
    operation=st.sampled_from(["can", "release", "free"]),
    request=REQUESTS,
    input_id=NUMBERS,
    identifier=IDENTIFIERS,
    need=NUMBERS,
    budget=NUMBERS,
    pending=NUMBERS,
    granted=st.booleans(),
    debited=st.booleans(),
    raised=st.just(""),
)


def judged_only_on_change() -> list[Contract]:
    return [rule for rule in contracts() if rule.kind == "transition" and not rule.also_unchanged]


def state_of(rule: Contract) -> st.SearchStrategy[Any]:
    return encoder_states() if rule.component == "encoder_cache" else DECODER_STATES


def holds(rule: Contract, state: Any, ghost: Ghost, call: Call) -> bool:
    values = {"pre": state, "post": state, "g": ghost, "c": call}
    return rule.predicate(*[values[name] for name in rule.parameters])


@pytest.mark.sample(3)
@pytest.mark.parametrize("rule", judged_only_on_change(), ids=lambda rule: rule.id)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_it_holds_of_any_state_beside_itself(rule: Contract, data: st.DataObject) -> None:
    assert holds(rule, data.draw(state_of(rule)), data.draw(GHOSTS), data.draw(CALLS))


def test_a_contract_that_an_unchanged_state_can_break_is_marked() -> None:
    marked = {rule.id for rule in contracts() if rule.also_unchanged}
    assert {"EC-12", "EC-13", "ED-4"} <= marked
    rule = next(rule for rule in contracts() if rule.id == "EC-12")
    state = EncoderCacheState(4, 4, 4, {}, {}, {}, ())
    refused = Call("can", "r1", 0, "a", 4, 9, 4, 0, False, False, "")
    assert not holds(rule, state, Ghost(), refused)
