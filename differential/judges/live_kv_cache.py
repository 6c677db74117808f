"""Judges the calls of one KV cache manager and its block pool as they are made, by anyone.

No trace says what the requests are: each call is taken at its word for how far its request is, how
many tokens it has and what their hashes are. Who calls the pool itself holds what it hands out, or
what is touched, until it is given back.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict

from cacheproof.differential.judges.kv_cache import KVCacheJudge
from cacheproof.differential.judges.kv_cache_ghost import Named, RequestGhost, SlotsAsked
from cacheproof.differential.judges.live_kv_cache_mirror import LiveMirror
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.rules import Subject
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.judges.watching import (
    ANOTHER_TEXT,
    EMPTY,
    NO_HIT,
    NOT_HELD,
    ROLLED_BACK,
)
from cacheproof.differential.traces.outcomes import (
    KVChange,
    KVConfig,
    KVEvent,
    LookupAnswer,
    ToldEvent,
)
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.block_pool import PoolRelease, PoolTake
from cacheproof.spec.kv_cache import EventOutcome


class Odd(Exception):
    """A call that no scheduler makes: why, a word of `watching.NOTES`."""


class Asker(NamedTuple):
    """A request as it is when a call is made of it: `hashes` are numbers, `named` is what its
    blocks hold beside tokens."""

    name: str
    tokens: int
    hashes: Sequence[int]
    computed: int
    in_flight: int
    reads_cache: bool
    status: str
    preempted: bool
    named: Sequence[Named] | None = None


class Arguments(TypedDict, total=False):
    """What a call is given, as far as it is judged: each call has some of these."""

    request: Asker
    limit: int | None
    asked: SlotsAsked
    hit: list[list[int]]
    name: str
    tokens: int
    hits: int
    blocks: list[int]


@lru_cache
def semantics_of(release: str | None) -> Semantics:
    """What is known of how a release decides; ideal for one that is not modelled."""
    base = (release or "").split("+")[0]
    return Semantics.of_vllm(base) if base in MODELLED else Semantics.ideal()


class LiveKVCacheJudge(KVCacheJudge):
    """Judges one manager, or a pool alone, from its making on. `spoke` counts how often each
    contract was asked. Operations are those of `targets.attached`, arguments are by name: of the
    request there is an `Asker`, of blocks their ids."""

    def __init__(
        self, config: KVConfig, release: str | None, spoke: Counter[str], *, has_manager: bool
    ) -> None:
        semantics = semantics_of(release)
        super().__init__(config, semantics, release, Reachability())
        self._mirror: LiveMirror = LiveMirror(config, semantics)
        self._spoke = spoke
        self._has_manager = has_manager
        self._processed: dict[str, int] = {}
        self._handlers: dict[str, Callable[[Arguments, Any, KVChange], None]] = {
            "get_computed_blocks": self._looked_up,
            "allocate_slots": self._allocated,
            "free": self._freed,
            "pop_blocks_for_free": self._popped,
            "cache_blocks": self._cached,
            "remove_skipped_blocks": self._skipped,
            "evict_blocks": self._evicted,
            "reset_prefix_cache": self._reset,
            "get_num_common_prefix_blocks": self._common,
            "take_events": self._events_taken,
            "record_prefix_cache_stats": self._recorded,
            "make_prefix_cache_stats": self._statistics_made,
            "pool.get_new_blocks": self._handed_out,
            "pool.touch": self._touched,
            "pool.free_blocks": self._given_back,
            "pool.unpin_blocks": self._unpinned,
            "pool.cache_full_blocks": self._otherwise,
            "pool.cache_partial_block": self._otherwise,
            "pool.move_block_hashes": self._moved,
            "pool.evict_blocks": self._evicted,
            "pool.reset_prefix_cache": self._reset,
            "pool.take_events": self._events_taken,
        }

    def prepare(self, operation: str, given: Arguments) -> None:
        """Take in a call that is about to be made. Raises Odd if no scheduler makes it."""
        self._where = (0, operation, "")
        asker = given.get("request")
        if isinstance(asker, Asker):
            self._where = (0, operation, asker.name)
            self._meet(asker)
        if operation == "allocate_slots":
            self._check_asked(given)
        if operation in ("pool.free_blocks", "pool.unpin_blocks"):
            freed = Counter(block for block in given["blocks"] if block)
            if any(count > self._mirror.taken[block] for block, count in freed.items()):
                raise Odd(NOT_HELD)

    def raised(self, error: BaseException) -> list[Violation]:
        """Judge a call that raised although nothing was wrong with it; returns what that breaks."""
        self._check(EventOutcome(type(error).__name__))
        return [*self.violations.values()]

    def answered(
        self, operation: str, given: Arguments, answer: object, changed: KVChange
    ) -> list[Violation]:
        """Judge a call by its answer and by what it changed; returns what it breaks."""
        self._check(EventOutcome(""))
        self._handlers[operation](given, answer, changed)
        for name in self._requests.keys() - self._mirror.tables.keys():
            del self._requests[name]
            self._processed.pop(name, None)
        return [*self.violations.values()]

    def _apply(
        self, changed: KVChange, *, handed_out: frozenset[int], named: frozenset[int]
    ) -> None:
        super()._apply(changed, handed_out=handed_out, named=named)
        if self._mirror.is_moved:
            self._check(self.pool)

    def _check(self, subject: Subject, kind: str = "") -> None:
        self._spoke.update(rule.id for rule in self._rules.get(type(subject), ()))
        super()._check(subject, kind)

    def _is_chained(self, group: int | None) -> bool:
        """A pool alone does not know which hash follows which."""
        return self._has_manager and super()._is_chained(group)

    # requests

    def _meet(self, asker: Asker) -> None:
        """Take a request as it is now. Raises Odd if it has blocks of another text."""
        known = self._requests.get(asker.name)
        if known is None:
            known = RequestGhost(asker.tokens, [], asker.reads_cache, asker.named)
            self._requests[asker.name] = known
        elif [*known.hashes] != [*asker.hashes[: len(known.hashes)]]:
            raise Odd(ANOTHER_TEXT)
        known.tokens, known.hashes = asker.tokens, [*asker.hashes]
        known.computed, known.preempted = asker.computed, asker.preempted
        known.reads_cache = asker.reads_cache
        known.state = {"RUNNING": "running", "PREEMPTED": "preempted"}.get(asker.status, "waiting")
        if asker.status not in ("RUNNING", "PREEMPTED", "WAITING"):
            known.state = "other"
        self._note_hashes(known)

    def _check_asked(self, given: Arguments) -> None:
        """Raises Odd if a request asks for nothing, brings what is none of its hits, or goes back
        too far."""
        asker, asked, hit = given["request"], given["asked"], given["hit"]
        if asked.tokens + asked.hit + asked.external <= 0:
            raise Odd(EMPTY)
        known = self._requests[asker.name]
        has_blocks = any(self._mirror.tables.get(asker.name, ()))
        brings = any(hit) or asked.hit or asked.external
        if brings and has_blocks:
            raise Odd(NO_HIT)
        for number, (group, table) in enumerate(zip(self._layout.groups, hit, strict=True)):
            keys = [
                (block, self._layout.key(known, (number, place)))
                for place, block in enumerate(table)
                if block
            ]
            if any(key not in self._mirror.hashes.get(block, ()) for block, key in keys):
                raise Odd(NO_HIT)
            if group.kind != "cross" and len(table) != group.blocks(asked.hit):
                raise Odd(NO_HIT)
        start = self._layout.start(known, asked)
        forgets = any(
            group.kind in ("sliding_window", "chunked_local") for group in self._layout.groups
        )
        if forgets and start < self._processed.get(asker.name, 0):
            raise Odd(ROLLED_BACK)
        keeps = self._semantics.kv_cache.keeps_window_in_flight
        self._note_processed(asker.name, start - asker.in_flight * keeps)

    def _note_processed(self, name: str, tokens: int) -> None:
        self._processed[name] = max(tokens, self._processed.get(name, 0))

    # calls of a manager

    def _looked_up(self, given: Arguments, answer: LookupAnswer, changed: KVChange) -> None:
        known, limit = self._requests[given["request"].name], given["limit"]
        if limit is None:
            self._judge_lookup(known, answer)
        else:
            tokens = min(known.tokens, limit + 1)
            limited = RequestGhost(tokens, known.hashes, known.reads_cache)
            self._judge_lookup(limited, answer)
        self._otherwise(given, answer, changed)

    def _allocated(
        self, given: Arguments, answer: Sequence[Sequence[int]] | None, changed: KVChange
    ) -> None:
        name = given["request"].name
        self._judge_grant(name, self._requests[name], given["asked"], given["hit"], answer, changed)

    def _count_lookup(self, known: RequestGhost, hit: int) -> None:
        """Count nothing: callers say themselves what counts."""

    def _freed(self, given: Arguments, answer: object, changed: KVChange) -> None:
        event: KVEvent = {"event": "end", "request": given["request"].name}
        self._judge_change(event, True, changed)

    def _popped(self, given: Arguments, answer: Sequence[int], changed: KVChange) -> None:
        self._mirror.take(answer)
        self._otherwise(given, answer, changed)

    def _cached(self, given: Arguments, answer: object, changed: KVChange) -> None:
        name = given["request"].name
        known = self._requests[name]
        new = self._judge_change({"event": "cache"}, answer, changed)
        certain = min(given["tokens"], known.tokens)
        is_due = name in self._mirror.tables
        self._check_cached(name, known, new, certain, is_due=is_due)

    def _skipped(self, given: Arguments, answer: object, changed: KVChange) -> None:
        name = given["name"]
        self._note_processed(name, given["tokens"])
        self._judge_change({"event": "skip", "request": name}, answer, changed)

    def _evicted(self, given: Arguments, answer: object, changed: KVChange) -> None:
        event: KVEvent = {"event": "evict_blocks", "blocks": given["blocks"]}
        self._judge_change(event, True, changed)

    def _reset(self, given: Arguments, answer: object, changed: KVChange) -> None:
        self._judge_change({"event": "reset_prefix"}, bool(answer), changed)

    def _common(self, given: Arguments, answer: Sequence[int], changed: KVChange) -> None:
        self._check_common_prefix(given["name"], answer)
        self._otherwise(given, answer, changed)

    def _events_taken(
        self, given: Arguments, answer: Sequence[ToldEvent], changed: KVChange
    ) -> None:
        self._otherwise(given, answer, changed)
        if self._config["kv_events"]:
            self._judge_events(answer)

    def _recorded(self, given: Arguments, answer: object, changed: KVChange) -> None:
        super()._count_lookup(self._requests[given["request"].name], given["hits"])
        self._otherwise(given, answer, changed)

    def _statistics_made(
        self, given: Arguments, answer: tuple[float, Sequence[int]] | None, changed: KVChange
    ) -> None:
        if answer is not None:
            self._judge_statistics(*answer)
        self._otherwise(given, answer, changed)

    # calls of a pool

    def _handed_out(self, given: Arguments, answer: Sequence[int], changed: KVChange) -> None:
        waiting, taken = self._mirror.queue, frozenset(answer)
        self._mirror.take(answer)
        self._apply(changed, handed_out=taken, named=frozenset())
        in_order = tuple(block for block in waiting if block in taken)
        self._check(PoolTake(waiting, in_order, self._mirror.queue))

    def _touched(self, given: Arguments, answer: object, changed: KVChange) -> None:
        self._mirror.take(given["blocks"])
        self._apply(changed, handed_out=frozenset(), named=frozenset())

    def _given_back(self, given: Arguments, answer: object, changed: KVChange) -> None:
        blocks = given["blocks"]
        queue = tuple(changed.get("queue", self._mirror.queue))
        first, last = self._mirror.given_back([blocks], goes_on=False)
        self._check(PoolRelease(self._mirror.queue, queue, first, last))
        self._mirror.give(blocks)
        self._apply(changed, handed_out=frozenset(), named=frozenset())

    def _unpinned(self, given: Arguments, answer: object, changed: KVChange) -> None:
        blocks = given["blocks"]
        queue = tuple(changed.get("queue", self._mirror.queue))
        first, last = self._mirror.given_back([blocks], goes_on=False)
        is_last = {*first, *last}
        in_order = tuple(block for block in blocks if block in is_last)
        self._check(PoolRelease(self._mirror.queue, queue, (), in_order))
        self._mirror.give(blocks)
        self._apply(changed, handed_out=frozenset(), named=frozenset())

    def _moved(self, given: Arguments, answer: object, changed: KVChange) -> None:
        self._apply(changed, handed_out=frozenset(given["blocks"]), named=frozenset())

    def _otherwise(self, given: Arguments, answer: object, changed: KVChange) -> None:
        """A call that gives back no block and hands out none."""
        if changed:
            self._judge_change({"event": "other"}, answer, changed)
