"""The contracts of the block pool and the KV cache manager hold of right states, not of wrong."""

import pytest

from cacheproof.spec import block_pool, kv_cache
from cacheproof.spec.block_pool import PoolEvents, PoolRelease, PoolState, StoredBlocks
from cacheproof.spec.kv_cache import Grant, Lookup, Outcome, Tables
from cacheproof.spec.registry import by_id

POOL = PoolState(
    num_blocks=5,
    num_free=2,
    queue=(3, 4),
    refs={1: 1, 2: 2, 3: 0, 4: 0},
    held={1: 1, 2: 2},
    hashes={1: (), 2: ("0:7",), 3: (), 4: ("0:7", "0:8")},
    found={"0:7": (2, 4), "0:8": (4,)},
)
RELEASE = PoolRelease(before=(1, 2), after=(5, 1, 2, 4, 3), first=(5,), last=(4, 3))
LOOKUP = Lookup(tokens=5, hit=4, blocks={2: "0:7"}, hashes={2: ("0:7",)})
GRANT = Grant(True, (3,), {3: 1}, {3: ("0:9",)}, frozenset({"0:9"}))


@pytest.mark.parametrize("id", ["BP-1", "BP-2", "BP-3"])
def test_a_sound_pool_keeps_the_contract(id: str) -> None:
    assert by_id(id).predicate(POOL)


@pytest.mark.parametrize(
    ("id", "wrong"),
    [
        ("BP-1", {"queue": (3,)}),
        ("BP-1", {"queue": (3, 4, 1), "num_free": 3}),
        ("BP-1", {"queue": (3, 4, 4), "num_free": 3}),
        ("BP-1", {"queue": (3, 4, 0), "num_free": 3}),
        ("BP-1", {"num_free": 3}),
        ("BP-1", {"refs": {1: 1, 2: 0, 3: 0, 4: 0}}),
        ("BP-2", {"found": {"0:7": (2, 4)}}),
        ("BP-2", {"found": {"0:7": (2, 4), "0:8": (4, 1)}}),
        ("BP-2", {"found": {"0:7": (2, 4), "0:8": (4,), "0:9": ()}}),
        ("BP-2", {"hashes": {1: ("0:8",), 2: ("0:7",), 3: (), 4: ("0:7", "0:8")}}),
        ("BP-3", {"num_free": 1}),
        ("BP-3", {"held": {1: 1, 2: 1}}),
        ("BP-3", {"refs": {1: 1, 2: 2, 3: 1, 4: 0}}),
        ("BP-3", {"held": {1: 1, 0: 1}}),
    ],
)
def test_an_unsound_pool_breaks_it(id: str, wrong: dict[str, object]) -> None:
    assert not by_id(id).predicate(POOL._replace(**wrong))  # type: ignore[arg-type]


def test_a_replay_must_give_the_pool() -> None:
    assert block_pool.events_tell_the_pool(PoolEvents({"0:7": 2}, {"0:7": 2}))
    assert not block_pool.events_tell_the_pool(PoolEvents({"0:7": 1}, {"0:7": 2}))


def test_what_is_released_is_queued_where_it_is_due() -> None:
    assert block_pool.released_in_order(RELEASE)
    assert not block_pool.released_in_order(RELEASE._replace(after=(5, 1, 2, 3, 4)))
    assert not block_pool.released_in_order(RELEASE._replace(after=(1, 2, 5, 4, 3)))


def test_an_event_carries_a_block_of_tokens_per_hash() -> None:
    assert block_pool.events_carry_own_tokens(StoredBlocks(4, 4))
    assert not block_pool.events_carry_own_tokens(StoredBlocks(8, 4))


@pytest.mark.parametrize(
    "wrong", [{"hit": 5}, {"hit": -1}, {"blocks": {2: "0:8"}}, {"hashes": {}}, {"blocks": {3: ""}}]
)
def test_a_hit_is_the_requests_own_prefix(wrong: dict[str, object]) -> None:
    assert kv_cache.hit_is_own_prefix(LOOKUP)
    assert not kv_cache.hit_is_own_prefix(LOOKUP._replace(**wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"granted": False}, {"refs": {3: 2}}, {"refs": {}}, {"hashes": {3: ("0:8",)}}]
)
def test_new_blocks_are_the_requests_alone(wrong: dict[str, object]) -> None:
    assert kv_cache.new_blocks_are_private(GRANT)
    assert not kv_cache.new_blocks_are_private(GRANT._replace(**wrong))  # type: ignore[arg-type]


def test_an_exception_is_a_breach() -> None:
    assert kv_cache.kv_never_raises(Outcome(""))
    assert not kv_cache.kv_never_raises(Outcome("IndexError"))


def test_a_shared_block_stands_at_one_place() -> None:
    assert kv_cache.shared_blocks_agree(Tables({1: frozenset({(0, 2)})}))
    assert not kv_cache.shared_blocks_agree(Tables({1: frozenset({(0, 2), (1, 2)})}))
