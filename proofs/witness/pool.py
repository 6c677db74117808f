"""The states of a small block pool, by running its class: calls in every order that a KV cache
manager may make, each judged by the contracts' own functions.
"""

import copy
import itertools
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cacheproof.proofs.witness import recorded
from cacheproof.proofs.witness.recorded import Found, change_of, told
from cacheproof.reference.block_pool import BlockKey, KVCacheBlock
from cacheproof.reference.kv_events import BlockRemoved, BlockStored, KVCacheEvent
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.semantics import Semantics
from cacheproof.spec import block_pool
from cacheproof.spec.kv_cache import EventOutcome
from cacheproof.spec.registry import by_id

BLOCKS = 3
"""Blocks of a pool, the null block among them."""
NULL = "b0"
HASHES = ("h0", "h1")
GROUP = "g0"
EVENTS_MAX = 3
"""Most events that wait before they must be taken."""
SAFETY = "KV-3"


@dataclass(frozen=True)
class PoolSetting:
    """What a pool is built with; whether its calls are given few things, and so go further."""

    name: str
    caches: bool
    tells: bool
    is_narrow: bool = False


SETTINGS = (
    PoolSetting("few arguments", caches=True, tells=False, is_narrow=True),
    PoolSetting("few arguments, events told", caches=True, tells=True, is_narrow=True),
    PoolSetting("caching, events told", caches=True, tells=True),
    PoolSetting("no caching, events told", caches=False, tells=True),
)


@dataclass(frozen=True)
class PoolAsked:
    """One call: its operation, and what it is given, by name."""

    operation: str
    given: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.operation}({', '.join(f'{name}={one}' for name, one in self.given)})"


Exploration = recorded.SettingExploration[PoolSetting, PoolAsked]


@dataclass(frozen=True)
class _State:
    """A pool, how often each block stands in tables, and how many blocks each key finds, as who
    follows the events knows."""

    pool: Any
    held: Counter[str]
    replayed: Counter[tuple[str, str]]
    path: tuple[PoolAsked, ...]

    @cached_property
    def found(self) -> Found:
        """Every attribute, as the proof has them."""
        pool = self.pool
        under = pool.cached_block_hash_to_block
        queue = pool.free_block_queue._blocks
        return {
            ("m", "num_gpu_blocks"): pool.num_gpu_blocks,
            ("m", "hash_block_size"): pool.hash_block_size,
            ("m", "enable_caching"): pool.enable_caching,
            ("m", "enable_kv_cache_events"): pool.enable_kv_cache_events,
            ("m", "blocks"): [_name(one) for one in pool.blocks],
            ("m", "null_block"): _name(pool.null_block),
            ("m", "cached_block_hash_to_block"): {
                _key(key): {f"b{number}": _name(one) for number, one in blocks.items()}
                for key, blocks in under.items()
            },
            ("m", "kv_event_queue"): _effect(pool.kv_event_queue),
            ("q", "_blocks"): {f"b{number}": _name(one) for number, one in queue.items()},
            ("b", "is_null"): {_name(one): one.is_null for one in pool.blocks},
            ("b", "ref_cnt"): {_name(one): one.ref_cnt for one in pool.blocks},
            ("b", "keys"): {
                _name(one): {_key(key): tokens for key, tokens in one.keys.items()}
                for one in pool.blocks
            },
            ("g", "held"): dict(self.held),
            ("g", "replayed"): dict(self.replayed),
        }

    @cached_property
    def seen(self) -> block_pool.PoolState:
        """The pool's state as contracts see it, without the null block."""
        pool = self.pool
        blocks = {one.block_id: one for one in pool.blocks if one is not pool.null_block}
        return block_pool.PoolState(
            pool.num_gpu_blocks,
            pool.get_num_free_blocks(),
            tuple(one.block_id for one in pool.free_block_queue.get_all_free_blocks()),
            {number: one.ref_cnt for number, one in blocks.items()},
            {_number(name): count for name, count in self.held.items()},
            {number: tuple(map(_told, map(_key, one.keys))) for number, one in blocks.items()},
            {_told(key): tuple(found) for key, found in _under(self).items()},
        )


def explore(
    pool_class: type, setting: PoolSetting, rules: Collection[str], calls_max: int
) -> Exploration:
    """What comes of pools of a class in a setting, as `Exploration.go_through` says. `rules` are
    the ids of the contracts that are asserted, each until it is broken."""
    exploration = Exploration(setting)

    def attempt(before: _State | None, asked: PoolAsked) -> _State | None:
        return _attempted(pool_class, exploration, before, asked, rules)

    exploration.go_through(
        PoolAsked("init"),
        lambda state: _offered(state, setting),
        attempt,
        lambda state: _canonical(state.found),
        calls_max,
        SAFETY,
    )
    return exploration


def _attempted(
    pool_class: type,
    exploration: Exploration,
    before: _State | None,
    asked: PoolAsked,
    rules: Collection[str],
) -> _State | None:
    """The state after a call, which is judged; None where it raises."""
    broken, words = exploration.broken, told(before, asked)
    try:
        after, answer = _called(pool_class, exploration.setting, before, asked)
        found = after.found
        judged = [(SAFETY, EventOutcome("")), *_judged(before, after, asked, answer)]
    except Exception as error:
        judged = [(SAFETY, EventOutcome(type(error).__name__))]
        words += f": raises {type(error).__name__}: {error}"
        found = None
    for rule, values in judged:
        contract = by_id(rule)
        if rule in rules and rule not in broken and not contract.predicate(values):
            why = contract.explain(**{contract.parameters[0]: values})
            broken[rule] = f"{words}: {why}"
    if found is None:
        return None
    was = None if before is None else before.found
    exploration.record(_kind(was, asked, answer, found), asked, answer, was or {}, found)
    return after


# what a manager may ask


def _offered(state: _State, setting: PoolSetting) -> Iterator[PoolAsked]:
    pool = state.pool
    names = [_name(one) for one in pool.blocks]
    held = [one for one in names if one == NULL or state.held[one]]
    yield PoolAsked("take events")
    if len(pool.kv_event_queue) >= EVENTS_MAX:
        return
    if setting.caches:
        yield from _cached(state, names, setting)
    yield PoolAsked("count")
    yield PoolAsked("reset")
    for number in range(len(pool.free_block_queue._blocks) + 1):
        yield PoolAsked("new", (("num_blocks", number),))
    for given in _orders(names, setting):
        yield PoolAsked("touch", (("blocks", given),))
    for given in _orders(held, setting):
        yield PoolAsked("free", (("blocks", given),))
    for given in ((), (names[1],), (names[2], NULL), (names[2], names[1], names[2])):
        yield PoolAsked("evict", (("block_ids", given),))
    for block_hash in HASHES:
        yield PoolAsked("find", (("hash", block_hash), ("groups", (GROUP,))))


def _orders(names: Sequence[str], setting: PoolSetting) -> Iterator[tuple[str, ...]]:
    """Some of these blocks, in any order; the null block twice in one of them."""
    if setting.is_narrow:
        others = [one for one in names if one != NULL]
        yield from itertools.permutations(others, min(1, len(others)))
        yield from itertools.permutations(others, 2)
        return
    for size in range(len(names) + 1):
        yield from itertools.permutations(names, size)
    yield (NULL, *names[1:2], NULL)


def _cached(state: _State, names: Sequence[str], setting: PoolSetting) -> Iterator[PoolAsked]:
    """Calls that cache blocks: no block but the null block is given a key that it has."""
    keys = {_name(one): {key.block_hash for key in one.keys} for one in state.pool.blocks}
    tables = [(names[1], names[2]), (names[2], names[1])]
    reaches = [(0, 1)]
    masks: list[tuple[bool, ...] | None] = [None, (True, True)]
    if not setting.is_narrow:
        tables += [(NULL, names[1])]
        reaches += [(0, 0), (0, 2), (1, 2)]
        masks += [(False, True)]
    for hashes in itertools.permutations(HASHES):
        for table, (start, stop), whole in itertools.product(tables, reaches, masks):
            mask = None if whole is None else whole[: stop - start]
            wanted = [
                number
                for number in range(start, stop)
                if table[number] != NULL and (mask is None or mask[number - start])
            ]
            if any(hashes[n].encode() in keys[table[n]] for n in wanted):
                continue
            given = (
                ("num_cached_blocks", start),
                ("num_full_blocks", stop),
                ("group", GROUP),
                ("table", table),
                ("hashes", hashes),
            )
            if mask is None:
                yield PoolAsked("cache", given)
            else:
                yield PoolAsked("cache masked", (*given, ("mask", mask)))
        for block in names[:2]:
            for tokens in (1, 2):
                yield PoolAsked(
                    "cache partial",
                    (
                        ("block", block),
                        ("num_tokens", tokens),
                        ("group", GROUP),
                        ("hashes", hashes),
                    ),
                )


# one call


def _called(
    pool_class: type, setting: PoolSetting, before: _State | None, asked: PoolAsked
) -> tuple[_State, Any]:
    """The state after a call, and its answer."""
    if before is None:
        pool = pool_class(
            BLOCKS, setting.caches, 1, setting.tells, None, semantics=Semantics.ideal()
        )
        return _State(pool, Counter(), Counter(), (asked,)), None
    kept = before.pool.semantics  # no call changes it
    pool = copy.deepcopy(before.pool, {id(kept): kept})
    # a count of nothing is left out, or else states that are equal would differ
    held, replayed = +before.held, +before.replayed
    given = dict(asked.given)

    def blocks_of(name: str) -> list[KVCacheBlock]:
        return [pool.blocks[int(one[1:])] for one in given[name]]

    answer: Any = None
    match asked.operation:
        case "count":
            answer = pool.get_num_free_blocks()
        case "find":
            answer = pool.get_cached_block(given["hash"].encode(), [_number(GROUP)])
        case "new":
            answer = pool.get_new_blocks(given["num_blocks"])
            held.update(map(_name, answer))
        case "touch":
            pool.touch(blocks_of("blocks"))
            held.update(one for one in given["blocks"] if one != NULL)
        case "free":
            pool.free_blocks(blocks_of("blocks"))
            held.subtract(one for one in given["blocks"] if one != NULL)
        case "evict":
            pool.evict_blocks([_number(one) for one in given["block_ids"]])
        case "reset":
            answer = pool.reset_prefix_cache()
        case "take events":
            answer = pool.take_events()
            replayed = _after(replayed, answer)
        case "cache partial":
            block = pool.blocks[_number(given["block"])]
            tokens, group = given["num_tokens"], _number(given["group"])
            pool.cache_partial_block(_request(given["hashes"]), block, tokens, group, 1)
        case _:
            pool.cache_full_blocks(
                _request(given["hashes"]), blocks_of("table"), given["num_cached_blocks"],
                given["num_full_blocks"], 1, _number(given["group"]), given.get("mask"),
            )  # fmt: skip
    return _State(pool, +held, replayed, (*before.path, asked)), answer


def _request(hashes: Sequence[str]) -> ScheduledRequest:
    digests = [one.encode() for one in hashes]
    return ScheduledRequest("r", tuple(range(len(hashes))), block_hasher=lambda _: digests)


def _name(block: KVCacheBlock) -> str:
    return f"b{block.block_id}"


def _number(name: str) -> int:
    return int(name[1:])


def _key(key: BlockKey) -> tuple[str, str]:
    return key.block_hash.decode(), f"g{key.group_id}"


def _effect(events: Sequence[KVCacheEvent]) -> tuple[bool, Counter[tuple[str, str]]]:
    """Whether events clear counts, and by how much these grow after that."""
    cleared, growth = False, Counter[tuple[str, str]]()
    for event in events:
        if isinstance(event, BlockStored | BlockRemoved):
            by = 1 if isinstance(event, BlockStored) else -1
            for block_hash in event.block_hashes:
                growth[block_hash.decode(), f"g{event.group_idx}"] += by
        else:
            cleared, growth = True, Counter()
    return cleared, Counter({key: by for key, by in growth.items() if by})


def _after(
    known: Counter[tuple[str, str]], events: Sequence[KVCacheEvent]
) -> Counter[tuple[str, str]]:
    """What a follower knows when it has replayed events."""
    cleared, growth = _effect(events)
    before = Counter[tuple[str, str]]() if cleared else known
    counts = {key: before[key] + growth[key] for key in {*before, *growth}}
    return Counter({key: one for key, one in counts.items() if one})


# what contracts look at


def _judged(
    before: _State | None, after: _State, asked: PoolAsked, answer: Any
) -> Iterator[tuple[str, object]]:
    """Contracts and the records of a state, and of the call that led to it, that they judge."""
    state = after.seen
    for rule in ("BP-1", "BP-2", "BP-3"):
        yield rule, state
    if after.pool.enable_kv_cache_events:
        counts = {_told(key): len(one) for key, one in _under(after).items()}
        replayed = _after(after.replayed, after.pool.kv_event_queue)
        yield (
            "BP-4",
            block_pool.PoolEvents({_told(key): one for key, one in replayed.items()}, counts),
        )
    if before is None:
        return
    given, was = dict(asked.given), before.seen
    named: list[int] = []
    match asked.operation:
        case "new":
            named = [one.block_id for one in answer]
            yield "BP-7", block_pool.PoolTake(was.queue, tuple(named), state.queue)
        case "touch":
            touched = {_number(one) for one in given["blocks"]}
            waiting = tuple(one for one in was.queue if one not in touched)
            yield "BP-7", block_pool.PoolTake(waiting, (), state.queue)
        case "free":
            gone = [_number(one) for one in given["blocks"] if one != NULL and not after.held[one]]
            first = tuple(one for one in gone if not was.hashes[one])
            last = tuple(one for one in gone if was.hashes[one])
            yield "BP-5", block_pool.PoolRelease(was.queue, state.queue, first, last)
        case operation:
            if operation == "evict":
                named = [_number(one) for one in given["block_ids"] if one != NULL]
            if operation == "reset":
                named = list(was.refs) if answer else []
                yield "BP-8", block_pool.PoolReset(answer, was.held)
            yield "BP-5", block_pool.PoolRelease(was.queue, state.queue, (), ())
    lost = frozenset(b for b in was.hashes if {*state.hashes[b]} < {*was.hashes[b]})
    yield "BP-9", block_pool.PoolForgets(lost, frozenset(named), frozenset(named), state.hashes)


def _under(state: _State) -> Mapping[tuple[str, str], Collection[int]]:
    found = state.pool.cached_block_hash_to_block
    return {_key(key): list(under) for key, under in found.items()}


def _told(key: tuple[str, str]) -> str:
    return " ".join(key)


# which states and calls are alike


def _canonical(found: object) -> Hashable:
    """A key that is equal for equal states; of dicts the order counts."""
    if isinstance(found, Counter):
        return frozenset(found.items())
    if isinstance(found, Mapping):
        return tuple((key, _canonical(one)) for key, one in found.items())
    return tuple(map(_canonical, found)) if isinstance(found, list | tuple) else found


def _kind(was: Found | None, asked: PoolAsked, answer: object, after: Found) -> Hashable:
    """What makes a call of another kind than those before: what it is given; of the blocks that it
    names, or that are free, who is held or found, beside how many others; whether it answers
    anything; and what it changes, how much."""
    if was is None:
        return "init"
    refs, keys = was["b", "ref_cnt"], was["b", "keys"]
    found = was["m", "cached_block_hash_to_block"]

    def about(one: Hashable) -> Hashable:
        if isinstance(one, tuple):
            return tuple(map(about, one))
        if one in refs:
            most = max((len(found[key]) for key in keys[one] if key in found), default=0)
            is_held = min(2, refs[one]) if asked.operation in _MEETS_HELD else 0
            shares = most if asked.operation in _FORGETS else min(1, most)
            return one == NULL, is_held, shares
        return "" if isinstance(one, str) else one

    given: Hashable = tuple(about(one) for _, one in asked.given)
    if asked.operation in ("touch", "evict"):  # whose order nothing hangs on
        ((_, blocks),) = asked.given
        given = tuple(sorted(str(about(one)) for one in blocks))
    changed = tuple(change_of(one, was[name]) for name, one in after.items())
    free = tuple(map(about, was["q", "_blocks"])) if asked.operation in _MEETS_FREE else ()
    return asked.operation, given, free, bool(answer), changed


_FORGETS = ("new", "evict", "cache", "cache masked", "cache partial")
_MEETS_FREE = ("new", "reset")
_MEETS_HELD = ("touch", "free", "reset")
