"""Each contract of processed media holds of a sound subject and breaks on the one made for it."""

import pytest

from cacheproof.spec.processed_media import Answer, Claimed, Emptied, Half, Handed, Quiet
from cacheproof.spec.registry import by_id

SOUND = {
    "PM-1": [Handed("x/0", "x/0", frozenset()), Handed("x/0", "x/1", frozenset({"x/0"}))],
    "PM-2": [Claimed(is_there=True)],
    "PM-3": [Answer("")],
    "PM-4": [Half(0, 0, 4), Half(4, 4, 4)],
    "PM-5": [Quiet(("x", "y"), ("x", "y"), False), Quiet(("x",), (), True)],
    "PM-6": [Emptied(0, 0)],
}
BROKEN = {
    "PM-1": [Handed("x/1", "x/0", frozenset({"x/0"})), Handed("y/0", "x/0", frozenset())],
    "PM-2": [Claimed(is_there=False)],
    "PM-3": [Answer("too large")],
    "PM-4": [Half(3, 4, 4), Half(5, 5, 4)],
    "PM-5": [Quiet(("x", "y"), ("y", "x"), False), Quiet((), ("x",), False)],
    "PM-6": [Emptied(1, 0), Emptied(0, 1)],
}


@pytest.mark.parametrize("id", sorted(SOUND))
def test_what_is_sound_is_not_judged_broken(id: str) -> None:
    assert all(by_id(id).predicate(subject) for subject in SOUND[id])


@pytest.mark.parametrize("id", sorted(BROKEN))
def test_each_subject_breaks_the_contract_that_it_was_made_for(id: str) -> None:
    assert not any(by_id(id).predicate(subject) for subject in BROKEN[id])
