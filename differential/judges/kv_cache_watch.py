"""Watches KV cache managers and block pools that others call: which contracts they break, and where
no verdict is possible.

A manager is followed from its making, together with its pool: a call that a manager makes of its
own pool is its own business, one that anybody else makes is judged. A pool without a manager, or
whose manager is of a kind that no trace knows, is followed alone.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cacheproof.differential.judges.kv_cache_ghost import SlotsAsked, named_of
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
from cacheproof.differential.texts.kv_cache_reading import (
    KVCacheReader,
    KVCacheSnapshot,
    PoolAlone,
    by_name,
    config_of,
    config_of_pool,
)
from cacheproof.differential.traces.outcomes import KVConfig
from cacheproof.differential.traces.records import KVCacheCall

CALLS_SHOWN = 8
_COUNTS = ("reset", "requests", "queries", "hits")
_COUNTS_OF_PREEMPTED = ("preempted_requests", "preempted_queries", "preempted_hits")
_ALWAYS_ANSWERED = frozenset(
    {
        "get_computed_blocks",
        "allocate_slots",
        "free",
        "pop_blocks_for_free",
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

    def __init__(self, called: Any, judge: LiveKVCacheJudge) -> None:
        is_manager = hasattr(called, "block_pool")
        self.judge = judge
        self.reader = KVCacheReader(called if is_manager else PoolAlone(called))
        self.ids = {id(called), id(called.block_pool) if is_manager else id(called)}
        self.calls: deque[str] = deque(maxlen=CALLS_SHOWN)
        self.last = self.reader.reading()
        self.is_busy = False

    def is_as_left(self) -> bool:
        """Whether the state is what the last call left."""
        return self.reader.reading() == self.last

    def answered(self, operation: str, given: Arguments, answer: object) -> list[Violation]:
        """Judge a call that was answered; returns what it breaks."""
        now: KVCacheSnapshot = self.reader.reading()
        changed = self.reader.changed(self.last, now)
        self.last = now
        plain = _plain_answer(self, operation, answer)
        return self.judge.answered(operation, given, plain, changed)


class _Call(NamedTuple):
    """A call that somebody makes."""

    called: Any
    operation: str
    method: Method
    args: Sequence[object]
    kwargs: Mapping[str, object]

    def make(self) -> Any:
        """Answer or raise what the method does."""
        return self.method(self.called, *self.args, **self.kwargs)

    @property
    def name(self) -> str:
        """What the method is called."""
        return "__init__" if self.operation == BEGIN else self.operation.removeprefix("pool.")

    def by_name(self) -> dict[str, Any]:
        """The arguments by name. Raises TypeError where the method does not take them."""
        return by_name(self.called, self.name, self.args, self.kwargs)


class KVCacheWatch(Watching[_Live]):
    """Makes calls of managers and pools for those who call, and judges each at once."""

    def __init__(self, release: str | None) -> None:
        super().__init__(release, (KV_CACHE, BLOCK_POOL), "KV caches")

    def call(
        self,
        called: Any,
        operation: str,
        method: Method,
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> Any:
        """Make the call, and judge it."""
        call = _Call(called, operation, method, args, kwargs)
        if operation == BEGIN:
            answer = call.make()
            self._begin(call)
            return answer
        if id(called) not in self._followed:
            self._leave(called, UNSEEN, type(called).__name__)
            if hasattr(called, "block_pool"):
                self._keep(called.block_pool, None)
        live = self._followed[id(called)]
        # Busy: a manager's calls of its own pool are its own business.
        if live is None or live.is_busy:
            return call.make()
        live.is_busy = True
        try:
            # An iterator that a judge has read would reach the manager empty.
            call = call._replace(args=_lists(args))
            given = self._before(live, call)
            return call.make() if given is None else self._make(live, call, given)
        finally:
            live.is_busy = False

    def _before(self, live: _Live, call: _Call) -> Arguments | None:
        """The call's arguments as a judge reads them; None where nothing can be said of the
        call."""
        try:
            if not live.is_as_left():
                self._leave_all(live, call, WRITTEN)
                return None
            given = _given(live, call.operation, call.by_name())
            live.judge.prepare(call.operation, given)
        except Odd as odd:
            self._leave_all(live, call, str(odd))
            return None
        except UNREADABLE_ERRORS as error:
            self._leave_all(live, call, UNREADABLE, error)
            return None
        return given

    def _make(self, live: _Live, call: _Call, given: Arguments) -> Any:
        shown = f"{call.name}({_shown(given)})"
        try:
            answer = call.make()
        except Exception as error:
            live.calls.append(f"{shown} raises {type(error).__name__}")
            if call.operation in _ALWAYS_ANSWERED:
                self._found(live, call, live.judge.raised(error))
            else:
                self._leave_all(live, call, RAISED, error)
            raise
        live.calls.append(shown)
        try:
            violations = live.answered(call.operation, given, answer)
        except UNREADABLE_ERRORS as error:
            self._leave_all(live, call, UNKNOWN, error)
        else:
            self._found(live, call, violations)
        return answer

    def _found(self, live: _Live, call: _Call, violations: list[Violation]) -> None:
        self._judged(call.called, violations, live.calls)
        if violations:
            self._say_no_more(*live.ids)

    def _leave_all(
        self, live: _Live, call: _Call, why: str, error: Exception | None = None
    ) -> None:
        """Say nothing more of the manager and its pool."""
        reason = "" if error is None else f": {type(error).__name__}: {error}"
        self._leave(call.called, why, f"{type(call.called).__name__}.{call.name}{reason}")
        self._say_no_more(*live.ids)

    # managers and pools

    def _begin(self, call: _Call) -> None:
        """Follow what was just made."""
        called = call.called
        try:
            if not hasattr(called, "block_pool"):
                self._follow(called, config_of_pool(called), BLOCK_POOL)
                return
            config = config_of(called, call.by_name())
            if config is None:
                self._keep(called, None)
            else:
                self._follow(called, config, KV_CACHE)
        except UNREADABLE_ERRORS as error:
            text = f"{type(called).__name__}: {type(error).__name__}: {error}"
            self._leave(called, UNKNOWN, text)

    def _follow(self, called: Any, config: KVConfig, kind: str) -> None:
        spoke = self.spoke[kind]
        judge = LiveKVCacheJudge(config, self.release, spoke, has_manager=kind == KV_CACHE)
        live = _Live(called, judge)
        if not _is_empty(live.last, config["num_blocks"]):
            self._leave(called, UNSEEN, type(called).__name__)
            return
        self.managers[kind] += 1
        self._keep(called, live)
        if kind == KV_CACHE and self._followed.get(id(called.block_pool)) is not None:
            # Its pool, made a moment before, was followed alone until now.
            self.managers[BLOCK_POOL] -= 1
            self._keep(called.block_pool, live)


def _is_empty(reading: KVCacheSnapshot, blocks: int) -> bool:
    return (
        reading.free == blocks - 1
        and reading.queue == [*range(1, blocks)]
        and not any((*reading.refs[1:], reading.found, reading.tables, reading.events))
    )


def _lists(args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments, with lists in the place of iterators, which can be read only once."""
    return tuple(list(one) if hasattr(one, "__next__") else one for one in args)


def _given(live: _Live, operation: str, arguments: Mapping[str, Any]) -> Arguments:
    """A call as a judge reads it. Raises what reading its arguments raises."""
    values = [*arguments.values()]
    given: Arguments = {}
    if operation in _OF_REQUESTS:
        given["request"] = _asker(live, values[0])
    match operation:
        case "get_computed_blocks":
            given["limit"] = arguments.get("max_cache_hit_length")
        case "allocate_slots":
            given["asked"] = SlotsAsked.of(KVCacheCall(operation, "", [values[1], arguments], None))
            blocks = arguments.get("new_computed_blocks")
            groups = len(live.reader.manager.coordinator.single_type_managers)
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
    own = live.reader.pool.blocks
    return [
        0 if block.is_null else block.block_id
        for block in blocks
        if block.block_id < len(own) and own[block.block_id] is block
    ]


def _own(live: _Live, blocks: Iterable[Any]) -> list[int]:
    """The ids of blocks. Raises Odd if one is none of the pool's."""
    blocks = list(blocks)
    ids = _ids(live, blocks)
    if len(ids) < len(blocks):
        raise Odd(FOREIGN)
    return ids


def _asker(live: _Live, request: Any) -> Asker:
    """A request as it is now. Raises TypeError for one that cannot be judged."""
    name, tokens, hashes = request.request_id, request.num_tokens, request.block_hashes
    size = live.reader.pool.hash_block_size
    if not isinstance(name, str):
        raise TypeError(f"request id {name!r}")
    if live.reader.pool.enable_caching and len(hashes) != tokens // size:
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
        named_of(request),
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
            return None if answer is None else [live.reader.manager.usage, counts]
    return answer


def _shown(given: Arguments) -> str:
    """A call's arguments in a few words."""
    told = []
    for name, value in given.items():
        if isinstance(value, Asker):
            computed = f", {value.computed} computed" if value.computed else ""
            told.append(f"{value.name} of {value.tokens} tokens{computed}")
        elif isinstance(value, SlotsAsked):
            differing = value._asdict().items()
            told.append(", ".join(f"{key} {one}" for key, one in differing if one))
        elif value:
            told.append(f"{name} {value}")
    return "; ".join(told)
