"""The translator's reading of the block pool is held against what Python does."""

import itertools
import random
from collections.abc import Iterable

import pytest

from cacheproof.proofs.evidence import Outcome
from cacheproof.proofs.symbolic.block_pool import of_reference
from cacheproof.proofs.symbolic.block_pool_validation import (
    CALLS,
    Driver,
    Paths,
    met,
    validate,
)
from cacheproof.proofs.symbolic.validation import unlike
from cacheproof.reference.block_pool import BlockPool, KVCacheBlock


@pytest.fixture(scope="module")
def paths() -> Paths:
    return Paths(of_reference())


def test_symbolic_paths_admit_what_the_pool_does_and_nothing_else(paths: Paths) -> None:
    row = validate(paths)
    assert row.outcome is Outcome.HOLDS, row.note
    assert row.counts


class Stacking(BlockPool):
    """What is given back goes first."""

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        super().free_blocks(list(ordered_blocks)[::-1])


class Behind(BlockPool):
    """What cannot be found is handed out no sooner than what can."""

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        for block in ordered_blocks:
            super().free_blocks([block])
            if not block.is_null and block.ref_cnt == 0:
                self.free_block_queue.remove(block)
                self.free_block_queue.append_n([block])


class Keeping(BlockPool):
    """What new blocks held before can still be found."""

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        self.enable_caching = False
        blocks = super().get_new_blocks(num_blocks)
        self.enable_caching = True
        return blocks


class Sparing(BlockPool):
    """Of several blocks, one is left as it is."""

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        super().evict_blocks(sorted(block_ids)[:1])


class Clearing(BlockPool):
    """Held blocks are forgotten too."""

    def reset_prefix_cache(self) -> bool:
        self.evict_blocks(range(self.num_gpu_blocks))
        return super().reset_prefix_cache()


@pytest.mark.parametrize("pool", [Stacking, Behind, Keeping, Sparing, Clearing])
def test_a_pool_that_is_not_its_text_is_refused(paths: Paths, pool: type[BlockPool]) -> None:
    assert validate(paths, pool).outcome is Outcome.REFUTED


def test_calls_that_meet_what_others_met_are_left_out() -> None:
    for seed in range(5):
        calls = list(itertools.islice(Driver(BlockPool, random.Random(seed)).transitions(), CALLS))
        chosen = list(unlike(calls, met))
        assert len(chosen) < len(calls)
        assert list(unlike([*calls, *calls], met)) == chosen
        assert {one.operation for one in chosen} == {one.operation for one in calls}
