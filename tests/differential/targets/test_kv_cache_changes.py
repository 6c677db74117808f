"""What is told only where it changed is what a recorder tells that reads all of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from cacheproof.differential.generators.kv_cache import generate
from cacheproof.differential.targets.host.faults.kv_cache import KV_CACHE_FAULTS
from cacheproof.differential.targets.host.managers import kv_cache
from cacheproof.differential.targets.host.managers.kv_cache_changes import KVCacheChanges
from cacheproof.differential.targets.host.managers.kv_cache_recorder import KVCacheRecorder, State
from cacheproof.differential.targets.host.session import run_events
from cacheproof.differential.targets.reference_kv_cache import build
from cacheproof.reference.semantics import Semantics

SEEDS = range(8)


class _Both(KVCacheChanges):
    """Has the other recorder read the same; `pairs` has what each says of every event."""

    pairs: list[tuple[State, State]]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.whole = KVCacheRecorder(*given)

    def show(self, block_hashes: list[bytes]) -> list[int]:
        self.whole.show(block_hashes)
        return super().show(block_hashes)

    def drain(self) -> tuple[list[Any], State]:
        calls, changed = super().drain()
        self.pairs.append((changed, self.whole.drain()[1]))
        return calls, changed


class _LateToShow(_Both):
    """Learns the hashes of requests when their blocks have long been told."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._late: list[bytes] = []

    def show(self, block_hashes: list[bytes]) -> list[int]:
        late, self._late = self._late, list(block_hashes)
        super().show(late)
        return []


def pairs(recorder: type[_Both], fault: str | None = None) -> Iterator[tuple[State, State]]:
    """What both say of the events of some traces, on a manager with that fault."""
    for seed in SEEDS:
        config, events = generate(seed)
        kit = build(config, Semantics.ideal())
        if fault is not None:
            KV_CACHE_FAULTS[fault](kit.manager)
        with pytest.MonkeyPatch.context() as patch:
            recorder.pairs = []
            patch.setattr(kv_cache, "KVCacheChanges", recorder)
            run_events(kv_cache.KVCacheSession(config, kit), events)
        yield from recorder.pairs


def differing(recorder: type[_Both], fault: str | None = None) -> int:
    """Of how many events both do not say the same, in the same order."""
    said = list(pairs(recorder, fault))
    assert sum(bool(whole) for _, whole in said) > 200
    return sum(repr(changed) != repr(whole) for changed, whole in said)


@pytest.mark.parametrize("fault", KV_CACHE_FAULTS)
def test_both_say_the_same(fault: str) -> None:
    assert differing(_Both, fault) == 0


def test_both_say_the_same_of_hashes_that_get_their_numbers_late() -> None:
    assert differing(_LateToShow) == 0


@pytest.mark.parametrize(
    ("recorder", "left_out"),
    [(_Both, "_tell_hashes"), (_LateToShow, "_follow_blocks")],
    ids=["keys", "late numbers"],
)
def test_one_that_does_not_look_again_is_noticed(
    monkeypatch: pytest.MonkeyPatch, recorder: type[_Both], left_out: str
) -> None:
    told = getattr(KVCacheChanges, left_out)
    seen: set[int] = set()

    def once(self: KVCacheChanges, *given: Any) -> None:
        if id(self) not in seen:
            told(self, *given)
        seen.add(id(self))

    monkeypatch.setattr(KVCacheChanges, left_out, once)
    assert differing(recorder) > 20
