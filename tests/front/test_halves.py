"""Sender and receiver make the same of their caches, whatever these answer."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cacheproof.differential.provision import releases
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.targets.halves import TWO_MODALITIES, HalvesHost
from cacheproof.differential.targets.host.faults.halves import TWINS
from cacheproof.differential.targets.host.managers.halves import (
    Found,
    Item,
    Name,
    Oracle,
    Size,
    Unmodelled,
    World,
    explored,
    said,
)
from cacheproof.differential.targets.mended import link_tree
from cacheproof.differential.targets.reference_halves import explored_reference
from cacheproof.proving.halves import outcome_of, prove_reference, prove_release
from cacheproof.proving.proving import listing
from cacheproof.reference.processor_cache import LeastRecentlyUsed
from cacheproof.reference.releases import MODELLED, NEWEST
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.front_end import FrontEndSemantics
from cacheproof.spec.evidence import Outcome

HOLDS = (Outcome.HOLDS, "")
SAMPLE = (NEWEST, "0.28.0", "0.12.0", "0.10.2")
"""One release of each way in which a half calls its cache, but for 0.29.0."""
TOLD = {
    "reads_a_name": Outcome.UNKNOWN,
    "counts_messages": Outcome.UNKNOWN,
    "forgets_each_third": Outcome.UNKNOWN,
    "asks_nothing": Outcome.VACUOUS,
}
"""What is said of twins, where it is not that they are refuted."""


def host_of(release: str) -> HalvesHost:
    return HalvesHost(releases.install(release, report=print))


@pytest.fixture(scope="module")
def newest_halves() -> Iterator[HalvesHost]:
    with closing(host_of(NEWEST)) as host:
        yield host


def all_but_a_sample() -> list[object]:
    return [
        release if release in SAMPLE else pytest.param(release, marks=pytest.mark.full)
        for release in MODELLED
    ]


@pytest.mark.parametrize("release", all_but_a_sample())
def test_both_halves_of_a_release_evict_alike(release: str) -> None:
    with closing(host_of(release)) as host:
        found = host.explored()
        assert outcome_of(found) == HOLDS
        assert "KeyError" not in found.refused
        # as in the fault `media-too-large`, which 0.29.0 mends
        assert ("ValueError" in found.refused) is (
            MODELLED.index(release) < MODELLED.index("0.29.0")
        )
        assert outcome_of(host.explored(modalities=TWO_MODALITIES))[0] is Outcome.REFUTED
        (lacking,) = host.lacking_after_modalities()
        assert lacking.startswith("audio b: ")


@pytest.mark.parametrize("release", MODELLED)
def test_both_halves_of_the_reference_evict_alike_under_all_semantics(release: str) -> None:
    semantics = Semantics.of_vllm(release).front_end
    assert outcome_of(explored_reference(semantics)) == HOLDS


def test_both_halves_of_the_reference_evict_alike() -> None:
    found = explored_reference(FrontEndSemantics())
    assert outcome_of(found) == HOLDS
    assert found.refused == {}


@pytest.mark.parametrize("flag", ["touches_all_first", "skips_oversize"])
def test_halves_of_two_releases_are_refuted(flag: str) -> None:
    semantics = FrontEndSemantics()
    other = replace(semantics, **{flag: False}, processes_again=False)
    assert outcome_of(explored_reference(semantics, other))[0] is Outcome.REFUTED


@pytest.mark.parametrize("twin", TWINS)
def test_a_change_of_either_half_is_noticed(newest_halves: HalvesHost, twin: str) -> None:
    outcome, why = outcome_of(newest_halves.explored(twin))
    expected = TOLD.get(twin, Outcome.UNKNOWN if twin == "reads_an_item" else Outcome.REFUTED)
    assert outcome is expected, why


BASE, LRU = "vllm/multimodal/cache/base.py", "vllm/multimodal/cache/lru.py"
CHANGES = {
    "the receiver does not count what comes as used": (
        BASE, "self.touch_receiver_cache_item(cache_key, feature.data)", "pass", Outcome.REFUTED,
    ),
    "the receiver looks items up by another name": (
        BASE, "cache_key = feature.mm_hash or feature.identifier", "cache_key = feature.identifier",
        Outcome.REFUTED,
    ),
    "the receiver keeps nothing": (
        LRU, "self.cache_if_fits(self._cache, mm_hash, mm_item)", "pass", Outcome.REFUTED,
    ),
    "the receiver looks for what it does not use": (
        LRU, "self._cache.pop(mm_hash, None)\n            self.cache", "self.cache", Outcome.HOLDS,
    ),
    "the sender counts nothing as used": (
        LRU, "(cached_item := self._cache.get(mm_hash)) is not None:\n            return None",
        "mm_hash in self._cache and (cached_item := self._cache.cache[mm_hash]):\n"
        "            return None", Outcome.REFUTED,
    ),
    "the receiver asks what a name is": (
        LRU, "if mm_item is not None:", "if mm_item is not None and type(mm_hash):",
        Outcome.UNKNOWN,
    ),
    "the receiver asks which name it is": (
        LRU, "if mm_item is not None:", "if mm_item is not None and mm_hash is not self:",
        Outcome.UNKNOWN,
    ),
    "the receiver knows its last item": (
        LRU, "if mm_item is not None:", "self.last = mm_item\n        if mm_item is not None:",
        Outcome.UNKNOWN,
    ),
    "the receiver counts how much is kept": (
        LRU, "if mm_item is not None:", "if mm_item is not None and len(self._cache) < 9:",
        Outcome.UNKNOWN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_text_of_the_newest_release_is_judged(change: str, tmp_path: Path) -> None:
    path, old, new, expected = CHANGES[change]
    release = releases.install(NEWEST, report=print)
    text = (release.tree / path).read_text()
    assert old in text
    tree = tmp_path / "tree"
    link_tree(release.tree, tree, {path: text.replace(old, new, 1)})
    changed = replace(release, tree=tree, metadata=tree)
    with closing(HalvesHost(changed)) as host:
        outcome, why = outcome_of(host.explored())
    assert outcome is expected, why


def test_a_row_holds_and_refutes_its_twins_or_is_refuted_and_excused_by_nothing(
    tmp_path: Path,
) -> None:
    release = releases.install(NEWEST, report=print)
    rows = [prove_reference(), prove_release(f"vllm@{NEWEST}", release)]
    assert [(row.outcome, row.counts) for row in rows] == [(Outcome.HOLDS, True)] * 2
    path, old, new, _ = CHANGES["the receiver keeps nothing"]
    tree = tmp_path / "tree"
    text = (release.tree / path).read_text()
    link_tree(release.tree, tree, {path: text.replace(old, new, 1)})
    row = prove_release("path:here", replace(release, tree=tree, metadata=tree))
    assert row.outcome is Outcome.REFUTED
    assert row.digest != rows[1].digest
    assert listing(row, load(), NEWEST) is None


def test_a_release_that_does_not_run_is_not_proved(tmp_path: Path) -> None:
    release = releases.install(NEWEST, report=print)
    tree = tmp_path / "tree"
    link_tree(release.tree, tree, {BASE: "raise ImportError"})
    row = prove_release("path:here", replace(release, tree=tree, metadata=tree))
    assert (row.outcome, row.counts) == (Outcome.UNKNOWN, False)


@pytest.mark.full
@pytest.mark.parametrize("release", MODELLED[:-1])
def test_a_change_of_either_half_is_noticed_in_each_release(release: str) -> None:
    with closing(host_of(release)) as host:
        found = {twin: outcome_of(host.explored(twin))[0] for twin in TWINS}
    held = [twin for twin, outcome in found.items() if outcome is Outcome.HOLDS]
    assert held == []


def test_nothing_but_handing_on_can_be_done_to_what_a_half_is_given() -> None:
    for made in (Item("item"), Size("size"), Name("name")):
        for use in (str, hash, len, int, list, dir, lambda one: one == one, lambda one: one.shape):
            with pytest.raises(Unmodelled):
                use(made)
        with pytest.raises(Unmodelled):
            isinstance(made, str)
        assert repr(made) == "opaque"
    for made in (Item("item"), Size("size")):
        with pytest.raises(Unmodelled):
            bool(made)


def test_what_is_caught_is_not_forgotten() -> None:
    class Catching(Trusting):
        def receive(self, names):
            try:
                len(self.receiver)
            except BaseException:
                return super().receive(names)

    outcome, why = outcome_of(explored(Catching))
    assert outcome is Outcome.UNKNOWN
    assert "another use of a cache" in why


class Trusting:
    """A sender that looks once, and a receiver that trusts it."""

    def __init__(self, world: World) -> None:
        self.sender = Oracle(world, lambda item: Size(said(item, Item)), Item)
        self.receiver = Oracle(world, lambda item: Size(said(item, Item)), Item)

    def send(self, names):
        self.known = [name in self.sender for name in names]
        for at, name in enumerate(names):
            if not self.known[at]:
                self.sender.put_if_fits(name, Item(str(at)))
        return [None if known else str(at) for at, known in enumerate(self.known)]

    def receive(self, names):
        for at, name in enumerate(names):
            if not self.known[at]:
                self.receiver.put_if_fits(name, Item(str(at)))
        return [said(name, Name) for name in names]

    def clear(self) -> None:
        self.sender.clear()
        self.receiver.clear()


def test_halves_that_are_asked_and_told_alike_hold() -> None:
    assert outcome_of(explored(Trusting)) == HOLDS


def test_halves_that_are_asked_nothing_do_not_hold() -> None:
    assert outcome_of(Found(scripts=1, sent=1, alone=1, kept=1)) == (
        Outcome.VACUOUS,
        "nothing is asked",
    )


def test_what_is_taken_for_a_question_changes_nothing_in_the_reference() -> None:
    """A look for what is not there, or to forget it, is no call that both halves must make."""
    for touches_nothing in (False, True):
        cache = LeastRecentlyUsed(3, len, touches_nothing=touches_nothing)
        cache.put("a", "x")
        cache.touch("b")
        before = dict(cache._values), cache.size
        assert cache.get("b") is None
        cache.drop("b")
        assert (dict(cache._values), cache.size) == before
