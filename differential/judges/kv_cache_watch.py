"""Watches KV cache managers and block pools that others call: which contracts they break, and where
no verdict is possible.

A manager is followed from its making, together with its pool: a call that a manager makes of its
own pool is its own business, one that anybody else makes is judged. A pool without a manager, or
whose manager is of a kind that no trace knows, is followed alone.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cacheproof.differential.judges.kv_cache_ghost import Asked
from cacheproof.differential.judges.live_contracts import BLOCK_POOL, KV_CACHE
from cacheproof.differential.judges.live_kv_cache import Arguments, Asker, LiveKVCacheJudge, Odd
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.judges.watching import (
    FOREIGN,
    RAISED,
    UNKNOWN,
    UNREADABLE,
    UNREADABLE_ERRORS,
    UNSEEN,
    WRITTEN,
    Watching,
)
from cacheproof.differential.targets.attached import BEGIN, Method
from cacheproof.differential.targets.kv_cache_reading import (
    Config,
    KVCacheReader,
    Reading,
    by_name,
    config_of,
    config_of_pool,
    pool_alone,
)
from cacheproof.differential.traces.records import KVCacheCall

CALLS_SHOWN = 8
_COUNTS = ("reset", "requests", "queries", "hits")
_COUNTS_OF_PREEMPTED = ("preempted_requests", "preempted_queries", "preempted_hits")
_ALWAYS_ANSWERED = frozenset(
    {
        "get_computed_blocks",
        "free",
        "reset_prefix_cache",
        "take_events",
        "make_prefix_cache_stats",
        "pool.reset_prefix_cache",
        "pool.take_events",
    }
)
"""Calls that no caller can get wrong once their request was read."""


class _Live:
    """What follows one manager and its pool, or a pool alone."""

    def __init__(self, manager: Any, judge: LiveKVCacheJudge, reader: KVCacheReader) -> None:
        self.judge = judge
        self.reader = reader
        self.pool = manager.block_pool
        self.manager = manager
        self.calls: deque[str] = deque(maxlen=CALLS_SHOWN)
        self.last = reader.reading()
        self.is_busy = False

    def is_as_left(self) -> bool:
        """Whether the state is what the last call left."""
        return self.reader.reading() == self.last

    def answered(self, operation: str, given: Arguments, answer: Any) -> list[Violation]:
        """A call was answered: what it breaks."""
        now: Reading = self.reader.reading()
        changed = self.reader.changed(self.last, now)
        self.last = now
        plain = _plain_answer(self, operation, answer)
        return self.judge.answered(operation, given, plain, changed)


class KVCacheWatch(Watching[_Live]):
    """Makes calls of managers and pools for those who call, and judges each at once."""

    def __init__(self, release: str | None) -> None:
        super().__init__(release, (KV_CACHE, BLOCK_POOL), "KV caches")

    def call(
        self, called: Any, operation: str, method: Method, args: Sequence[Any], kwargs: Any
    ) -> Any:
        """Make the call, and judge it."""
        if operation == BEGIN:
            answer = method(called, *args, **kwargs)
            self._begin(called, method, args, kwargs)
            return answer
        live = self._followed.get(id(called))
        if live is None or live.is_busy:
            return method(called, *args, **kwargs)
        live.is_busy = True
        try:
            args = _lists(args)
            given = self._before(called, live, operation, method, args, kwargs)
            if given is None:
                return method(called, *args, **kwargs)
            return self._call(called, live, operation, given, method, args, kwargs)
        finally:
            live.is_busy = False

    def _call(
        self,
        called: Any,
        live: _Live,
        operation: str,
        given: Arguments,
        method: Method,
        args: Sequence[Any],
        kwargs: Any,
    ) -> Any:
        try:
            answer = method(called, *args, **kwargs)
        except Exception as error:
            live.calls.append(f"{_shown(operation, given)} raises {type(error).__name__}")
            if operation in _ALWAYS_ANSWERED:
                self._found(called, live, live.judge.raised(error))
            else:
                self._leave_all(
                    live, called, RAISED, f"{operation}: {type(error).__name__}: {error}"
                )
            raise
        live.calls.append(_shown(operation, given))
        try:
            violations = live.answered(operation, given, answer)
        except UNREADABLE_ERRORS as error:
            self._leave_all(live, called, UNKNOWN, f"{operation}: {type(error).__name__}: {error}")
        else:
            self._found(called, live, violations)
        return answer

    def _before(
        self, called: Any, live: _Live, operation: str, method: Method, args: Any, kwargs: Any
    ) -> Arguments | None:
        """The call, if something can be said of it."""
        try:
            if not live.is_as_left():
                self._leave_all(live, called, WRITTEN, operation)
                return None
            given = _given(live, operation, by_name(method, (called, *args), kwargs))
            live.judge.prepare(operation, given)
        except Odd as odd:
            self._leave_all(live, called, str(odd), operation)
            return None
        except UNREADABLE_ERRORS as error:
            text = f"{operation}: {type(error).__name__}: {error}"
            self._leave_all(live, called, UNREADABLE, text)
            return None
        return given

    def _found(self, called: Any, live: _Live, violations: list[Violation]) -> None:
        self._judged(called, violations, live.calls)
        if violations:
            self._forget(live)

    def _leave_all(self, live: _Live, called: Any, why: str, text: str) -> None:
        self._leave(called, why, f"{type(called).__name__}.{text}")
        self._forget(live)

    def _forget(self, live: _Live) -> None:
        for followed in (live.pool, live.manager):
            if self._followed.get(id(followed)) is live:
                self._keep(followed, None)

    # managers and pools

    def _begin(self, called: Any, method: Method, args: Sequence[Any], kwargs: Any) -> None:
        """Follow what was just made."""
        try:
            if hasattr(called, "block_pool"):
                config = config_of(called, by_name(method, (called, *args), kwargs))
                if config is not None:
                    self._follow(called, config, KV_CACHE)
            else:
                self._follow(called, config_of_pool(called), BLOCK_POOL)
        except UNREADABLE_ERRORS as error:
            text = f"{type(called).__name__}: {type(error).__name__}: {error}"
            self._leave(called, UNKNOWN, text)

    def _follow(self, called: Any, config: Config, kind: str) -> None:
        manager = called if kind == KV_CACHE else pool_alone(called)
        reader = KVCacheReader(manager)
        judge = LiveKVCacheJudge(
            config, self.release, self.spoke[kind], has_manager=kind == KV_CACHE
        )
        live = _Live(manager, judge, reader)
        if not _is_empty(live.last, config["num_blocks"]):
            self._leave(called, UNSEEN, type(called).__name__)
            return
        self.managers[kind] += 1
        self._keep(called, live)
        if kind == KV_CACHE and self._followed.get(id(manager.block_pool)) is not None:
            self.managers[BLOCK_POOL] -= 1
            self._keep(manager.block_pool, live)


def _is_empty(reading: Reading, blocks: int) -> bool:
    return (
        reading.free == blocks - 1
        and reading.queue == [*range(1, blocks)]
        and not any((*reading.refs[1:], reading.found, reading.tables, reading.events))
    )


def _lists(args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments, those that can be read once alone as lists."""
    return tuple(list(one) if hasattr(one, "__next__") else one for one in args)


def _given(live: _Live, operation: str, arguments: Mapping[str, Any]) -> Arguments:
    """A call as a judge reads it. Raises what reading its arguments raises."""
    values = [*arguments.values()]
    given: dict[str, Any] = {}
    if operation in _OF_REQUESTS:
        given["request"] = _asker(live, values[0])
    match operation:
        case "get_computed_blocks":
            given["limit"] = arguments.get("max_cache_hit_length")
        case "allocate_slots":
            given["asked"] = Asked.of(KVCacheCall(operation, "", [values[1], arguments], None))
            blocks = arguments.get("new_computed_blocks")
            groups = len(live.manager.coordinator.single_type_managers)
            none: tuple[list[int], ...] = ([],) * groups
            given["hit"] = [*map(list, none if blocks is None else blocks.get_block_ids())]
        case "cache_blocks":
            given["tokens"] = int(values[1])
        case "remove_skipped_blocks":
            given |= {"name": values[0], "tokens": int(values[1])}
        case "record_prefix_cache_stats":
            given["hits"] = int(values[1])
        case "get_num_common_prefix_blocks":
            given["name"] = values[0] if isinstance(values[0], str) else values[0].request_id
        case "evict_blocks" | "pool.evict_blocks":
            given["blocks"] = [int(block) for block in values[0]]
        case "pool.free_blocks":
            given["blocks"] = _ids(live, values[0])
        case "pool.touch" | "pool.unpin_blocks":
            given["blocks"] = _own(live, values[0])
        case "pool.move_block_hashes":
            given["blocks"] = _own(live, values[:2])[:1]
        case "pool.cache_full_blocks":
            given["blocks"] = _own(live, arguments["blocks"])
        case "pool.cache_partial_block":
            given["blocks"] = _own(live, [arguments["block"]])
    return given


_OF_REQUESTS = frozenset(
    {
        "get_computed_blocks",
        "allocate_slots",
        "free",
        "pop_blocks_for_free",
        "cache_blocks",
        "record_prefix_cache_stats",
    }
)


def _ids(live: _Live, blocks: Iterable[Any]) -> list[int]:
    """The ids of those blocks that are the pool's own, 0 for the null block."""
    own = live.pool.blocks
    return [
        0 if block.is_null else block.block_id
        for block in blocks
        if block.block_id < len(own) and own[block.block_id] is block
    ]


def _own(live: _Live, blocks: Iterable[Any]) -> list[int]:
    """Their ids. Raises Odd if one is none of the pool's."""
    blocks = list(blocks)
    ids = _ids(live, blocks)
    if len(ids) < len(blocks):
        raise Odd(FOREIGN)
    return ids


def _asker(live: _Live, request: Any) -> Asker:
    """A request as it is now. Raises TypeError where it is none that can be judged."""
    name, tokens, hashes = request.request_id, request.num_tokens, request.block_hashes
    size = live.pool.hash_block_size
    if not isinstance(name, str):
        raise TypeError(f"request id {name!r}")
    if live.pool.enable_caching and len(hashes) != tokens // size:
        raise TypeError(f"{len(hashes)} hashes of {size} tokens each, for {tokens} tokens")
    if getattr(request, "kv_cache_report_mode", "incremental") != "incremental":
        raise TypeError("KV events that tell of hits as well")
    status = request.status
    return Asker(
        name,
        tokens,
        live.reader.show(hashes),
        request.num_computed_tokens,
        getattr(request, "num_in_flight_tokens", 0),
        not getattr(request, "skip_reading_prefix_cache", False),
        getattr(status, "name", status),
        getattr(request, "num_preemptions", 0) > 0,
    )


def _plain_answer(live: _Live, operation: str, answer: Any) -> Any:
    """An answer in the words of a recorder."""
    match operation:
        case "get_computed_blocks":
            return [[*map(list, answer[0].get_block_ids())], answer[1], None]
        case "allocate_slots":
            return None if answer is None else [*map(list, answer.get_block_ids())]
        case "pop_blocks_for_free" | "pool.get_new_blocks":
            return _ids(live, answer)
        case "take_events" | "pool.take_events":
            return [live.reader.event(event) for event in answer]
        case "make_prefix_cache_stats":
            names = (*_COUNTS, *_COUNTS_OF_PREEMPTED)
            counts = [getattr(answer, name, 0) for name in names]
            return None if answer is None else [live.manager.usage, counts]
    return answer


def _shown(operation: str, given: Arguments) -> str:
    """A call in some words."""
    told = []
    for name, value in given.items():
        if isinstance(value, Asker):
            told.append(f"{value.name} of {value.tokens} tokens, {value.computed} computed")
        elif isinstance(value, Asked):
            differing = value._asdict().items()
            told.append(", ".join(f"{key} {one}" for key, one in differing if one))
        elif value:
            told.append(f"{name} {value}")
    return f"{operation}({'; '.join(told)})"
