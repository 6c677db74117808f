"""The block pool, decision by decision."""

import hashlib

import pytest

from cacheproof.reference.block_pool import BlockPool, KVCacheBlock
from cacheproof.reference.kv_events import MEDIUM_GPU, AllBlocksCleared, BlockRemoved, BlockStored
from cacheproof.reference.scheduled_request import ScheduledRequest

SIZE = 2


def hash_blocks(request: ScheduledRequest) -> list[bytes]:
    """An injective stand-in for the block keys: the digest of the whole prefix."""
    known, tokens = len(request.block_hashes), request.all_token_ids
    return [
        hashlib.sha256(repr(tokens[:end]).encode()).digest()
        for end in range((known + 1) * SIZE, len(tokens) + 1, SIZE)
    ]


def request(name: str, *tokens: int) -> ScheduledRequest:
    return ScheduledRequest(name, tokens, block_hasher=hash_blocks)


@pytest.fixture
def pool() -> BlockPool:
    """Four blocks of two tokens beside the null block."""
    return BlockPool(5, True, SIZE, True)


def cache(pool: BlockPool, request: ScheduledRequest, group: int = 0) -> list[KVCacheBlock]:
    """Blocks for all full blocks of the request, held and cached."""
    blocks = pool.get_new_blocks(len(request.block_hashes))
    pool.cache_full_blocks(request, blocks, 0, len(blocks), SIZE, group)
    return blocks


def queue(pool: BlockPool) -> list[int]:
    return [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]


def test_a_pool_needs_its_null_block() -> None:
    with pytest.raises(ValueError, match="0 blocks"):
        BlockPool(0, True, SIZE)


def test_the_null_block_is_never_free(pool: BlockPool) -> None:
    assert queue(pool) == [1, 2, 3, 4]
    assert pool.null_block.block_id == 0
    assert BlockPool(1, True, SIZE).get_usage() == 0


def test_more_blocks_than_are_free_are_refused(pool: BlockPool) -> None:
    with pytest.raises(ValueError, match="5 blocks of 4"):
        pool.get_new_blocks(5)


def test_what_is_cached_is_found_in_its_group_only(pool: BlockPool) -> None:
    shown = request("r1", 1, 2, 3, 4)
    blocks = cache(pool, shown)
    assert pool.get_cached_block(shown.block_hashes[1], [0]) == [blocks[1]]
    assert pool.get_cached_block(shown.block_hashes[1], [0, 1]) is None


def test_of_two_blocks_with_one_hash_the_older_is_hit(pool: BlockPool) -> None:
    first, second = request("r1", 1, 2), request("r2", 1, 2)
    older, newer = cache(pool, first), cache(pool, second)
    assert pool.get_cached_block(first.block_hashes[0], [0]) == older
    pool.evict_blocks([older[0].block_id])
    assert pool.get_cached_block(first.block_hashes[0], [0]) == newer


def test_freed_blocks_are_still_found_and_go_last_block_first(pool: BlockPool) -> None:
    shown = request("r1", 1, 2, 3, 4)
    blocks = cache(pool, shown)
    pool.free_blocks(reversed(blocks))
    assert queue(pool) == [3, 4, 2, 1]
    assert pool.get_cached_block(shown.block_hashes[0], [0]) == [blocks[0]]


def test_a_block_that_cannot_be_found_goes_before_all_others(pool: BlockPool) -> None:
    pool.free_blocks(pool.get_new_blocks(2))
    assert queue(pool) == [1, 2, 3, 4]
    held = pool.get_new_blocks(1)
    pool.free_blocks(reversed(cache(pool, request("r1", 1, 2))))
    pool.free_blocks(held)
    assert queue(pool) == [1, 3, 4, 2]


def test_a_touched_block_leaves_the_queue_until_the_last_holder_frees_it(pool: BlockPool) -> None:
    blocks = cache(pool, request("r1", 1, 2))
    pool.free_blocks(blocks)
    pool.touch(blocks)
    pool.touch([*blocks, pool.null_block])
    assert (queue(pool), blocks[0].ref_cnt) == ([2, 3, 4], 2)
    pool.free_blocks(blocks)
    assert queue(pool) == [2, 3, 4]
    pool.free_blocks([*blocks, pool.null_block])
    assert queue(pool) == [2, 3, 4, 1]


def test_a_block_handed_out_is_no_longer_found(pool: BlockPool) -> None:
    shown = request("r1", 1, 2)
    pool.free_blocks(cache(pool, shown))
    pool.get_new_blocks(4)
    assert pool.get_cached_block(shown.block_hashes[0], [0]) is None


def test_null_and_masked_blocks_are_left_out(pool: BlockPool) -> None:
    shown = request("r1", *range(6))
    blocks = [pool.null_block, *pool.get_new_blocks(2)]
    pool.cache_full_blocks(shown, blocks, 0, 3, SIZE, 0, [True, False, True])
    found = [pool.get_cached_block(key, [0]) for key in shown.block_hashes]
    assert found == [None, None, [blocks[2]]]


def test_a_coarse_block_is_found_by_what_of_it_a_prompt_fills(pool: BlockPool) -> None:
    shown = request("r1", 1, 2, 3, 4)
    (block,) = pool.get_new_blocks(1)
    pool.cache_partial_block(shown, block, 2, 0, 4)
    assert pool.get_cached_block(shown.block_hashes[0], [0]) == [block]
    pool.cache_full_blocks(shown, [block], 0, 1, 4, 0)
    assert pool.get_cached_block(shown.block_hashes[0], [0]) is None
    pool.cache_partial_block(shown, block, 2, 0, 4)
    assert [block.block_hash_num_tokens, len(block.keys)] == [4, 2]


def test_events_tell_what_is_found_and_what_no_more(pool: BlockPool) -> None:
    shown = request("r1", *range(6))
    blocks = pool.get_new_blocks(3)
    pool.cache_full_blocks(shown, blocks, 0, 1, SIZE, 0)
    pool.cache_full_blocks(shown, blocks, 1, 3, SIZE, 0)
    pool.evict_blocks([2])
    first, second, removed = pool.take_events()
    assert isinstance(first, BlockStored)
    assert isinstance(second, BlockStored)
    assert (first.block_hashes, first.parent_block_hash) == (shown.block_hashes[:1], None)
    assert second.parent_block_hash == shown.block_hashes[0]
    assert second.token_ids == [2, 3, 4, 5]
    assert removed == BlockRemoved([shown.block_hashes[1]], MEDIUM_GPU, 0)
    assert pool.take_events() == []


def test_a_pool_without_events_keeps_none() -> None:
    pool = BlockPool(5, True, SIZE, False)
    pool.free_blocks(cache(pool, request("r1", 1, 2)))
    assert pool.reset_prefix_cache()
    assert pool.take_events() == []


def test_a_reset_waits_until_nothing_is_held(pool: BlockPool) -> None:
    shown = request("r1", 1, 2)
    blocks = cache(pool, shown)
    assert not pool.reset_prefix_cache()
    assert pool.get_cached_block(shown.block_hashes[0], [0]) == blocks
    pool.free_blocks(blocks)
    assert pool.reset_prefix_cache()
    assert pool.get_cached_block(shown.block_hashes[0], [0]) is None
    assert pool.take_events()[-1] == AllBlocksCleared()


def test_usage_is_the_part_that_is_held(pool: BlockPool) -> None:
    pool.get_new_blocks(1)
    assert pool.get_usage() == 0.25
