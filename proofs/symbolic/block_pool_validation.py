"""Whether the translator reads the block pool as Python runs it.

A real pool is led through random calls, as `validation` leads an encoder cache manager; those that
meet what none before them met are put to the paths. Among a few elements loops are run turn by
turn, so the paths say exactly what happens, of every call.
"""

import copy
import itertools
import random
import time
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from cacheproof.proofs.evidence import Evidence, Outcome, RedTwin
from cacheproof.proofs.symbolic.block_pool_machine import Places
from cacheproof.proofs.symbolic.conditions import Play, Subject
from cacheproof.proofs.symbolic.evidence import digest_of_texts
from cacheproof.proofs.symbolic.readings import Language
from cacheproof.proofs.symbolic.state import State
from cacheproof.proofs.symbolic.validation import element, is_found, unlike
from cacheproof.proofs.symbolic.values import BLOCK, BOOL, HASH, Formula, Universe, Value
from cacheproof.reference.block_pool import BlockKey, BlockPool, KVCacheBlock
from cacheproof.reference.kv_events import BlockRemoved, BlockStored, KVCacheEvent
from cacheproof.reference.scheduled_request import ScheduledRequest

SIZE = 2
"""Blocks beside the null block, and hashes."""
CALLS = 150
_NULL = "b0"
_ASKING_FOR_FREE_BLOCKS = frozenset({"new", "touch", "free", "reset"})
Found = Mapping[tuple[str, str], Any]


@dataclass(frozen=True)
class Transition:
    """One call of a real pool: what it was given, and the state around it."""

    operation: str
    given: Mapping[str, Any]
    before: Found
    after: Found


class Driver:
    """A pool, who holds what of it, and who follows its events."""

    def __init__(self, pool_class: type[BlockPool], draw: random.Random) -> None:
        self._pool = pool_class(SIZE + 1, True, 1, True)
        self._draw = draw
        self._held: Counter[str] = Counter()
        self._replayed: Counter[tuple[str, str]] = Counter()

    def transitions(self) -> Iterator[Transition]:
        """Every kind of call in turn, each time in another order; frees twice, since they let go
        of each block but once, and little happens in a pool that is held."""
        calls = (self._new, self._touch, self._free, self._free, self._evict, self._cache,
                 self._partial, self._reset, self._take)  # fmt: skip
        while True:
            for call in self._draw.sample(calls, len(calls)):
                before = self._state()
                operation, given = call()
                yield Transition(operation, given, before, self._state())

    # calls

    def _some(self, blocks: Sequence[KVCacheBlock]) -> list[KVCacheBlock]:
        return self._draw.sample(blocks, self._draw.randint(0, len(blocks)))

    def _new(self) -> tuple[str, dict[str, Any]]:
        many = self._draw.randint(0, self._pool.get_num_free_blocks())
        self._held.update(map(_name, self._pool.get_new_blocks(many)))
        return "new", {"num_blocks": many}

    def _touch(self) -> tuple[str, dict[str, Any]]:
        blocks = self._some(self._pool.blocks)
        self._pool.touch(blocks)
        self._held.update(_name(one) for one in blocks if not one.is_null)
        return "touch", {"blocks": [_name(one) for one in blocks]}

    def _free(self) -> tuple[str, dict[str, Any]]:
        held = [one for one in self._pool.blocks if one.is_null or self._held[_name(one)]]
        blocks = self._some(held)
        self._pool.free_blocks(blocks)
        self._held.subtract(_name(one) for one in blocks if not one.is_null)
        return "free", {"blocks": [_name(one) for one in blocks]}

    def _evict(self) -> tuple[str, dict[str, Any]]:
        blocks = self._some(self._pool.blocks)
        self._pool.evict_blocks([one.block_id for one in blocks])
        return "evict", {"block_ids": {_name(one) for one in blocks}}

    def _reset(self) -> tuple[str, dict[str, Any]]:
        self._pool.reset_prefix_cache()
        return "reset", {}

    def _take(self) -> tuple[str, dict[str, Any]]:
        cleared, growth = _effect(self._pool.take_events())
        known = Counter() if cleared else self._replayed
        self._replayed = +Counter({key: known[key] + growth[key] for key in {*known, *growth}})
        return "take events", {}

    def _cache(self) -> tuple[str, dict[str, Any]]:
        table = self._draw.sample(self._pool.blocks, SIZE)
        hashes = self._draw.sample(_HASHES, SIZE)
        stop = self._draw.randint(0, SIZE)
        start = self._draw.randint(0, stop)
        new = all(
            BlockKey(hashes[number], 0) not in table[number].keys for number in range(start, stop)
        )
        if not new:
            return self._reset()
        self._pool.cache_full_blocks(_request(hashes), table, start, stop, 1, 0)
        return "cache", {
            "num_cached_blocks": start,
            "num_full_blocks": stop,
            "group": "g0",
            "table": [_name(one) for one in table],
            "hashes": [one.decode() for one in hashes],
        }

    def _partial(self) -> tuple[str, dict[str, Any]]:
        block, tokens = self._draw.choice(self._pool.blocks), self._draw.randint(1, SIZE)
        hashes = self._draw.sample(_HASHES, SIZE)
        self._pool.cache_partial_block(_request(hashes), block, tokens, 0, 1)
        return "cache partial", {
            "block": _name(block),
            "num_tokens": tokens,
            "group": "g0",
            "hashes": [one.decode() for one in hashes],
        }

    # what is there

    def _state(self) -> Found:
        pool = self._pool
        blocks = pool.blocks
        found = pool.cached_block_hash_to_block
        return {
            ("m", "num_gpu_blocks"): pool.num_gpu_blocks,
            ("m", "hash_block_size"): pool.hash_block_size,
            ("m", "enable_caching"): pool.enable_caching,
            ("m", "enable_kv_cache_events"): pool.enable_kv_cache_events,
            ("m", "blocks"): [_name(one) for one in blocks],
            ("m", "null_block"): _name(pool.null_block),
            ("m", "cached_block_hash_to_block"): {
                _key(key): {_name(one): _name(one) for one in under.values()}
                for key, under in found.items()
            },
            ("m", "kv_event_queue"): _effect(pool.kv_event_queue),
            ("q", "_blocks"): {
                _name(one): _name(one) for one in pool.free_block_queue.get_all_free_blocks()
            },
            ("b", "is_null"): {_name(one): one.is_null for one in blocks},
            ("b", "ref_cnt"): {_name(one): one.ref_cnt for one in blocks},
            ("b", "keys"): {
                _name(one): {_key(key): tokens for key, tokens in one.keys.items()}
                for one in blocks
            },
            ("g", "held"): dict(+self._held),
            ("g", "replayed"): dict(self._replayed),
        }


_HASHES = tuple(f"h{number}".encode() for number in range(SIZE))


def _request(hashes: Sequence[bytes]) -> ScheduledRequest:
    return ScheduledRequest("r", tuple(range(SIZE)), block_hasher=lambda _: list(hashes))


def _name(block: KVCacheBlock) -> str:
    return f"b{block.block_id}"


def _key(key: BlockKey) -> tuple[str, str]:
    return key.block_hash.decode(), f"g{key.group_id}"


def _effect(events: Sequence[KVCacheEvent]) -> tuple[bool, Counter[tuple[str, str]]]:
    """Whether events clear counts, and by how much these grow behind that."""
    cleared, growth = False, Counter[tuple[str, str]]()
    for event in events:
        if isinstance(event, BlockStored | BlockRemoved):
            by = 1 if isinstance(event, BlockStored) else -1
            for block_hash in event.block_hashes:
                growth[block_hash.decode(), f"g{event.group_idx}"] += by
        else:
            cleared, growth = True, Counter()
    return cleared, growth


def met(one: Transition) -> Hashable:
    """What a call is given, and of blocks who holds them and whether they can be found; the free
    ones too where it asks for them."""
    held, keys = one.before["b", "ref_cnt"], one.before["b", "keys"]

    def block(name: str) -> tuple[bool, int, bool]:
        return name == _NULL, min(2, held[name]), bool(keys[name])

    given: list[Any] = []
    for found in one.given.values():
        match found:
            case set():
                given.append(sorted(map(block, found)))
            case list():
                given.append([block(name) for name in found if name in held])
            case _:
                given.append(block(found) if found in held else found)
    queue = one.before["q", "_blocks"] if one.operation in _ASKING_FOR_FREE_BLOCKS else ()
    return one.operation, str(given), tuple(map(block, queue))


class Paths:
    """The symbolic paths of a pool's operations, among a few elements."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._plays: dict[str, Play] = {}

    def from_state(self, one: Transition) -> "Ends":
        """Where the paths of a call end that can be gone from the state before it."""
        play = self._play(one.operation)
        solver = z3.SimpleSolver()
        first = play.ends[0].after.snapshots[0]
        solver.add(*_is_state(play.universe, State(first.attributes, first.cells, {}), one.before))
        for name, found in one.given.items():
            solver.add(*_is_given(play.universe, play.given[name], found))
        assert solver.check() == z3.sat, one
        begun = solver.model()
        ends = []
        for end in play.ends:
            if any(z3.is_false(begun.eval(fact.formula)) for fact in end.after.path):
                continue  # without asking the solver: the state and what is given decide it
            solver.push()
            solver.add(*(fact.formula for fact in end.after.path))
            if solver.check() == z3.sat:
                ends.append(end.after)
            solver.pop()
        return Ends(play.universe, solver, ends)

    def _play(self, name: str) -> Play:
        if name not in self._plays:
            (operation,) = [one for one in self.subject.operations if one.name == name]
            self._plays[name] = Play(self.subject, operation, Language(Universe(SIZE)))
        return self._plays[name]


@dataclass(frozen=True)
class Ends:
    """The paths of one call from one state."""

    universe: Universe
    solver: z3.Solver
    ends: Sequence[State]

    def admit(self, after: Found) -> bool:
        """Whether one of them ends in this state."""
        return any(self._admits(end, after) for end in self.ends)

    def _admits(self, end: State, after: Found) -> bool:
        self.solver.push()
        self.solver.add(*(fact.formula for fact in end.path))
        self.solver.add(*_is_state(self.universe, end, after))
        possible = self.solver.check() == z3.sat
        self.solver.pop()
        return bool(possible)


def _is_state(universe: Universe, state: State, found: Found) -> Iterator[Formula]:
    for (owner, name), one in found.items():
        yield from _is(universe, state.attribute(owner, name), one)


def _is_given(universe: Universe, given: Any, found: Any) -> Iterator[Formula]:
    if not isinstance(given, Places):
        yield from _is(universe, given, found)
        return
    leaf = BLOCK if given.at.range() == universe.sort(BLOCK) else HASH
    yield given.length == len(found)
    for number, one in enumerate(found):
        yield given.at(number) == element(universe, leaf, one)


def _is(universe: Universe, value: Any, found: Any) -> Iterator[Formula]:
    if isinstance(value, Value):
        yield from is_found(value, found)
    else:
        yield value == element(universe, universe.leaf_of(value) or BOOL, found)


def _changed(after: Found, draw: random.Random) -> Found:
    """A state with one thing changed."""
    changed = copy.deepcopy(dict(after))
    block = f"b{draw.randint(1, SIZE)}"
    key = (f"h{draw.randrange(SIZE)}", "g0")
    match draw.choice(("refs", "queue", "order", "keys", "found", "events")):
        case "refs":
            changed["b", "ref_cnt"][block] += 1
        case "order" if len(changed["q", "_blocks"]) > 1:
            changed["q", "_blocks"] = dict(reversed(changed["q", "_blocks"].items()))
        case "keys":
            keys = changed["b", "keys"][block]
            changed["b", "keys"][block] = {} if keys else {key: 1}
        case "found":
            found = changed["m", "cached_block_hash_to_block"]
            changed["m", "cached_block_hash_to_block"] = {} if found else {key: {block: block}}
        case "events":
            cleared, growth = changed["m", "kv_event_queue"]
            changed["m", "kv_event_queue"] = cleared, growth + Counter({key: 1})
        case _:
            queue = changed["q", "_blocks"]
            if queue.pop(block, None) is None:
                queue[block] = block
    return changed


def validate(paths: Paths, pool_class: type[BlockPool] = BlockPool, seed: int = 0) -> Evidence:
    """Whether the symbolic paths admit what a pool does, and nothing else that was tried."""
    started = time.monotonic()
    subject, draw = paths.subject, random.Random(seed)
    refused, wrong = "", 0
    driver = Driver(pool_class, random.Random(seed))
    for one in unlike(itertools.islice(driver.transitions(), CALLS), met):
        ends = paths.from_state(one)
        if not ends.admit(one.after):
            refused = f"{one.operation} of {one.given} from {one.before} to {one.after}"
            break
        wrong += ends.admit(_changed(one.after, draw))
    return Evidence(
        "translator",
        subject.name,
        subject.sources["m"].name,
        "proof",
        f"calls that differ among {CALLS} random ones",
        Outcome.REFUTED if refused else Outcome.HOLDS,
        refused,
        digest_of_texts(subject),
        time.monotonic() - started,
        (RedTwin("as many states after with one thing changed", not refused and wrong == 0),),
    )
