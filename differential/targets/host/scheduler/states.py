"""The states of a scheduler: all that its session, itself, its managers and its requests hold.

The whole graph of objects is kept, and put back into the scheduler and the encoder cache manager
that are there, since these are logged and faults are planted in them. Configurations and functions
stay as they are.

What tells states apart is the tree: the attributes of all these objects, with these exceptions.

* A moment of arrival counts by its order among others alone.
* A KV block counts by where it stands: its number says nothing. So blocks are listed as they stand
  in the free queue, and then in the tables of the requests in order of arrival.
* Tables of blocks, and what content finds, are looked up and never walked: they have no order.
* What `_LEFT_OUT` names is left out, for the reason that stands there.
"""

import io
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from types import FunctionType
from typing import Any

from ..explorer import SET, ExplorerMoment, as_bytes, is_fixed
from ..protocol import HostError, Tree
from ..vllm_objects.kv_cache import BlockPool, FreeKVCacheBlockQueue, KVCacheBlock, KVCacheManager
from ..vllm_objects.scheduler import Scheduler
from .session import SchedulerSession

_HASH_DIGITS = 12
_OF_TRANSFERS = "it numbers steps for the sake of KV transfers, of which there are none"
_TOLD = "the workers were told of it; nothing reads it when the output comes back"
_LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    "SchedulerSession": {
        "_arrivals": "a request arrives behind all others, whatever the moment is called",
        "_steps": _OF_TRANSFERS,
    },
    "ScheduledRequest": {
        "num_preemptions": "a statistic, but for KV loads",
        "num_cached_tokens": "a statistic, but for KV loads",
        "prompt_token_ids": _TOLD,
        "last_step": _OF_TRANSFERS,
    },
    "DeferredFrees": {"_num_scheduled": _OF_TRANSFERS, "_num_processed": _OF_TRANSFERS},
    "BlockPool": {"blocks": "they are told in order of their places"},
    "KVCacheBlock": {"block_id": "a block is known by its place"},
    "KVCacheManager": {"prefix_cache_stats": "a statistic"},
    "_Step": {"number": _OF_TRANSFERS},
    "SchedulerOutput": {
        "scheduled_new_reqs": _TOLD,
        "scheduled_cached_reqs": _TOLD,
        "scheduled_encoder_inputs": _TOLD,
        "free_encoder_mm_hashes": _TOLD,
        "finished_req_ids": _TOLD,
        "num_common_prefix_blocks": _TOLD,
        "preempted_req_ids": _TOLD,
        "encoder_input_updates": _TOLD,
        "has_sync_kv_loads": _TOLD,
    },
    "SchedulerState": {
        "preempted_req_ids": "the workers are told of it with the next step",
        "scheduled_before": "workers are told more of whom it left out",
    },
}
_PLAIN = frozenset({int, float, bool, str, type(None)})


class SchedulerStates:
    """The states of a `SchedulerSession` without connectors."""

    def __init__(self, session: SchedulerSession) -> None:
        self._session = session
        scheduler = session.scheduler
        for name in ("connector", "ec_connector"):
            if getattr(scheduler, name, None) is not None:
                raise HostError("a scheduler with connectors cannot be explored")
        parts = (scheduler, getattr(scheduler, "state", scheduler), session.recorder.manager)
        self._parts = tuple({id(part): part for part in parts}.values())
        self._stays = {id(part): part for part in self._parts}
        self._fixed = [
            {name: v for name, v in vars(part).items() if is_fixed(v) or id(v) in self._stays}
            for part in self._parts
        ]
        self._stays |= _frozen(self._data())
        self._kept = dict(self._stays)

    @property
    def classes(self) -> Iterable[type]:
        return [base for part in self._parts for base in type(part).__mro__[:-1]]

    def now(self) -> ExplorerMoment[bytes]:
        data = self._data()
        kinds = [type(part).__name__ for part in self._parts]
        tree = _Teller(self._session.scheduler, self._stays).tree(data, kinds)
        return ExplorerMoment(as_bytes(tree), lambda: self._dumped(data), lambda: tree)

    def put_back(self, kept: bytes) -> None:
        position, *attributes = _Loader(io.BytesIO(kept), self._kept).load()
        for part, fixed, values in zip(self._parts, self._fixed, attributes, strict=True):
            held = vars(part)
            held.clear()
            held.update(fixed)
            held.update(values)
        self._session.go_to(position)

    def _data(self) -> list[dict[str, object]]:
        attributes = [
            {name: value for name, value in vars(part).items() if name not in fixed}
            for part, fixed in zip(self._parts, self._fixed, strict=True)
        ]
        return [self._session.position(), *attributes]

    def _dumped(self, data: list[dict[str, object]]) -> bytes:
        target = io.BytesIO()
        try:
            _Dumper(target, self._kept).dump(data)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise HostError(f"this scheduler cannot be explored: {error}") from error
        return target.getvalue()


class _Dumper(pickle.Pickler):
    """Pickles all but what stays as it is, by number, and keeps beside it what it meets and never
    changes: functions, members of enumerations, and frozen records of such."""

    def __init__(self, target: io.BytesIO, stays: dict[int, object]) -> None:
        super().__init__(target, pickle.HIGHEST_PROTOCOL)
        self._stays = stays

    def reducer_override(self, value: object) -> Any:
        number = id(value)
        if number not in self._stays:
            may_stay = _may_stay(type(value))  # type: ignore[arg-type]
            if not may_stay or value is _stay or not _is_hashable(value):
                return NotImplemented
            self._stays[number] = value
        return _stay, (number,)


def _stay(number: int) -> object:
    """What stays, by number; put in its place by `_Loader`."""
    raise HostError(f"{number} is known to the scheduler alone whose state it is")


@cache
def _may_stay(kind: type) -> bool:
    """Whether a value of that type never changes, as long as what it holds does not either."""
    if issubclass(kind, FunctionType | Enum):
        return True
    if not is_dataclass(kind):
        return False
    given = kind.__dataclass_params__  # type: ignore[attr-defined]
    return bool(given.frozen and given.eq)


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:  # it holds what can change
        return False
    return True


class _Collector(pickle.Pickler):
    """Collects the frozen records and functions of a graph of objects."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), pickle.HIGHEST_PROTOCOL)
        self.found: dict[int, object] = {}

    def persistent_id(self, value: object) -> int | None:
        if is_fixed(value) and not isinstance(value, type):
            self.found[id(value)] = value
            return id(value)
        return None


class _Loader(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, stays: Mapping[int, object]) -> None:
        super().__init__(source)
        self._stays = stays

    def find_class(self, module: str, name: str) -> Any:
        if name == _stay.__name__ and module == __name__:
            return self._stays.__getitem__
        return _class(module, name)


@cache
def _class(module: str, name: str) -> Any:
    return pickle.Unpickler(io.BytesIO()).find_class(module, name)


def _frozen(data: object) -> dict[int, object]:
    """The frozen records and functions that are there from the beginning."""
    collector = _Collector()
    collector.dump(data)
    return collector.found


class _Teller:
    """Makes a state into lists."""

    def __init__(self, scheduler: Scheduler, stays: Mapping[int, object]) -> None:
        self._stays = stays
        self._requests = scheduler.requests
        pool = scheduler.kv_cache_manager.block_pool
        self._pool = pool
        self._blocks = list(_in_place(scheduler.kv_cache_manager, pool, self._requests))
        self._places = {id(block): place for place, block in enumerate(self._blocks)}
        self._numbers: dict[int, int] = {}
        moments = sorted(request.arrival_time for request in self._requests.values())
        self._ranks = {moment: rank for rank, moment in enumerate(moments)}

    def tree(self, data: list[dict[str, object]], kinds: Iterable[str]) -> list[Tree]:
        """What is kept of the session and of each part, which are of these kinds."""
        requests = [self._object(request) for request in self._requests.values()]
        blocks = [self._object(block) for block in self._blocks]
        position, *attributes = data
        session = self._told(position.items(), _APART["SchedulerSession"])
        parts = [
            self._told(values.items(), _APART.get(kind, _NOTHING))
            for kind, values in zip(kinds, attributes, strict=True)
        ]
        return [requests, blocks, session, *parts]

    def _tell(self, value: Any) -> Tree:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is list or kind is deque or kind is tuple:
            return [held if type(held) in _PLAIN else self._tell(held) for held in value]
        if isinstance(value, dict):
            return [[self._tell(key), self._tell(held)] for key, held in value.items()]
        if kind is set or kind is frozenset:
            return _set(map(self._tell, value))
        if kind is bytes:
            return value.hex()[:_HASH_DIGITS]
        if isinstance(value, Enum):
            return value.name
        if id(value) in self._places:
            return self._places[id(value)]
        if id(value) in self._stays or kind is FunctionType:
            return None
        name = getattr(value, "request_id", None)
        if name is not None and self._requests.get(name) is value:
            return name
        return self._object(value)

    def _object(self, value: object) -> Tree:
        """An object that several hold is told once."""
        if not isinstance(value, tuple):
            known = len(self._numbers)
            number = self._numbers.setdefault(id(value), known)
            if number < known:
                return number
        return self._told(_attributes(value), _APART.get(type(value).__name__, _NOTHING))

    def _told(
        self, attributes: Iterable[tuple[str, Any]], apart: "Mapping[str, _Tell | None]"
    ) -> list[Tree]:
        told = []
        for name, held in attributes:
            if name in apart:
                if (tell := apart[name]) is not None:
                    told.append(tell(self, held))
            else:
                told.append(held if type(held) in _PLAIN else self._tell(held))
        return told

    def _looked_up(self, pairs: Mapping[object, object]) -> list[Tree]:
        return _set([self._tell(key), self._tell(held)] for key, held in pairs.items())

    def _by_content(self, pairs: Mapping[object, Mapping[int, object]]) -> list[Tree]:
        """Blocks with the same content, in order, without their numbers."""
        return _set([self._tell(key), self._tell([*held.values()])] for key, held in pairs.items())

    def _rank(self, moment: float) -> int:
        return self._ranks.get(moment, -1)  # who is held and not there, is due no more

    def _count(self, blocks: FreeKVCacheBlockQueue) -> int:
        """How many of the blocks, which are told in order elsewhere, are in the free queue."""
        return len(blocks.get_all_free_blocks())


_Tell = Callable[[_Teller, Any], Tree]
_NOTHING: Mapping[str, _Tell | None] = {}
_OTHERWISE: Mapping[str, Mapping[str, _Tell]] = {
    "SchedulerSession": {"_stops_after": _Teller._looked_up},
    "ScheduledRequest": {"arrival_time": _Teller._rank},
    "BlockPool": {
        "free_block_queue": _Teller._count,
        "cached_block_hash_to_block": _Teller._by_content,
    },
    "FullAttentionManager": {
        "req_to_blocks": _Teller._looked_up,
        "num_cached_block": _Teller._looked_up,
    },
}
_APART: Mapping[str, Mapping[str, _Tell | None]] = {
    kind: {**dict.fromkeys(_LEFT_OUT.get(kind, ())), **_OTHERWISE.get(kind, {})}
    for kind in _LEFT_OUT.keys() | _OTHERWISE.keys()
}
"""How an attribute of a class is told where it is told otherwise; None where it is left out."""


def _in_place(
    manager: KVCacheManager, pool: BlockPool, requests: Iterable[str]
) -> Iterable[KVCacheBlock]:
    """Every block once: as they stand in the free queue, in tables, and those that are nowhere."""
    placed: dict[int, KVCacheBlock] = {}
    tables = [group.req_to_blocks for group in manager.coordinator.single_type_managers]
    for block in (
        *pool.free_block_queue.get_all_free_blocks(),
        *(block for name in requests for table in tables for block in table.get(name, ())),
        *pool.blocks,
    ):
        placed.setdefault(block.block_id, block)
    return placed.values()


def _attributes(value: object) -> Iterable[tuple[str, object]]:
    """Names and values of what an object holds. Raises HostError where it does not say."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return zip(value._fields, value, strict=True)
    if hasattr(value, "__dict__"):
        return vars(value).items()
    slots = getattr(type(value), "__slots__", None)
    if slots is None:
        raise HostError(f"a scheduler that holds a {type(value).__name__} cannot be explored")
    return [(name, getattr(value, name)) for name in slots]


def _set(told: Iterable[Tree]) -> list[Tree]:
    return [SET, *sorted(told, key=repr)]
