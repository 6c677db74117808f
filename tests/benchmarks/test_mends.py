"""A mend is held to what it says: the flags that are true with it, and what it takes away."""

from typing import Any

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.targets import mends
from cacheproof.reference.releases import NEWEST

SEEDS = range(6)
BEFORE = "0.32.0"
"""The release before, with faults that the newest one does not have."""
HELD = [(name, NEWEST) for name in mends.mended_in(NEWEST)] + [
    (name, BEFORE) for name in mends.mended_in(BEFORE) if name not in mends.mended_in(NEWEST)
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "release"), HELD)
def test_a_release_decides_with_a_mend_as_its_flags_say(
    script: Any, name: str, release: str
) -> None:
    found = script.held(name, release, SEEDS, ["scheduler", "manager", "kv_cache"])
    assert found.holds, (found.differing[:3], found.brought)


@pytest.mark.full
@pytest.mark.parametrize("flags", [(), ("scheduler.sends_all_items",)])
def test_a_mend_whose_flags_say_otherwise_does_not_hold(
    script: Any, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    mend = mends.mends()["phantom-entry"]
    wrong = {"phantom-entry": type(mend)(mend.does, flags, mend.text)}
    monkeypatch.setattr(mends, "mends", lambda: wrong)
    assert not script.held("phantom-entry", NEWEST, range(1), ["scheduler"]).holds


def test_a_fault_without_a_mend_is_refused(script: Any) -> None:
    with pytest.raises(InputError, match="has no mend"):
        script.held("overtaken", NEWEST, range(1), ["scheduler"])


def test_a_mend_that_shows_nothing_or_breaks_anew_does_not_hold(script: Any) -> None:
    found = script.Held("a", NEWEST, ("flag",), traces=2, compared=2)
    assert not found.holds  # nothing tells the release from the mended one
    found.told_apart = 1
    assert found.holds
    found.brought["SC-1"] = "scheduler, seed 3"
    assert not found.holds


@pytest.mark.full
def test_what_no_listed_fault_breaks_behind_a_mend_is_broken_anew(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that computes anew what was loaded is sent without the item's pixels: a listed
    fault, that nothing could show before."""
    assert not script.held("kv-load-items", NEWEST, range(0), ["scheduler"]).brought
    monkeypatch.setattr(script, "load", lambda: ())
    assert script.held("kv-load-items", NEWEST, range(0), ["scheduler"]).brought.keys() == {"SC-9"}
