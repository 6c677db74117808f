"""What a KV cache manager and its block pool were asked and answered, as a record has it."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, ParamSpec, TypeVar

from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.kv_reading import ManagerReader, tables_change
from cacheproof.differential.recording.messages import (
    KV_OPERATIONS,
    KVCall,
    KVCalls,
    KVFacts,
    KVState,
)
from cacheproof.differential.recording.settings import KV_NOT_FOLLOWED, kv_config, kv_unjudged
from cacheproof.differential.recording.writer import Records
from cacheproof.differential.targets.host.managers.kv_cache_recorder import (
    POOL_CHANGES,
    STATS,
    State,
)
from cacheproof.differential.targets.host.vllm_objects.kv_cache import KVCacheBlocks
from cacheproof.differential.targets.host.vllm_objects.scheduler import ConfiguredScheduler

NUMBERS_MAX = 100_000
"""Values in a record, so that none is too long for a file."""
_NUMBER_OF = {operation: number for number, operation in enumerate(KV_OPERATIONS)}
_OF_A_REQUEST = frozenset(KV_OPERATIONS[:6])
_OF_A_NAME = frozenset({"remove_skipped_blocks", "get_num_common_prefix_blocks"})
_GIVING_UP = frozenset({"free", "pop_blocks_for_free"})
_TOLD = {
    "get_computed_blocks": frozenset({"max_cache_hit_length"}),
    "allocate_slots": frozenset(
        {
            "num_new_tokens",
            "num_new_computed_tokens",
            "num_lookahead_tokens",
            "num_external_computed_tokens",
            "delay_cache_blocks",
            "num_encoder_tokens",
            "full_sequence_must_fit",
            "reserved_blocks",
            "has_scheduled_reqs",
        }
    ),
    "cache_blocks": frozenset({"num_computed_tokens"}),
}
"""Arguments that are told, where they say anything."""
_NONE: frozenset[str] = frozenset()
_CALL_VALUES = 16
"""Values of a call without answer, change and keys."""
_NO_KEYS: list[int] = []
_NOBODY = object()
_read_facts = attrgetter(
    "request_id", "block_hashes", "status", "num_tokens", "num_computed_tokens", "num_preemptions"
)
_Asked = tuple[str, int, KVFacts]
"""A request that a call is about: its name, its number and what it is."""


P = ParamSpec("P")
R = TypeVar("R")


class KVCacheRecording(ManagerReader):
    """Logs the calls of one scheduler's KV cache manager, each with the change it made. What goes
    wrong here is raised by `write`, never to who called the manager. `takes` has what the release's
    KV events have."""

    def __init__(
        self,
        manager: Any,
        hasher: Hasher,
        number_of: Callable[[str], int],
        config: dict[str, Any],
        unjudged: list[str],
        takes: frozenset[str],
    ) -> None:
        self._config = config
        self._unjudged = unjudged
        self._told: dict[int, int] = {}
        self._put_off: list[list[int]] = []
        self._calls: list[KVCall] = []
        self._failure: Exception | None = None
        self._has_ended = False
        self._is_inside = False
        self._status: object = None
        self._status_name = ""
        self._no_blocks, self._no_ids = _nothing_found(manager)
        self._waiting = 0  # values in the calls that are to be written
        super().__init__(manager, takes & {"group_idx"}, hasher, number_of)
        methods = {
            name: (getattr(manager, name), _names_of(manager, name))
            for name in KV_OPERATIONS
            if hasattr(manager, name)
        }
        for name, (method, names) in methods.items():
            wrap = self._wrap_of_request if name in _OF_A_REQUEST else self._wrap
            setattr(manager, name, wrap(name, method, names))
        for name in (one for one in POOL_CHANGES if hasattr(self._pool, one)):
            setattr(self._pool, name, self._touching(name, getattr(self._pool, name)))

    def write(self, writer: Records, *, is_whole: bool) -> None:
        """Write the calls since the last time, and all that there is where that is asked for. The
        keys of requests are then told anew."""
        if self._failure is not None:
            raise self._failure
        if self._calls:
            is_short = self._waiting < NUMBERS_MAX
            for calls in [self._calls] if is_short else in_parts(self._calls, _numbers_in):
                writer.put(KVCalls(calls))
            self._calls = []
            self._waiting = 0
        if is_whole:
            self._write_state(writer)

    def _write_state(self, writer: Records) -> None:
        unseen = self.all_changes()
        if unseen is not None:
            read: KVCall = (_NUMBER_OF["read"], None, None, {}, None, unseen, None)
            writer.put(KVCalls([read]), at_once=True)
        self._told.clear()
        pending = [self.event(one) for one in getattr(self._pool, "kv_event_queue", ())]
        parts = list(_parts(self.state))
        for place, part in enumerate(parts):
            more = place < len(parts) - 1
            writer.put(
                KVState(
                    self._config,
                    self._unjudged,
                    part,
                    self._put_off,
                    _counts(getattr(self.manager, "prefix_cache_stats", None)),
                    pending,
                    more,
                ),
                at_once=True,
            )

    def end(self) -> None:
        """Log no more."""
        self._has_ended = True
        self._calls.clear()

    def _wrap_of_request(
        self, name: str, method: Callable[P, R], names: Sequence[str]
    ) -> Callable[P, R]:
        """Wraps a method that is given a request first. Each step calls one for each request, so
        this does without what `_wrap` makes for a call."""

        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._is_inside or self._has_ended:
                return method(*args, **kwargs)
            self._is_inside = True
            asked = self._safely(self._facts_of, args[0] if args else kwargs.get("request"))
            try:
                answer = method(*args, **kwargs)
            except BaseException as error:
                self._is_inside = False
                raised = type(error).__name__
                self._safely(self._note_asked, name, asked, names, args, kwargs, None, raised)
                raise
            self._is_inside = False
            self._safely(self._note_asked, name, asked, names, args, kwargs, answer, None)
            return answer

        return call

    def _wrap(self, name: str, method: Callable[P, R], names: Sequence[str]) -> Callable[P, R]:
        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._is_inside or self._has_ended:
                return method(*args, **kwargs)
            self._is_inside = True
            given = dict(zip(names, args, strict=False)) | kwargs

            def note(answer: object, raised: str | None) -> None:
                self._is_inside = False
                self._safely(self._note, name, given, answer, raised)

            return _noted(note, method, *args, **kwargs)

        return call

    def _touching(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        names = _names_of(self._pool, name)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._has_ended:
                return method(*args, **kwargs)
            if name == "free_blocks":  # of whatever can be gone through once
                args = tuple(map(list, args))
                kwargs = {one: list(blocks) for one, blocks in kwargs.items()}
            given = dict(zip(names, args, strict=False)) | kwargs

            def note(answer: Any, raised: str | None) -> None:
                self._safely(self.touched, name, given, answer)
                if not self._is_inside:
                    self._safely(self._note_from_outside, name, given, raised)

            return _noted(note, method, *args, **kwargs)

        return call

    def _note_from_outside(self, name: str, given: dict[str, Any], raised: str | None) -> None:
        """A call of the pool that no manager makes: a scheduler's, of blocks that it held back, or
        a connector's."""
        if name == "free_blocks":
            (blocks,) = given.values()
            told = {"blocks": [block.block_id for block in blocks if not block.is_null]}
            self._note(name, told, None, raised)
        else:
            self._note("pool", {"method": name}, None, raised)

    def _safely(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        if self._has_ended:
            return None
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self._failure = error
            self.end()
            return None

    # what is written down

    def _facts_of(self, request: Any) -> _Asked:
        name, keys, status, tokens, computed, preemptions = _read_facts(request)
        number = self._number_of(name)
        known = 0 if getattr(request, "resumable", False) else self._told.get(number, 0)
        self._told[number] = len(keys)
        if status is not self._status:
            self._status, self._status_name = status, status.name
        facts = (
            self._status_name,
            tokens,
            computed,
            not getattr(request, "skip_reading_prefix_cache", False),
            preemptions,
            known,
            [self._number(key) for key in keys[known:]] if len(keys) > known else _NO_KEYS,
        )
        return name, number, facts

    def _note_asked(
        self,
        name: str,
        asked: _Asked | None,
        names: Sequence[str],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        answer: Any,
        raised: str | None,
    ) -> None:
        """Note a call about a request."""
        assert asked is not None
        request, number, facts = asked
        told = _told_of(name, names, args, kwargs)
        if raised:
            shown = None
        elif answer is self._no_blocks:
            shown = self._no_ids
        else:
            shown = self._shown(name, answer)
        changed = self.changes(request)
        if name in _GIVING_UP:
            self._note_given_up(name, number, facts, shown)
        self._calls.append((_NUMBER_OF[name], number, facts, told, shown, changed, raised))
        if changed is not None or facts[-1]:
            self._count(changed, shown)
            self._waiting += len(facts[-1])

    def _note_given_up(self, name: str, number: int, facts: KVFacts, shown: Any) -> None:
        """Keep up with which keys were told and which frees are put off."""
        if name == "pop_blocks_for_free" and shown:
            self._put_off.append(shown)
        if facts[0].startswith("FINISHED"):
            self._told.pop(number, None)

    def _note(self, name: str, given: dict[str, Any], answer: Any, raised: str | None) -> None:
        """Note a call that is about no request, or about one by name."""
        told: dict[str, Any] = {}
        if name in ("free_blocks", "pool"):
            told = given
        elif name == "evict_blocks":
            told["blocks"] = sorted(given["block_ids"])
        elif name == "remove_skipped_blocks":
            told["tokens"] = list(given.values())[1]
        shown = None if raised else self._shown(name, answer)
        request = str(next(iter(given.values()))) if name in _OF_A_NAME else None
        changed = self.changes(request)
        if shown is None and changed is None and name in ("take_events", "make_prefix_cache_stats"):
            return
        if name == "free_blocks" and given["blocks"][::-1] in self._put_off:
            self._put_off.remove(given["blocks"][::-1])
        number = None if request is None else self._number_of(request)
        self._calls.append((_NUMBER_OF[name], number, None, told, shown, changed, raised))
        if changed is not None:
            self._count(changed, shown)

    def _count(self, changed: State | None, shown: Any) -> None:
        """Count the values that a call adds to those that are to be written, or a few more."""
        more = _numbers_in(changed) if self.values_max is None else self.values_max
        self._waiting += _CALL_VALUES + more + (_numbers_in(shown) if shown else 0)

    def _shown(self, name: str, answer: Any) -> Any:
        """An answer as plain data."""
        if name.startswith("get_computed_blocks"):
            return [_ids(answer[0]), answer[1], answer[2] if len(answer) > 2 else None]
        if name == "allocate_slots":
            return None if answer is None else _ids(answer)
        if name == "pop_blocks_for_free":
            return [block.block_id for block in answer if not block.is_null]
        if name == "take_events":
            return [self.event(one) for one in answer] if self._config["kv_events"] else None
        if name == "make_prefix_cache_stats":
            if answer is None:
                return None
            return [round(self.manager.usage, 9), _counts(answer)]
        return list(answer) if isinstance(answer, (list, tuple)) else answer

    def event(self, event: Any) -> list[Any]:
        """A KV event: of the tokens it tells of, only how many."""
        told = super().event(event)
        if told[0] == "stored":
            fields = told[3]
            kept = {name: fields[name] for name in ("block_size", "group_idx") if name in fields}
            told[3] = {**kept, "tokens": len(fields["token_ids"])}
        return told


class UnrecordedKVCache:
    """Stands in for a recording of a manager that no audit follows: says why, in each state."""

    def __init__(self, unjudged: list[str]) -> None:
        self._unjudged = unjudged

    def write(self, writer: Records, *, is_whole: bool) -> None:
        """Write a state without anything in it, where one is asked for."""
        if is_whole:
            writer.put(KVState({}, self._unjudged, {}, [], [], [], False))

    def end(self) -> None:
        """Nothing is logged."""


KVRecording = KVCacheRecording | UnrecordedKVCache


def kv_recording(
    scheduler: ConfiguredScheduler, hasher: Hasher, number_of: Callable[[str], int]
) -> KVRecording:
    """The recording of a scheduler's KV cache manager."""
    unjudged = kv_unjudged(scheduler)
    if not KV_NOT_FOLLOWED.isdisjoint(unjudged):
        return UnrecordedKVCache(unjudged)
    from vllm.distributed.kv_events import BlockStored

    takes = frozenset(BlockStored.__struct_fields__)
    config = kv_config(scheduler)
    return KVCacheRecording(scheduler.kv_cache_manager, hasher, number_of, config, unjudged, takes)


def _noted(
    note: Callable[[R | None, str | None], None],
    method: Callable[P, R],
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Call a method and answer as it does; `note` is given the answer, or the name of what it
    raised."""
    try:
        answer = method(*args, **kwargs)
    except BaseException as error:
        note(None, type(error).__name__)
        raise
    note(answer, None)
    return answer


def _told_of(
    name: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments that are told, where they say anything."""
    told: dict[str, Any] = {}
    words = _TOLD.get(name, _NONE)
    for one, value in chain(zip(names, args, strict=False), kwargs.items()):
        if one in words:
            if value:
                told[one] = value
        elif one == "new_computed_blocks" and value is not None:
            told[one] = _ids(value)
    return told


def _names_of(manager: object, name: str) -> list[str]:
    """The names of a method's arguments, as its class has them."""
    return list(inspect.signature(getattr(type(manager), name)).parameters)[1:]


def _nothing_found(manager: Any) -> tuple[object, list[list[int]]]:
    """What a manager answers in the place of no blocks, where nobody can put some there, and how
    that is told."""
    empty = getattr(manager, "empty_kv_cache_blocks", None)
    groups = getattr(empty, "blocks", None)
    if type(groups) is tuple and all(type(group) is tuple for group in groups):
        return empty, [[] for _ in groups]
    return _NOBODY, []


def _counts(stats: object) -> list[int]:
    return [int(getattr(stats, count, 0)) for count in STATS]


def _ids(blocks: KVCacheBlocks) -> list[list[int]]:
    return [list(group) for group in blocks.get_block_ids()]


def _parts(state: State) -> Iterator[State]:
    """A state in parts, as changes of an empty manager's: whose blocks are all free, in order."""
    maps = {
        "refs": {block: count for block, count in state["refs"].items() if count},
        "hashes": state["hashes"],
        "map": state["map"],
        "tables": tables_change({}, state["tables"]),
    }
    queue = state["queue"]
    yield {"free": state["free"], "queue": [None, queue[:NUMBERS_MAX], []]}
    for begin in range(NUMBERS_MAX, len(queue), NUMBERS_MAX):
        yield {"queue": [[], [], queue[begin : begin + NUMBERS_MAX]]}
    for name, entries in maps.items():
        for some in in_parts(entries.items(), lambda entry: _numbers_in(entry[1])):
            yield {name: dict(some)}


def in_parts(values: Iterable[R], numbers: Callable[[R], int]) -> Iterator[list[R]]:
    """Values in lists, each of at most `NUMBERS_MAX` numbers, unless one value alone has more."""
    part: list[R] = []
    total = 0
    for value in values:
        count = 1 + numbers(value)
        if part and total + count > NUMBERS_MAX:
            yield part
            part, total = [], 0
        part.append(value)
        total += count
    if part:
        yield part


def _numbers_in(value: object) -> int:
    """How many values there are in a value."""
    if isinstance(value, dict):
        return len(value) + sum(map(_numbers_in, value.values()))
    return sum(map(_numbers_in, value)) if isinstance(value, (list, tuple)) else 1
