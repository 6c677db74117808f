"""The reference's own managers keep what a block pool's proof takes its callers to promise."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from cacheproof.differential.generators.kv_cache import generate
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.targets import reference_kv_cache, reference_scheduler
from cacheproof.differential.targets.host.session import run_events
from cacheproof.reference import kv_cache_coordinator
from cacheproof.reference.block_pool import BlockPool, KVCacheBlock, hashes_at
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.single_type_kv_cache import SingleTypeKVCacheManager

IDEAL = Semantics.ideal()
WITH_TAILS = IDEAL.without("kv_cache.caches_findable_tails")
"""The ideal caches no partly filled block; releases do."""


BROKEN: Counter[str] = Counter()
"""Promises that were not kept."""


def promise(kept: bool, what: str) -> None:
    BROKEN[what] += not kept


class PromisedPool(BlockPool):
    """Holds its callers to what they promise, by `proofs/symbolic/subjects/block_pool.py`."""

    calls: ClassVar[Counter[str]] = Counter()

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)
        self.held: Counter[int] = Counter()

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        self.calls["new"] += 1
        promise(0 <= num_blocks <= self.get_num_free_blocks(), "so many blocks are free")
        blocks = super().get_new_blocks(num_blocks)
        self.held.update(block.block_id for block in blocks)
        return blocks

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        self.calls["touch"] += 1
        self.held.update(self._each_once(blocks := list(blocks)))
        super().touch(blocks)

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        self.calls["free"] += 1
        ids = self._each_once(ordered_blocks := list(ordered_blocks))
        promise(all(self.held[block] >= 1 for block in ids), "somebody holds what is given back")
        self.held.subtract(ids)
        super().free_blocks(ordered_blocks)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self.calls["evict"] += 1
        promise(all(0 <= one < len(self.blocks) for one in block_ids), "the pool has the block")
        super().evict_blocks(block_ids)

    def cache_full_blocks(
        self,
        request: ScheduledRequest,
        blocks: Sequence[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: Sequence[bool] | None = None,
    ) -> None:
        self.calls["cache"] += 1
        hashes = hashes_at(request.block_hashes, block_size // self.hash_block_size)
        numbers = range(num_cached_blocks, num_full_blocks)
        promise(self.enable_caching, "caching is on")
        promise(num_cached_blocks >= 0, "from a number on")
        promise(num_full_blocks <= min(len(blocks), len(hashes)), "table and hashes reach so far")
        promise(block_mask is None or len(block_mask) >= len(numbers), "the mask reaches so far")
        promise(len({hashes[number] for number in numbers}) == len(numbers), "each hash once")
        self._each_once([blocks[number] for number in numbers])
        for number in numbers:
            wanted = block_mask is None or block_mask[number - num_cached_blocks]
            known = {key for key in blocks[number].keys if key.group_id == kv_cache_group_id}
            has = hashes[number] in {key.block_hash for key in known}
            promise(not (wanted and has), "the key is new to its block")
        super().cache_full_blocks(
            request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id,
            block_mask,
        )  # fmt: skip

    def cache_partial_block(
        self,
        request: ScheduledRequest,
        block: KVCacheBlock,
        num_tokens: int,
        kv_cache_group_id: int,
        block_size: int,
    ) -> Any:
        self.calls["partial"] += 1
        self._each_once([block])
        number = num_tokens // self.hash_block_size
        promise(self.enable_caching, "caching is on")
        promise(1 <= number <= len(request.block_hashes), "the request has the hash")
        return super().cache_partial_block(
            request, block, num_tokens, kv_cache_group_id, block_size
        )

    def _each_once(self, blocks: Sequence[KVCacheBlock]) -> list[int]:
        ids = [block.block_id for block in blocks if block is not self.null_block]
        promise(len(set(ids)) == len(ids), "each block once")
        promise(all(self.blocks[block.block_id] is block for block in blocks), "its own blocks")
        return ids


@pytest.fixture(autouse=True)
def promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache_coordinator, "BlockPool", PromisedPool)
    monkeypatch.setattr(PromisedPool, "calls", Counter())
    BROKEN.clear()


def run_manager(seeds: Iterable[int]) -> None:
    for seed in seeds:
        config, events = generate(seed, 60)
        reference_kv_cache.step_records(config, events, WITH_TAILS)


def run_scheduler(seeds: Iterable[int]) -> None:
    for seed in seeds:
        trace = scheduler_trace(seed)
        plain = msgspec.to_builtins({"header": trace.header, "events": trace.events})
        if reference_scheduler.models(plain, IDEAL):
            run_events(reference_scheduler.session(plain, IDEAL), plain["events"])


def test_the_kv_cache_manager_keeps_every_promise() -> None:
    run_manager(range(150))
    assert PromisedPool.calls.keys() == {"new", "touch", "free", "evict", "cache", "partial"}
    assert Counter() == +BROKEN


def test_the_scheduler_keeps_every_promise() -> None:
    run_scheduler(range(60))
    assert PromisedPool.calls.keys() >= {"new", "touch", "free", "cache"}
    assert Counter() == +BROKEN


Manager = SingleTypeKVCacheManager


def frees_twice(manager: Manager, request_id: str) -> None:
    blocks = manager.pop_blocks_for_free(request_id)
    manager.block_pool.free_blocks([*blocks, *blocks])


def frees_what_it_keeps(manager: Manager, request_id: str) -> None:
    blocks = manager.pop_blocks_for_free(request_id)
    manager.block_pool.free_blocks(blocks)
    manager.block_pool.free_blocks([block for block in blocks if block.ref_cnt == 0])


def touches_twice(manager: Manager, request_id: str) -> None:
    blocks = manager.pop_blocks_for_free(request_id)
    manager.block_pool.touch([*blocks, *blocks])


def takes_without_asking(manager: Manager, request_id: str) -> None:
    manager.block_pool.get_new_blocks(manager.block_pool.num_gpu_blocks)


def evicts_by_any_number(manager: Manager, request_id: str) -> None:
    manager.block_pool.evict_blocks([manager.block_pool.num_gpu_blocks])


@pytest.mark.parametrize(
    ("free", "broken"),
    [
        (frees_twice, "each block once"),
        (frees_what_it_keeps, "somebody holds what is given back"),
        (touches_twice, "each block once"),
        (takes_without_asking, "so many blocks are free"),
        (evicts_by_any_number, "the pool has the block"),
    ],
)
def test_a_caller_that_breaks_a_promise_is_seen(
    free: Callable[[Manager, str], None], broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Manager, "free", free)
    run_manager(range(20))
    assert BROKEN[broken] > 0


def test_a_caller_that_caches_again_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    cache_blocks = Manager.cache_blocks

    def cache_again(
        self: Manager, request: ScheduledRequest, *given: object, **named: object
    ) -> None:
        cache_blocks(self, request, *given, **named)
        self.num_cached_block[request.request_id] = 0
        cache_blocks(self, request, *given, **named)

    monkeypatch.setattr(Manager, "cache_blocks", cache_again)
    run_manager(range(20))
    assert BROKEN["the key is new to its block"] > 0
