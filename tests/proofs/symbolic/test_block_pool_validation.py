"""The translator's reading of the block pool is held against what CPython does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import pytest

from cacheproof.proofs.symbolic.checking.block_pool_validation import PoolCall, calls_of, universe
from cacheproof.proofs.symbolic.checking.validator import ShownCalls, Validator
from cacheproof.proofs.symbolic.subjects.block_pool import PROVED, of_reference
from cacheproof.proofs.witness.pool import SETTINGS, explore
from cacheproof.reference.block_pool import BlockPool, KVCacheBlock

REFERENCE = of_reference()
Shows = Callable[[type[BlockPool], str], ShownCalls]


@cache
def calls(pool: type[BlockPool]) -> Mapping[str, Sequence[PoolCall]]:
    return calls_of([explore(pool, one, (), 600) for one in SETTINGS])


@pytest.fixture(scope="module")
def shows() -> Shows:
    validator = Validator(universe())

    def show(pool: type[BlockPool], name: str) -> ShownCalls:
        (operation,) = [one for one in REFERENCE.operations if one.name == name]
        return validator.shown(REFERENCE, operation, calls(pool)[name])

    return show


@pytest.mark.full
def test_the_pool_breaks_nothing() -> None:
    assert [explore(BlockPool, one, PROVED, 2_000).broken for one in SETTINGS] == [{}] * 4


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [one.name for one in REFERENCE.operations])
def test_what_the_pool_does_is_admitted_and_nothing_else(shows: Shows, name: str) -> None:
    shown = shows(BlockPool, name)
    assert (shown.against, shown.unread) == ("", "")
    assert shown.calls == shown.refused > 0


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
        caching, self.enable_caching = self.enable_caching, False
        blocks = super().get_new_blocks(num_blocks)
        self.enable_caching = caching
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


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("pool", "name"),
    [
        (Stacking, "free"),
        (Behind, "free"),
        (Keeping, "new"),
        (Sparing, "evict"),
        (Clearing, "reset"),
    ],
)
def test_a_pool_that_is_not_its_text_is_named(
    shows: Shows, pool: type[BlockPool], name: str
) -> None:
    shown = shows(pool, name)
    assert shown.against.startswith(f"{name}(")
    assert shown.against.endswith("which no path admits")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("pool", "broken"), [(Stacking, "BP-5"), (Keeping, "BP-9"), (Sparing, "BP-9")]
)
def test_a_pool_that_breaks_a_contract_is_seen_to(pool: type[BlockPool], broken: str) -> None:
    found = [explore(pool, one, PROVED, 2_000).broken for one in SETTINGS]
    assert any(broken in one for one in found)
