"""The contracts of the block pool and the KV cache manager hold of right states, not of wrong."""

import pytest

from cacheproof.spec import block_pool, kv_cache
from cacheproof.spec.registry import by_id

POOL = block_pool.PoolState(
    num_blocks=5,
    num_free=2,
    queue=(3, 4),
    refs={1: 1, 2: 2, 3: 0, 4: 0},
    held={1: 1, 2: 2},
    hashes={1: (), 2: ("0:7",), 3: (), 4: ("0:7", "0:8")},
    found={"0:7": (2, 4), "0:8": (4,)},
)
RELEASE = block_pool.PoolRelease(before=(1, 2), after=(5, 1, 2, 4, 3), first=(5,), last=(4, 3))
PLACE, NEXT = (0, 0), (0, 1)
LOOKUP = kv_cache.Lookup(
    tokens=5,
    hit=4,
    blocks={2: "0:7"},
    hashes={2: ("0:7",)},
    table=frozenset({PLACE}),
    read=frozenset({PLACE}),
    longest=4,
)
GRANT = kv_cache.Grant(
    granted=True,
    new=(3,),
    refs={3: 1},
    hashes={3: ("0:9",)},
    own=frozenset({"0:9"}),
    held=frozenset({2, 3}),
    owed=frozenset({3}),
)
TAKE = block_pool.PoolTake(waiting=(4, 5, 6), taken=(4, 5), after=(6,))
FORGETS = block_pool.PoolForgets(
    lost=frozenset({4}), may=frozenset({4, 5}), must=frozenset({4}), hashes={4: (), 5: ("0:7",)}
)
SLOTS = kv_cache.SlotTables(frozenset({PLACE, NEXT}), frozenset({PLACE, NEXT}), frozenset({NEXT}))
ADMISSION = kv_cache.Admission(
    granted=True, need=3, free=6, must_fit=True, whole=4, free_before=5, kept=1, reserved=2
)
CACHED = kv_cache.Cached(
    new={"0:7": 4}, certain=4, due=frozenset({"0:7"}), found={"0:7": (2,), "0:9": (3,)}
)


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
    assert block_pool.events_tell_the_pool(block_pool.PoolEvents({"0:7": 2}, {"0:7": 2}))
    assert not block_pool.events_tell_the_pool(block_pool.PoolEvents({"0:7": 1}, {"0:7": 2}))


def test_what_is_released_is_queued_where_it_is_due() -> None:
    assert block_pool.released_in_order(RELEASE)
    assert not block_pool.released_in_order(RELEASE._replace(after=(5, 1, 2, 3, 4)))
    assert not block_pool.released_in_order(RELEASE._replace(after=(1, 2, 5, 4, 3)))


def test_an_event_carries_a_block_of_tokens_per_hash() -> None:
    assert block_pool.events_carry_own_tokens(block_pool.StoredBlocks(4, 4))
    assert not block_pool.events_carry_own_tokens(block_pool.StoredBlocks(8, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        {"hit": 5},
        {"hit": -1},
        {"blocks": {2: "0:8"}},
        {"hashes": {}},
        {"blocks": {3: ""}},
        {"table": frozenset()},
    ],
)
def test_a_hit_is_the_requests_own_prefix(wrong: dict[str, object]) -> None:
    assert kv_cache.hit_is_own_prefix(LOOKUP)
    assert not kv_cache.hit_is_own_prefix(LOOKUP._replace(**wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"granted": False},
        {"refs": {3: 2}},
        {"refs": {}},
        {"hashes": {3: ("0:8",)}},
        {"held": frozenset({2})},
        {"owed": frozenset({2, 3})},
    ],
)
def test_new_blocks_are_the_requests_alone(wrong: dict[str, object]) -> None:
    assert kv_cache.new_blocks_are_private(GRANT)
    assert not kv_cache.new_blocks_are_private(GRANT._replace(**wrong))  # type: ignore[arg-type]


def test_an_exception_is_a_breach() -> None:
    assert kv_cache.kv_never_raises(kv_cache.EventOutcome(""))
    assert not kv_cache.kv_never_raises(kv_cache.EventOutcome("IndexError"))


def test_a_shared_block_stands_at_one_place() -> None:
    assert kv_cache.shared_blocks_agree(kv_cache.Tables({1: frozenset({(0, 2)})}))
    assert not kv_cache.shared_blocks_agree(kv_cache.Tables({1: frozenset({(0, 2), (1, 2)})}))


def test_blocks_are_handed_out_from_the_front() -> None:
    assert block_pool.handed_out_in_order(TAKE)
    assert not block_pool.handed_out_in_order(TAKE._replace(taken=(4, 6), after=(5,)))
    assert not block_pool.handed_out_in_order(TAKE._replace(after=(5, 6)))


def test_a_reset_is_done_exactly_when_no_block_is_held() -> None:
    assert block_pool.reset_when_unheld(block_pool.PoolReset(True, {}))
    assert block_pool.reset_when_unheld(block_pool.PoolReset(False, {1: 1}))
    assert not block_pool.reset_when_unheld(block_pool.PoolReset(True, {1: 1}))
    assert not block_pool.reset_when_unheld(block_pool.PoolReset(False, {}))


@pytest.mark.parametrize("wrong", [{"lost": frozenset({6})}, {"must": frozenset({5})}])
def test_only_what_is_told_is_forgotten(wrong: dict[str, object]) -> None:
    assert block_pool.forgets_what_is_told(FORGETS)
    assert not block_pool.forgets_what_is_told(FORGETS._replace(**wrong))  # type: ignore[arg-type]


def test_slots_and_blocks_belong_together() -> None:
    assert kv_cache.slots_have_blocks(SLOTS)
    assert kv_cache.blocks_have_slots(SLOTS)
    assert not kv_cache.slots_have_blocks(SLOTS._replace(table=frozenset({NEXT})))
    assert not kv_cache.blocks_have_slots(SLOTS._replace(filled=frozenset({(1, 0)})))


@pytest.mark.parametrize(
    "wrong",
    [{"granted": False}, {"need": 4}, {"reserved": 3}, {"kept": 2}, {"free": 5}, {"whole": 5}],
)
def test_admission_is_exact(wrong: dict[str, object]) -> None:
    assert kv_cache.admitted_exactly(ADMISSION)
    assert not kv_cache.admitted_exactly(ADMISSION._replace(**wrong))  # type: ignore[arg-type]


def test_a_sequence_that_need_not_fit_is_not_counted() -> None:
    assert kv_cache.admitted_exactly(ADMISSION._replace(must_fit=False, whole=9))


def test_what_is_found_is_certain_and_what_is_certain_is_found() -> None:
    assert kv_cache.found_is_certain(CACHED)
    assert kv_cache.certain_is_found(CACHED)
    assert not kv_cache.found_is_certain(CACHED._replace(certain=3))
    assert not kv_cache.certain_is_found(CACHED._replace(found={"0:9": (3,)}))


def test_a_lookup_misses_nothing() -> None:
    assert kv_cache.lookup_misses_nothing(LOOKUP)
    assert not kv_cache.lookup_misses_nothing(LOOKUP._replace(hit=2))


def test_a_common_prefix_is_held_by_all() -> None:
    tables = {"a": frozenset({1, 2}), "b": frozenset({1, 3})}
    assert kv_cache.common_prefix_is_common(kv_cache.PrefixClaim(1, 1, (1,), tables))
    assert not kv_cache.common_prefix_is_common(kv_cache.PrefixClaim(1, 1, (1, 2), tables))
    assert not kv_cache.common_prefix_is_common(kv_cache.PrefixClaim(2, 1, (1,), tables))


def test_a_load_leaves_nothing_out_that_is_read() -> None:
    assert kv_cache.load_is_readable(kv_cache.Load(frozenset({PLACE}), frozenset({PLACE, NEXT})))
    assert not kv_cache.load_is_readable(kv_cache.Load(frozenset({PLACE}), frozenset({NEXT})))


def test_an_event_names_what_comes_before_its_blocks() -> None:
    assert block_pool.events_chain_blocks(block_pool.StoredChain((-1, 4), (-1, 4)))
    assert not block_pool.events_chain_blocks(block_pool.StoredChain((-1, 4), (3, 4)))
    assert not block_pool.events_chain_blocks(block_pool.StoredChain((3, 5), (3, 4)))


@pytest.mark.parametrize("wrong", [{"used": 3}, {"told": (1, 8, 0)}])
def test_statistics_are_of_what_was_answered(wrong: dict[str, object]) -> None:
    said = kv_cache.Statistics(used=4, held=4, told=(1, 8, 4), counted=(1, 8, 4))
    assert kv_cache.says_what_it_did(said)
    assert not kv_cache.says_what_it_did(said._replace(**wrong))  # type: ignore[arg-type]
