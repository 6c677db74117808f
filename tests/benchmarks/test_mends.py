"""A mend is held to what it says: the flags that are true with it, and what it takes away."""

from typing import Any

import pytest
from msgspec.structs import replace

from cacheproof.differential.errors import InputError
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.texts import mends
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics

SEEDS = range(6)
DEPTHS = [
    "scheduler",
    "manager",
    "kv_cache",
    "block_hash",
    "media_hash",
    "encoder_connector",
    "front_end",
    "media_identifier",
]
BEFORE = "0.32.0"
"""The release before, with faults that the newest one does not have."""


def _is_of_a_worker(name: str) -> bool:
    """Whether a mend changes what engines alone run."""
    paths = {edit.path for text in mends.mends()[name].text for edit in text.edit}
    return all(path.startswith(("vllm/v1/worker/", "vllm/model_executor/")) for path in paths)


OF_WORKERS = {name for name in mends.mends() if _is_of_a_worker(name)}
ON_ENGINES = [
    one.name
    for one in load()
    if one.engines and one.name in OF_WORKERS and one.name in mends.mended_in(BEFORE)
]
HELD = [(name, NEWEST) for name in mends.mended_in(NEWEST) if name not in OF_WORKERS] + [
    (name, BEFORE)
    for name in mends.mended_in(BEFORE)
    if name not in {*mends.mended_in(NEWEST), *OF_WORKERS}
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "release"), HELD)
def test_a_release_decides_with_a_mend_as_its_flags_say(
    script: Any, name: str, release: str
) -> None:
    found = script.held(name, release, SEEDS, DEPTHS)
    assert found.holds, (found.differing[:3], found.brought)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "release", "depth", "contract"),
    [
        ("cross-attention", "0.13.0", "scheduler", "SC-8"),
        ("drafter-over-groups", "0.19.0", "kv_cache", "KV-3"),
        ("kept-preempted", "0.10.1.1", "scheduler", "SC-6"),
        ("media-evicts-its-own", "0.12.0", "front_end", "PM-2"),
        ("media-ids-replaced", "0.16.0", "media_identifier", "ID-2"),
        ("media-ids-replaced", "0.29.0", "media_identifier", "ID-2"),
        ("media-names-by-request", "0.11.2", "media_identifier", "ID-1"),
        ("media-names-by-request", "0.16.0", "media_identifier", "ID-1"),
        ("media-names-of-servers", "0.17.1", "media_identifier", "ID-1"),
        ("media-names-repeated", "0.11.2", "media_identifier", "ID-1"),
        ("media-names-repeated", "0.16.0", "media_identifier", "ID-1"),
        ("media-of-before-a-reset", "0.30.0", "front_end", "PM-1"),
        ("media-overtaken", "0.14.0", "front_end", "PM-2"),
        ("media-overtaken", "0.28.0", "front_end", "PM-2"),
        ("media-too-large", "0.28.0", "front_end", "PM-3"),
        ("media-without-end", "0.23.0", "front_end", "PM-3"),
        ("null-block", "0.13.0", "scheduler", "SC-8"),
        ("pending-items", "0.10.1.1", "manager", "EC-3"),
        ("session-twice", "0.24.0", "scheduler", "SC-8"),
        ("shared-media-moved", "0.31.0", "front_end", "PM-8"),
        ("shared-media-of-another", "0.31.0", "front_end", "PM-1"),
        ("shared-media-room", "0.11.0", "front_end", "PM-8"),
        ("shared-media-touched", "0.14.0", "front_end", "PM-7"),
        ("shared-media-touched", "0.31.0", "front_end", "PM-7"),
        ("sounds-by-id", "0.29.0", "media_identifier", "ID-3"),
    ],
)
def test_a_mend_of_an_older_release_takes_its_fault_away(
    script: Any, name: str, release: str, depth: str, contract: str
) -> None:
    """What lies behind such a fault is in part of releases whose traces no model runs."""
    found = script.held(name, release, range(10), [depth])
    assert contract in found.gone
    assert not found.differing


@pytest.mark.full
@pytest.mark.parametrize("name", ON_ENGINES)
def test_an_engine_decides_with_a_mend_as_its_flags_say(script: Any, name: str) -> None:
    found = script.held(name, BEFORE, range(0), ["engine"], "engine")
    assert found.holds, (found.differing[:3], found.brought)


@pytest.mark.full
@pytest.mark.parametrize("flags", [(), ("scheduler.sends_all_items",)])
def test_a_mend_whose_flags_say_otherwise_does_not_hold(
    script: Any, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    mend = mends.mends()["phantom-entry"]
    wrong = {"phantom-entry": replace(mend, flags=flags)}
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
    alone = tuple(one for one in load() if one.name == "kv-load-items")
    monkeypatch.setattr(script, "load", lambda: alone)
    assert script.held("kv-load-items", NEWEST, range(0), ["scheduler"]).brought.keys() == {"SC-9"}


def test_what_a_mended_release_refuses_the_flags_are_to_refuse_too(script: Any) -> None:
    own = Semantics.of_vllm(NEWEST)
    release, mended = (
        ReferenceTarget(semantics, release=NEWEST)
        for semantics in (own, own.changed({"scheduler.refuses_long_whole_items": True}))
    )
    (fault,) = (one for one in load() if one.name == "whole-item-sparse")
    (trace,) = (trace for _, trace in script.traces_of(fault))
    attribution = Attribution(load(), NEWEST, mended)
    found, other = (script.Held("a", NEWEST, ("flag",)) for _ in range(2))
    script._hold(found, "a", trace, (mended, release), (mended, release), attribution)
    assert found.holds
    assert found.gone == {"LV-1", "LV-2"}
    script._hold(other, "a", trace, (mended, release), (release, release), attribution)
    assert other.differing
