"""A watch around KV cache managers and block pools tells a fault from what its caller did."""

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cacheproof.differential.judges.kv_cache_watch import KVCacheWatch
from cacheproof.differential.judges.live_contracts import BLOCK_POOL, KV_CACHE, live_contracts
from cacheproof.differential.judges.watching import (
    ANOTHER_TEXT,
    EMPTY,
    FOREIGN,
    NO_HIT,
    NOT_HELD,
    RAISED,
    ROLLED_BACK,
    UNREADABLE,
    UNSEEN,
    WRITTEN,
)
from cacheproof.differential.lanes.kv_cache import LANES
from cacheproof.differential.search.gallery.kill_matrix import traces_of
from cacheproof.differential.search.gallery.kv_cache import VARIANTS
from cacheproof.differential.search.gallery.variant import Variant
from cacheproof.differential.targets.attached import BLOCK_POOLS, KV_CACHE_MANAGERS, Attachment
from cacheproof.differential.targets.host.protocol import HASH_SEED
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.block_hash import get_request_block_hasher
from cacheproof.reference.block_pool import BlockPool, KVCacheBlock
from cacheproof.reference.hash_functions import hash_function
from cacheproof.reference.kv_cache_manager import KVCacheBlocks, KVCacheManager
from cacheproof.reference.kv_cache_specs import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    SlidingWindowSpec,
)
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.registry import by_id

SIZE = 4
HASHER = get_request_block_hasher(
    SIZE,
    hash_function(Semantics.ideal().block_keys),
    semantics=Semantics.ideal().block_keys,
    seed=HASH_SEED,
)


class Planted(KVCacheManager):
    """Calls what was planted in the place of an instance's methods."""

    planted: dict[str, Callable[..., Any]]

    @classmethod
    def made_by(cls, factory: Callable[..., Any]) -> Callable[..., Any]:
        """Makes what the factory makes, and turns its faults into methods of the class."""

        def make(*given: Any, **named: Any) -> Any:
            manager = factory(*given, **named)
            names = KV_CACHE_MANAGERS.operations.keys() & vars(manager).keys()
            manager.planted = {name: vars(manager).pop(name) for name in names}
            manager.__class__ = cls
            return manager

        return make


def _calls_what_is_planted(name: str) -> Callable[..., Any]:
    def method(self: Planted, *args: Any, **kwargs: Any) -> Any:
        of_class = getattr(super(Planted, self), name)
        return self.planted.get(name, of_class)(*args, **kwargs)

    return method


for _name in KV_CACHE_MANAGERS.operations:
    setattr(Planted, _name, _calls_what_is_planted(_name))


@pytest.fixture
def watch() -> Iterator[KVCacheWatch]:
    """A watch around the reference's managers and pools."""
    watch = KVCacheWatch(None)
    attachments = [Attachment(watch, KV_CACHE_MANAGERS), Attachment(watch, BLOCK_POOLS)]
    for attachment, owner in zip(attachments, (KVCacheManager, BlockPool), strict=True):
        attachment.wrap(owner)
    yield watch
    for attachment in attachments:
        attachment.detach()


def manager_of(*specs: KVCacheSpec, blocks: int = 11) -> KVCacheManager:
    """A manager of ten blocks of four tokens, by default of full attention."""
    groups = tuple(KVCacheGroupSpec(spec) for spec in specs or (FullAttentionSpec(SIZE),))
    return KVCacheManager(KVCacheConfig(blocks, groups), 100, SIZE, SIZE, log_stats=True)


@pytest.fixture
def manager(watch: KVCacheWatch) -> KVCacheManager:
    """One that is watched."""
    return manager_of()


def asks(name: str = "a", tokens: int = 10, first: int = 0) -> ScheduledRequest:
    """A request of that many tokens, of ids that count up."""
    return ScheduledRequest(name, [*range(first, first + tokens)], [], block_hasher=HASHER)


def admit(manager: KVCacheManager, request: ScheduledRequest) -> None:
    """Give a request slots for all its tokens, as a scheduler does."""
    blocks, hit, *_ = manager.get_computed_blocks(request)
    assert manager.allocate_slots(request, request.num_tokens - hit, hit, blocks) is not None
    request.num_computed_tokens = request.num_tokens


@pytest.mark.sample(2)
@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_a_correct_manager_under_a_correct_caller_gives_no_word(
    watch: KVCacheWatch, lane: Any
) -> None:
    ReferenceTarget().run([lane.trace(seed, None) for seed in range(40)])
    assert watch.take() == ([], [])
    assert watch.managers[KV_CACHE] == 40
    assert watch.managers[BLOCK_POOL] == 0
    assert watch.calls > 1000
    assert set(live_contracts(KV_CACHE, None)) <= watch.spoke[KV_CACHE].keys()


TOLD_BY_NO_CALL = {"measures-no-hit"}
"""What its collector says is no call of the manager."""


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "variant",
    [one for one in VARIANTS if one.name not in TOLD_BY_NO_CALL],
    ids=lambda one: one.name,
)
def test_every_faulty_manager_is_caught_by_its_calls_alone(
    watch: KVCacheWatch, variant: Variant
) -> None:
    factory = Planted.made_by(variant.factory or KVCacheManager)
    target = ReferenceTarget(semantics=variant.semantics, managers={KV_CACHE: factory})
    for trace in traces_of(variant):
        target.run([trace])
        breaks, notes = watch.take()
        if breaks:
            return
    pytest.fail(f"nothing was said but {notes}")


class LeaksABlock(KVCacheManager):
    """Keeps the last block of a request that is freed."""

    def free(self, request: ScheduledRequest) -> None:
        (table,) = (one.req_to_blocks for one in self.coordinator.single_type_managers)
        table[request.request_id].pop()
        super().free(request)


def test_a_break_says_both_sides_the_last_calls_and_who_called(watch: KVCacheWatch) -> None:
    groups = (KVCacheGroupSpec(FullAttentionSpec(SIZE)),)
    manager = LeaksABlock(KVCacheConfig(11, groups), 100, SIZE, SIZE)
    request = asks()
    admit(manager, request)
    manager.free(request)
    ((found,), _) = watch.take()
    assert found.contracts == ("BP-5", "BP-3")
    assert "BP-5, BP-3 broken by LeaksABlock, called by " in found.text
    assert by_id("BP-3").title in found.text
    assert "    free(a of 10 tokens, 10 computed)" in found.text
    assert "test_a_break_says_both_sides" in found.text
    admit(manager, asks("b"))
    assert watch.take() == ([], [])


def written(manager: KVCacheManager) -> None:
    manager.block_pool.blocks[3].ref_cnt = 1
    manager.get_computed_blocks(asks())


def reordered(manager: KVCacheManager) -> None:
    queue = manager.block_pool.free_block_queue
    queue.append_n(queue.popleft_n(1))
    manager.get_computed_blocks(asks())


def another_text(manager: KVCacheManager) -> None:
    admit(manager, asks())
    manager.free(asks(first=5))


def no_hit(manager: KVCacheManager) -> None:
    blocks = KVCacheBlocks((manager.block_pool.blocks[1:3],))
    manager.allocate_slots(asks(), 2, 8, blocks)


def rolled_back(manager: KVCacheManager) -> None:
    manager = manager_of(SlidingWindowSpec(SIZE, 4))
    request = asks(tokens=30)
    assert manager.allocate_slots(request, 20)
    request.num_computed_tokens = 20
    assert manager.allocate_slots(request, 4)
    request.num_computed_tokens = 2
    manager.allocate_slots(request, 4)


def not_held(manager: KVCacheManager) -> None:
    request = asks()
    admit(manager, request)
    manager.block_pool.free_blocks(manager.coordinator.single_type_managers[0].req_to_blocks["a"])


def foreign(manager: KVCacheManager) -> None:
    manager.block_pool.touch([KVCacheBlock(3)])


def refused(manager: KVCacheManager) -> None:
    with pytest.raises(ValueError, match="blocks"):
        manager.block_pool.get_new_blocks(11)


def empty(manager: KVCacheManager) -> None:
    with pytest.raises(ValueError, match="no token"):
        manager.allocate_slots(asks(), 0)


def unreadable(manager: KVCacheManager) -> None:
    with pytest.raises(AttributeError):
        manager.free(None)  # type: ignore[arg-type]


def without_hashes(manager: KVCacheManager) -> None:
    manager.get_computed_blocks(ScheduledRequest("a", [*range(10)], []))


def copied(manager: KVCacheManager) -> None:
    copy.deepcopy(manager).free(asks())


def made_full(manager: KVCacheManager) -> None:
    class MadeFull(KVCacheManager):
        def __init__(self) -> None:
            vars(self).update(vars(copy.deepcopy(manager)))

    admit(manager, asks())
    MadeFull()


@pytest.mark.parametrize(
    ("misuse", "why"),
    [
        (written, WRITTEN),
        (reordered, WRITTEN),
        (another_text, ANOTHER_TEXT),
        (no_hit, NO_HIT),
        (empty, EMPTY),
        (rolled_back, ROLLED_BACK),
        (not_held, NOT_HELD),
        (foreign, FOREIGN),
        (refused, RAISED),
        (unreadable, UNREADABLE),
        (without_hashes, UNREADABLE),
        (copied, UNSEEN),
        (made_full, UNSEEN),
    ],
)
def test_what_no_scheduler_does_is_noted_and_no_fault(
    watch: KVCacheWatch, manager: KVCacheManager, misuse: Callable[[KVCacheManager], None], why: str
) -> None:
    misuse(manager)
    breaks, notes = watch.take()
    assert breaks == []
    assert [note.why for note in notes] == [why]
    assert misuse.__name__ in notes[0].caller


def test_who_calls_the_pool_holds_what_it_hands_out(
    watch: KVCacheWatch, manager: KVCacheManager
) -> None:
    pool = manager.block_pool
    blocks = pool.get_new_blocks(3)
    admit(manager, asks())
    assert manager.reset_prefix_cache() is False
    pool.free_blocks(reversed(blocks))
    manager.free(asks())
    assert manager.reset_prefix_cache() is True
    assert watch.take() == ([], [])
    assert watch.calls == 7


def test_a_pool_without_a_manager_is_held_to_its_own_contracts(watch: KVCacheWatch) -> None:
    class HandsOutTheLast(BlockPool):
        def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
            self.free_block_queue.append_n(self.free_block_queue.popleft_n(num_blocks))
            return super().get_new_blocks(num_blocks)

    pool = HandsOutTheLast(11, True, SIZE)
    pool.free_blocks(pool.get_new_blocks(2))
    ((found,), _) = watch.take()
    assert found.contracts == ("BP-7",)
    assert watch.managers == {BLOCK_POOL: 1}


def test_a_manager_that_no_trace_describes_is_left_to_its_pool(watch: KVCacheWatch) -> None:
    specs = tuple(KVCacheGroupSpec(SlidingWindowSpec(SIZE, 4)) for _ in range(1))
    manager = KVCacheManager(
        KVCacheConfig(11, specs, prefix_cache_retention_interval=0), 100, SIZE, SIZE
    )
    request = asks()
    admit(manager, request)
    manager.free(request)
    assert watch.take() == ([], [])
    assert watch.managers == {BLOCK_POOL: 1}
    assert watch.spoke[BLOCK_POOL]["BP-3"] > 1


@pytest.mark.full
def test_a_manager_that_is_gone_is_forgotten(watch: KVCacheWatch) -> None:
    for _ in range(20):
        admit(manager_of(), asks())
        gc.collect()
    assert watch.managers[KV_CACHE] == 20
    assert len(watch._followed) <= 2


def test_detached_nothing_is_left() -> None:
    before = dict(vars(KVCacheManager))
    attachment = Attachment(KVCacheWatch(None), KV_CACHE_MANAGERS)
    attachment.wrap(KVCacheManager)
    assert vars(KVCacheManager)["free"] is not before["free"]
    attachment.detach()
    assert dict(vars(KVCacheManager)) == before


def test_a_large_pool_is_judged_by_what_a_call_moves(watch: KVCacheWatch) -> None:
    """Blocks that are far apart break the same contract that they break in a small pool."""
    pool = BlockPool(5000, True, SIZE)
    blocks = pool.get_new_blocks(4000)
    pool.free_blocks(blocks[1000:1001])
    assert watch.take() == ([], [])

    class Leaks(BlockPool):
        def free_blocks(self, ordered_blocks: Any) -> None:
            super().free_blocks([*ordered_blocks][1:])

    pool = Leaks(5000, True, SIZE)
    pool.free_blocks(pool.get_new_blocks(4000)[2000:2002])
    ((found,), _) = watch.take()
    assert {"BP-1", "BP-3"} & {*found.contracts}
