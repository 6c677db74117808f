"""Drives one KV cache manager as the scheduler of its release would.

Events name what the engine does; this session turns each into the calls that a scheduler makes,
in its order, on a request that grows as it would. What no scheduler would do at that moment (an
output of a request that is not running, a second admission) is a no-op with outcome None, so a
trace stays legal whatever the manager answers and whatever events are taken out of it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..protocol import Event, Json
from ..vllm_objects.kv_cache import (
    KVCacheBlock,
    KVCacheBlocks,
    KVCacheManager,
    KVCacheMetricsCollector,
)
from ..vllm_objects.requests import Request
from .kv_cache_changes import KVCacheChanges
from .kv_cache_recorder import STATS

STEPS_IN_FLIGHT_MAX = 2
NANOSECONDS_PER_EVENT = 1_000_000_000


class Clock:
    """The time that residencies are measured in: it stands still within an event."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class KVCacheKit(NamedTuple):
    """What a session drives: a manager, and how requests for it are made.

    make_request: from an `arrive` event and the prompt's token ids.
    statuses: values of a request's `status`, for "waiting", "running", "preempted", "loading".
    takes: what not every release has and this one does: arguments of allocate_slots, methods,
        fields of events and of blocks, by name.
    metrics, clock: the manager's collector of residencies, and what it reads the time from.
    """

    manager: KVCacheManager
    make_request: Callable[[Event, list[int]], Any]
    statuses: Mapping[str, Any]
    takes: frozenset[str]
    metrics: KVCacheMetricsCollector
    clock: Clock


class _Life:
    """A request, the tokens hit before its load, whether a load brought it tokens, and its steps
    whose output is outstanding: (tokens, drafts or None)."""

    __slots__ = ("hit", "in_flight", "loaded", "outstanding", "request", "state")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.state = "waiting"
        self.hit = 0
        self.loaded = False
        self.in_flight: list[tuple[int, int | None]] = []
        self.outstanding = 0


def token_ids(runs: list[list[int]]) -> list[int]:
    """Token ids from runs of consecutive ids, [first id, how many] each."""
    return [first + step for first, count in runs for step in range(count)]


class KVCacheSession:
    """One trace's KV cache manager and requests."""

    def __init__(self, config: Event, kit: KVCacheKit) -> None:
        self.recorder = KVCacheChanges(kit.manager, kit.takes)
        self._manager = kit.manager
        self._make_request = kit.make_request
        self._statuses = kit.statuses
        self._takes = kit.takes
        self._metrics = kit.metrics
        self._clock = kit.clock
        self._groups: list[Event] = config["groups"]
        self._max_model_len: int = config["max_model_len"]
        self._asynchronous: bool = config["async_scheduling"]
        self._steps_max = STEPS_IN_FLIGHT_MAX if self._asynchronous else 1
        self._lives: dict[str, _Life] = {}
        self._deferred: list[tuple[str, list[KVCacheBlock]]] = []
        self._handlers: dict[str, Callable[[Event], Json]] = {
            "arrive": self._arrive,
            "slots": self._slots,
            "loaded": self._loaded,
            "output": self._output,
            "preempt": self._preempt,
            "end": self._end,
            "settle": self._settle,
            "skip": self._skip,
            "evict_blocks": self._evict_blocks,
            "reset_prefix": self._reset_prefix,
            "common_prefix": self._common_prefix,
            "take_events": self._take_events,
            "take_stats": self._take_stats,
            "take_residencies": self._take_residencies,
        }

    def apply(self, event: Event) -> Event | None:
        """The outcome of an event: its answer, the calls that it took, and what they changed. None
        for a no-op."""
        self._clock.now_ns += NANOSECONDS_PER_EVENT
        answer = self._handlers[event["event"]](event)
        calls, changed = self.recorder.drain()
        if answer is None and not calls and not changed:
            return None
        return {"answer": answer, "calls": calls, "changed": changed}

    def _arrive(self, event: Event) -> list[int] | None:
        name = event["request"]
        ids = token_ids(event["text"])
        if name in self._lives or not 0 < len(ids) < self._max_model_len:
            return None
        if any(item["offset"] + item["length"] > len(ids) for item in event["items"]):
            return None
        request = self._make_request(event, ids)
        self._lives[name] = _Life(request)
        return self.recorder.show(request.block_hashes)

    def _slots(self, event: Event) -> Json:
        life = self._lives.get(event["request"])
        if life is None or life.state == "loading":
            return None
        if life.state == "running":
            return self._continue(life, event)
        return self._admit(life, event)

    def _continue(self, life: _Life, event: Event) -> Json:
        request = life.request
        computed = request.num_computed_tokens
        known = request.num_tokens + life.outstanding
        count = min(
            event["tokens"],
            known + event["drafts"] - computed,
            self._max_model_len - 1 - computed,
        )
        if count <= 0 or len(life.in_flight) >= self._steps_max:
            return None
        blocks = self._allocate(life, event, count, num_lookahead_tokens=event["lookahead"])
        if blocks is None:
            return False
        self._dispatch(life, count)
        return True

    def _admit(self, life: _Life, event: Event) -> Json:
        request = life.request
        manager = self._manager
        hit, external, blocks = 0, 0, manager.empty_kv_cache_blocks
        if request.num_computed_tokens == 0 and not life.loaded:
            blocks, hit = self._look_up(life)
            external = max(0, min(event["external"], request.num_tokens - hit))
        loads = event["delay"] and external > 0
        if not loads and hit + external == request.num_tokens:
            external = max(0, external - 1)
        start = request.num_computed_tokens + hit + external
        count = 0 if loads else min(event["tokens"], request.num_tokens - start)
        if not loads and count <= 0:
            return None
        granted = self._allocate(
            life,
            event,
            count,
            num_new_computed_tokens=hit,
            new_computed_blocks=blocks,
            num_lookahead_tokens=0 if loads else event["lookahead"],
            num_external_computed_tokens=external,
            delay_cache_blocks=loads,
            num_encoder_tokens=event["encoder"],
        )
        if granted is None:
            return False
        if request.num_computed_tokens == 0 and hasattr(manager, "record_prefix_cache_stats"):
            manager.record_prefix_cache_stats(request, hit)
        request.num_computed_tokens = start
        if loads:
            life.hit = hit
            self._enter(life, "loading")
            return "loads"
        self._enter(life, "running")
        self._dispatch(life, count)
        return True

    def _look_up(self, life: _Life) -> tuple[KVCacheBlocks, int]:
        request = life.request
        blocks, hit, *rest = self._manager.get_computed_blocks(request)
        further = rest[0] if "shared_prefix_boundary" in self._takes else None
        if further is not None:
            request.shared_prefix_boundary = further
        ids = [list(group) for group in blocks.get_block_ids()]
        self.recorder.log("get_computed_blocks", request.request_id, None, [ids, hit, further])
        return blocks, hit

    def _allocate(
        self, life: _Life, event: Event, count: int, **arguments: object
    ) -> KVCacheBlocks | None:
        optional = {
            "full_sequence_must_fit": event["must_fit"] and life.state != "running",
            "reserved_blocks": event["reserved"],
            "has_scheduled_reqs": event["others"],
        }
        arguments.update({name: optional[name] for name in optional if name in self._takes})
        blocks = self._manager.allocate_slots(life.request, count, **arguments)
        shown = {name: value for name, value in arguments.items() if name != "new_computed_blocks"}
        ids = None if blocks is None else [list(group) for group in blocks.get_block_ids()]
        self.recorder.log("allocate_slots", life.request.request_id, [count, shown], ids)
        return blocks

    def _dispatch(self, life: _Life, count: int) -> None:
        """Begin a step: its tokens count as computed, and its output is outstanding."""
        request = life.request
        request.num_computed_tokens += count
        drafts = request.num_computed_tokens - request.num_tokens - life.outstanding
        life.in_flight.append((count, drafts if drafts >= 0 else None))
        if drafts >= 0:
            life.outstanding += 1 + drafts
        request.num_in_flight_tokens = sum(tokens for tokens, _ in life.in_flight)

    def _loaded(self, event: Event) -> Json:
        """End an asynchronous load of external tokens, whole or with a failed tail.

        Schedulers are told of a failed block where there is one group of blocks, else of a failed
        request. Behind a window what is before the failed block is gone as well.
        """
        life = self._lives.get(event["request"])
        if life is None or life.state != "loading":
            return None
        request = life.request
        self._enter(life, "waiting")
        valid = request.num_computed_tokens
        if event["valid"] < valid:
            keeps_all = [group["kind"] for group in self._groups] == ["full"]
            size = self._groups[0]["block_size"]
            valid = max(life.hit, event["valid"] // size * size) if keeps_all else 0
        request.num_computed_tokens = valid
        if valid == 0:
            self._manager.free(request)
            return 0
        life.loaded = True
        self._manager.cache_blocks(request, valid)
        if valid == request.num_tokens:
            request.num_computed_tokens -= 1
        return valid

    def _output(self, event: Event) -> Json:
        """End the oldest step in flight: the request gets new tokens, and its drafts that were
        accepted.

        The request ends with it when it is as long as the model takes.
        """
        life = self._lives.get(event["request"])
        if life is None or not life.in_flight:
            return None
        request = life.request
        _, drafts = life.in_flight.pop(0)
        request.num_in_flight_tokens = sum(tokens for tokens, _ in life.in_flight)
        if drafts is None:
            return 0
        accepted = min(drafts, event["accepted"])
        request.num_computed_tokens -= drafts - accepted
        life.outstanding -= 1 + drafts
        known = len(request.block_hashes)
        first = event["first"]
        if first is None:
            first = request.all_token_ids[-1] + 1
        count = min(accepted + 1, self._max_model_len - request.num_tokens)
        request.append_output_token_ids([first + step for step in range(count)])
        hashes = self.recorder.show(request.block_hashes[known:])
        if request.num_tokens == self._max_model_len:
            del self._lives[event["request"]]
            self._manager.free(request)
        elif self._asynchronous:
            self._manager.cache_blocks(request, request.num_computed_tokens - life.outstanding)
        return [request.num_tokens, hashes, drafts]

    def _preempt(self, event: Event) -> Json:
        life = self._lives.get(event["request"])
        if life is None or life.state != "running":
            return None
        self._manager.free(life.request)
        life.request.num_computed_tokens = 0
        life.request.num_preemptions += 1
        life.loaded = False
        life.request.num_in_flight_tokens = 0
        life.in_flight.clear()
        life.outstanding = 0
        self._enter(life, "preempted")
        return True

    def _end(self, event: Event) -> Json:
        """End the request, at any time; its blocks may be read until `settle`."""
        life = self._lives.pop(event["request"], None)
        if life is None:
            return None
        if event["defer"] and "pop_blocks_for_free" in self._takes:
            blocks = self._manager.pop_blocks_for_free(life.request)
            self._deferred.append((life.request.request_id, blocks))
            return [block.block_id for block in blocks if not block.is_null]
        self._manager.free(life.request)
        return True

    def _settle(self, event: Event) -> Json:
        """Carry out the oldest deferred free."""
        if not self._deferred:
            return None
        _, blocks = self._deferred.pop(0)
        self._manager.block_pool.free_blocks(reversed(blocks))
        return True

    def _skip(self, event: Event) -> Json:
        life = self._lives.get(event["request"])
        if life is None or life.state != "running":
            return None
        request = life.request
        processed = request.num_computed_tokens - sum(tokens for tokens, _ in life.in_flight)
        self._manager.remove_skipped_blocks(request.request_id, max(0, processed))
        return processed

    def _evict_blocks(self, event: Event) -> Json:
        blocks = self._manager.block_pool.blocks
        ids = {block_id for block_id in event["blocks"] if 0 < block_id < len(blocks)}
        if not ids or not hasattr(self._manager, "evict_blocks"):
            return None
        self._manager.evict_blocks(ids)
        return len(ids)

    def _reset_prefix(self, event: Event) -> Json:
        return self._manager.reset_prefix_cache()

    def _common_prefix(self, event: Event) -> Json:
        life = self._lives.get(event["request"])
        if life is None or life.state != "running":
            return None
        return list(self._manager.get_num_common_prefix_blocks(life.request.request_id))

    def _take_events(self, event: Event) -> Json:
        return [self.recorder.event(taken) for taken in self._manager.take_events()]

    def _take_stats(self, event: Event) -> Json:
        stats = self._manager.make_prefix_cache_stats()
        counts = [getattr(stats, name, 0) for name in STATS]
        return [round(self._manager.usage, 9), counts]

    def _take_residencies(self, event: Event) -> Json:
        return [
            [gone.lifetime_seconds, gone.idle_seconds, list(gone.reuse_gaps_seconds)]
            for gone in self._metrics.drain_events()
        ]

    def _enter(self, life: _Life, state: str) -> None:
        life.state = state
        life.request.status = self._statuses[state]
