"""Reads a KV cache manager, or a block pool alone, that somebody else drives: its configuration,
and its state before and after each call, fast enough for pools of many thousand blocks."""

import inspect
import weakref
from collections.abc import Hashable, Mapping, Sequence
from math import gcd
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from cacheproof.differential.targets.host.engine.kv_cache_groups import groups_of
from cacheproof.differential.targets.host.managers.kv_cache_recorder import (
    FURTHER_STORED_FIELDS,
    KVCacheRecorder,
)
from cacheproof.differential.targets.host.vllm_objects.kv_cache import BlockKey
from cacheproof.differential.traces.outcomes import KVChange, KVConfig

_BLOCK_IDS = attrgetter("block_id")
_REFERENCES = attrgetter("ref_cnt")
_FIRST_HASHES = attrgetter("block_hash")
_ALL_HASHES = attrgetter("keys")


KeyT = TypeVar("KeyT", bound=Hashable)


class KVCacheSnapshot(NamedTuple):
    """The state as it stands in the objects. Lists are by block id; `events` is how many KV events
    are yet to be taken."""

    free: int
    events: int
    queue: list[int]
    refs: list[int]
    hashes: list[BlockKey | None]
    further: dict[int, frozenset[BlockKey]]
    found: dict[BlockKey, tuple[int, ...]]
    tables: dict[str, tuple[tuple[tuple[int, ...], int | None], ...]]


class PoolAlone:
    """A pool in the shape of a manager without tables, which does not keep it alive."""

    coordinator = SimpleNamespace(single_type_managers=())

    def __init__(self, pool: Any) -> None:
        self.block_pool = weakref.proxy(pool)


class KVCacheReader(KVCacheRecorder):
    """A recorder that numbers hashes as it meets them, and tells only what differs between two
    readings. It keeps neither the manager nor its pool alive."""

    def __init__(self, manager: Any) -> None:
        is_alone = isinstance(manager, PoolAlone)
        super().__init__(manager if is_alone else weakref.proxy(manager), frozenset())
        self._pool = self._pool if is_alone else weakref.proxy(self._pool)

    @property
    def pool(self) -> Any:
        """The manager's pool."""
        return self._pool

    def reading(self) -> KVCacheSnapshot:
        """The state now. Raises what reading an unknown shape raises."""
        pool = self._pool
        blocks = pool.blocks
        is_ours = hasattr(blocks[0], "keys")
        entries = pool.cached_block_hash_to_block
        entries = getattr(entries, "_cache", entries)
        return KVCacheSnapshot(
            pool.get_num_free_blocks(),
            len(pool.kv_event_queue),
            list(map(_BLOCK_IDS, pool.free_block_queue.get_all_free_blocks())),
            list(map(_REFERENCES, blocks)),
            [*map(tuple, map(_ALL_HASHES, blocks))] if is_ours else [*map(_FIRST_HASHES, blocks)],
            {
                block: frozenset(hashes)
                for block, hashes in getattr(pool, "cached_block_hashes_by_block", {}).items()
            },
            {
                key: tuple(found) if isinstance(found, dict) else (found.block_id,)
                for key, found in entries.items()
            },
            self._all_tables(),
        )

    def changed(self, before: KVCacheSnapshot, after: KVCacheSnapshot) -> KVChange:
        """What differs, in the words of a recorder."""
        changed: KVChange = {}
        if before.free != after.free:
            changed["free"] = after.free
        if before.queue != after.queue:
            changed["queue"] = after.queue
        null, blocks = self._pool.null_block.block_id, self._pool.blocks
        refs = [block for block in _differing(before.refs, after.refs) if block != null]
        if refs:
            changed["refs"] = {str(block): after.refs[block] for block in refs}
        hashed = {
            *_differing(before.hashes, after.hashes),
            *_changed(before.further, after.further),
        }
        if hashed := hashed - {null}:
            changed["hashes"] = {
                str(block): self._hashes(blocks[block]) if after.hashes[block] else None
                for block in sorted(hashed)
            }
        if keys := _changed(before.found, after.found):
            found = {self._key(key): after.found.get(key) for key in keys}
            changed["map"] = {f"{group}:{number}": ids for (group, number), ids in found.items()}
        if names := _changed(before.tables, after.tables):
            changed["tables"] = {name: after.tables.get(name) for name in names}
        return changed

    def event(self, event: Any) -> list[Any]:
        """A KV event as a recorder tells it, with the fields that this event has."""
        self._takes = frozenset(one for one in FURTHER_STORED_FIELDS if hasattr(event, one))
        return super().event(event)

    def _number(self, block_hash: Any) -> Any:
        number = super()._number(block_hash)
        if number is None and isinstance(block_hash, bytes):
            (number,) = self.show([block_hash])
        return number

    def _all_tables(self) -> dict[str, tuple[tuple[tuple[int, ...], int | None], ...]]:
        managers = self.manager.coordinator.single_type_managers
        return {
            request: tuple(
                (
                    tuple(map(_BLOCK_IDS, single.req_to_blocks.get(request, ()))),
                    single.num_cached_block.get(request),
                )
                for single in managers
            )
            for request in self._with_tables()
        }


def _differing(before: Sequence[object], after: Sequence[object]) -> list[int]:
    if before == after:
        return []
    return [at for at, value in enumerate(after) if value != before[at]]


def _changed(before: Mapping[KeyT, object], after: Mapping[KeyT, object]) -> list[KeyT]:
    if before == after:
        return []
    absent = object()
    changed = [key for key, value in after.items() if before.get(key, absent) != value]
    return changed + [key for key in before if key not in after]


def config_of_pool(pool: Any) -> KVConfig:
    """The configuration of a trace, as far as a pool alone has one."""
    return {
        "num_blocks": len(pool.blocks),
        "groups": [{"kind": "full", "block_size": 1, "window": 0, "has_drafter": False}],
        "max_model_len": 1,
        "max_in_flight_tokens": 1,
        "enable_caching": bool(pool.enable_caching),
        "use_eagle": False,
        "kv_events": bool(getattr(pool, "enable_kv_cache_events", False)),
        "watermark": 0.0,
    }


def config_of(manager: Any, given: Mapping[str, Any]) -> KVConfig | None:
    """The configuration of a trace for a manager that was made with these arguments; None where no
    trace can say what it is."""
    caches = manager.kv_cache_config
    groups = groups_of(caches)
    if not groups:
        return None
    sizes = [group["block_size"] for group in groups]
    pool = manager.block_pool
    is_known = (
        [single.block_size for single in manager.coordinator.single_type_managers] == sizes
        and (not manager.enable_caching or pool.hash_block_size == gcd(*sizes))
        and all(
            getattr(group.kv_cache_spec, "tokens_per_state", 1) == 1
            for group in caches.kv_cache_groups
        )
        and not given.get("num_hash_lookahead_tokens")
        and not given.get("num_prefill_lookahead")
        and given.get("dcp_world_size", 1) == given.get("pcp_world_size", 1) == 1
        and getattr(manager.coordinator, "retention_interval", None) is None
    )
    if not is_known:
        return None
    in_flight = given.get("max_in_flight_tokens") or given.get("max_num_batched_tokens")
    return {
        **config_of_pool(pool),
        "groups": [
            {
                "kind": group["kind"],
                "block_size": group["block_size"],
                "window": group["window"],
                "has_drafter": bool(getattr(one, "is_eagle_group", False)),
            }
            for group, one in zip(groups, caches.kv_cache_groups, strict=True)
        ],
        "max_model_len": manager.max_model_len,
        "max_in_flight_tokens": in_flight or manager.max_model_len,
        "enable_caching": bool(manager.enable_caching),
        "use_eagle": bool(manager.use_eagle),
        "watermark": given.get("watermark", 0.0),
    }


def by_name(
    called: object, name: str, args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, Any]:
    """The arguments of a call of a method by name, defaults included.

    Raises:
        TypeError: the method cannot be called like that.
    """
    known = _signatures.setdefault(type(called), {})
    if name not in known:
        known[name] = _signature(type(called), name)
    bound = known[name].bind(called, *args, **kwargs)
    bound.apply_defaults()
    return dict(list(bound.arguments.items())[1:])


_signatures: WeakKeyDictionary[type, dict[str, inspect.Signature]] = WeakKeyDictionary()


def _signature(owner: type, name: str) -> inspect.Signature:
    """Signature of a method; for one that takes `*args`, of the method that it overrides."""
    found = [
        inspect.signature(vars(base)[name]) for base in owner.__mro__[:-1] if name in vars(base)
    ]
    return next((one for one in found if not _ANY & _kinds(one)), found[0])


_ANY = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def _kinds(signature: inspect.Signature) -> set[object]:
    return {parameter.kind for parameter in signature.parameters.values()}
