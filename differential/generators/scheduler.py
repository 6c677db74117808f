"""From a seed to a trace for a real scheduler: engine-level events, tight configurations.

Encoder cache, token budget and KV blocks are all scarce, so that items are refused, evicted and
encoded again, requests are preempted in the middle of an item, and aborts land between a schedule
and its update. Two traces in five are squeezed further: prompts full of items that hardly fit the
KV blocks, mostly under the priority policy, whose victims may have been scheduled in the same step.

One trace in twenty goes on, once nothing comes from outside any more, until all have ended.

With `transfers` encoder outputs also come from elsewhere: now, later, or never. Such traces are all
squeezed, and their items are large: what is loaded for a victim is then evicted in the same step.
With `resized` an identifier comes back with another size now and then, as a reused media id does.
With `windows` the KV cache has groups of sliding windows and of chunks, beside one of full
attention or alone.

With `kv_transfers` the KV of prompts comes from elsewhere, all of it or a part that may end inside
an item, within a step or later, right or wrong; and that of ended requests is sent there. One trace
in four has both connectors. Requests then wait more than they run, and an abort hardly ever meets
one inside an item: one trace in six ends with an abort that does.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from cacheproof.differential.generators.scheduler_config import (
    draw_squeezed,
    draw_tight,
    with_extras,
    with_groups,
    with_kv_transfers,
    with_transfers,
)
from cacheproof.differential.traces.base import SCHEMA, Adapter, Item
from cacheproof.differential.traces.manager import Add, Reset, Update
from cacheproof.differential.traces.scheduler import (
    Abort,
    Chunk,
    Close,
    Elsewhere,
    Pause,
    Received,
    ResetPrefix,
    Schedule,
    SchedulerConfig,
    SchedulerHeader,
    Sent,
    Transfer,
    TransferState,
)
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.reference.semantics import Semantics, offered_by

VERSION = "scheduler/2"
_MOST_ITEMS = 8
"""Most items of a session: beyond, a release gives them back in the order of a hash table."""


def scheduler_trace(
    seed: int,
    *,
    async_scheduling: bool | None = None,
    release: str | None = None,
    transfers: bool = False,
    resized: bool = False,
    windows: bool = False,
    kv_transfers: bool = False,
) -> Trace:
    """The scheduler-depth trace of a seed; asynchronous scheduling one time in four unless said.

    It asks for nothing that the release does not have; None: of what any release has.
    """
    offered = offered_by(release)
    transfers = transfers and offered.scheduler.loads_encodings
    return _SchedulerTrace(
        seed, async_scheduling, offered, transfers, resized, windows, kv_transfers
    ).build()


def until_all_end(
    config: SchedulerConfig, live: Sequence[str], pauses: bool, *freeing: AnyEvent
) -> Iterator[AnyEvent]:
    """Events that let all end: few requests are left, nothing is in their way, and there are steps
    for twice the longest."""
    yield from map(Abort, live[:-3])
    if pauses:
        yield Pause("none")
    yield from freeing
    for _ in range(2 * config.max_model_len):
        yield Schedule()
        yield Update()


def drafts_accepted(config: SchedulerConfig, random: Random) -> tuple[int, ...]:
    """How many drafts requests accept; mostly all or none."""
    most = config.num_speculative_tokens
    return tuple(random.choice((0, 0, 1, most)) for _ in range(3)) if most else ()


class _SchedulerTrace:
    def __init__(
        self,
        seed: int,
        async_scheduling: bool | None,
        semantics: Semantics,
        transfers: bool,
        resized: bool,
        windows: bool,
        kv_transfers: bool,
    ) -> None:
        self._semantics = semantics
        # A stream for each: what is drawn of one leaves the others, and older traces, as they were.
        self._extras = Random(f"{VERSION}/extras/{seed}")
        self._again = Random(f"{VERSION}/again/{seed}")
        self._streaming = Random(f"{VERSION}/streaming/{seed}")
        self._resizing = Random(f"{VERSION}/resizing/{seed}") if resized else None
        self._runs_out = Random(f"{VERSION}/end/{seed}").random() < 0.05
        self._cuts_off = kv_transfers and Random(f"{VERSION}/cut/{seed}").random() < 1 / 6
        random = self._random = Random(f"{VERSION}/{async_scheduling}/{seed}")
        self._seed = seed
        self._squeezed = random.random() < 0.4 or transfers
        self._capacity = random.choice(
            (6, 8, 12, 20) if self._squeezed else (2, 3, 4, 6, 8, 12, 20)
        )
        if transfers:
            # So small that what is loaded for a victim is evicted in the same step.
            self._capacity = random.choice((2, 3, 4, 6))
        largest = max(
            1,
            random.choice(
                (self._capacity // 2, 4, 2)
                if self._squeezed and not transfers
                else (self._capacity, self._capacity // 2, 2)
            ),
        )
        self._items = [
            self._template(f"h{number}", largest)
            for number in range(random.randint(*((6, 16) if self._squeezed else (2, 6))))
        ]
        if async_scheduling is None:
            async_scheduling = random.random() < 0.25
        draw = draw_squeezed if self._squeezed else draw_tight
        runner = Random(f"{VERSION}/runner/{seed}")
        drawn = draw(random, self._capacity, largest, async_scheduling)
        self._config = with_extras(drawn, self._extras, semantics, runner)
        if transfers:
            self._config = with_transfers(self._config, semantics)
        if windows:
            groups = Random(f"{VERSION}/groups/{seed}")
            self._config = with_groups(self._config, groups, semantics)
        self._kv = Random(f"{VERSION}/kv/{seed}")
        if kv_transfers:
            self._config = with_kv_transfers(self._config, self._kv, semantics)
        self._loads_at_once: list[str] = []
        self._loads_later: list[str] = []
        self._sends: list[str] = []
        self._unknown: dict[str, int] = {}
        self._adapters = self._extras.randint(1, 4) if self._config.max_loras else 0
        self._twins = self._config.prefix_caching and self._extras.random() < 0.25
        self._texts: list[tuple[int, tuple[Item, ...]]] = []
        self._pauses = semantics.scheduler.pauses and self._extras.random() < 0.1
        self._restarts = semantics.scheduler.restarts_running and self._extras.random() < 0.15
        if kv_transfers:
            self._restarts = semantics.scheduler.restarts_running and self._kv.random() < 0.15
        self._elsewhere = Random(f"{VERSION}/elsewhere/{seed}")
        self._pending: list[str] = []
        self._streams = semantics.block_keys.continues_requests and self._streaming.random() < 0.12
        self._rooms: dict[str, int] = {}
        self._first_turns: dict[str, int] = {}
        self._shown: dict[str, int] = {}
        self._events: list[AnyEvent] = []
        self._live: list[str] = []
        self._arrived = 0

    def _template(self, identifier: str, largest: int) -> tuple[str, tuple[bool, ...]]:
        random = self._random
        mask = [True] * random.randint(1, largest)
        if random.random() < 0.3:
            mask += [False] * random.randint(1, 4)
            random.shuffle(mask)
        return identifier, tuple(mask)

    def build(self) -> Trace:
        random = self._random
        in_flight = 0
        limit = 2 if self._config.async_scheduling else 1
        if self._config.ec_connector:
            self._events += [
                Transfer(identifier, "ready")
                for identifier, _ in self._items
                if self._elsewhere.random() < 0.7
            ]
        for _ in range(40 if self._config.ec_connector else random.choice((8, 16, 40))):
            if self._config.ec_connector and self._elsewhere.random() < 0.6:
                self._events.append(self._transfer())
            while len(self._live) < 6 and random.random() < 0.5:
                self._add()
            if self._rooms and self._streaming.random() < 0.4:
                self._stream()
            if in_flight < limit:
                self._events.append(Schedule())
                in_flight += 1
                if self._config.kv_connector is not None:
                    self._events += self._ends_of_transfers()
            if self._live and random.random() < 0.06:
                request = self._live.pop(random.randrange(len(self._live)))
                self._events.append(Abort(request))
            if in_flight == limit or random.random() < 0.5:
                self._events.append(Update(accepts=drafts_accepted(self._config, self._extras)))
                in_flight -= 1
            if random.random() < 0.01:
                self._events.append(Reset())
            if random.random() < 0.02:
                running = self._restarts and self._extras.random() < 0.7
                self._events.append(ResetPrefix(running=running))
                # Output that is stale twice over: a release may add where it should assign.
                if running and in_flight == 1 < limit and self._again.random() < 0.5:
                    self._events += (Schedule(), ResetPrefix(running=True))
                    in_flight += 1
            if self._pauses and self._extras.random() < 0.2:
                self._events.append(Pause(self._extras.choice(("new", "all", "none", "none"))))
        if self._runs_out:
            arrivals = [Transfer(identifier, "ready") for identifier in self._pending]
            ends = [Close(request) for request in self._rooms]
            self._events += until_all_end(self._config, self._live, self._pauses, *arrivals, *ends)
        if self._cuts_off:
            self._events += self._cut_off()
        header = SchedulerHeader(
            schema=SCHEMA,
            manager="encoder_cache",
            config=self._config,
            seed=self._seed,
            generator=VERSION,
        )
        return Trace(header, tuple(self._events))

    def _cut_off(self) -> Iterator[AnyEvent]:
        """Abort a request that is alone when a step has left it inside an item."""
        config = self._config
        threshold = config.long_prefill_token_threshold or config.max_model_len
        step = min(config.max_num_batched_tokens, threshold)
        identifier, mask = max(self._items, key=lambda item: len(item[1]))
        room = config.max_model_len - len(mask) - 1
        item = self._item(identifier, min(step - 1, room), mask)
        request = f"r{self._arrived}"
        yield from map(Abort, self._live)
        yield Add(request, item.offset + item.length, (item,), max_tokens=1)
        yield Schedule()
        yield Abort(request)
        yield Update()

    def _transfer(self) -> Transfer:
        """An event of encoder outputs elsewhere: one on its way arrives or fails, or another is
        offered or withdrawn."""
        random, offered = self._elsewhere, self._semantics
        lost: TransferState = "failed" if offered.scheduler.fails_lost_transfers else "gone"
        if self._pending and random.random() < 0.8:
            identifier = self._pending.pop(random.randrange(len(self._pending)))
            ends: tuple[TransferState, ...] = ("ready", "ready", "gone", lost)
            return Transfer(identifier, random.choice(ends))
        identifier, _ = random.choice(self._items)
        if identifier in self._pending:
            self._pending.remove(identifier)
        if offered.scheduler.awaits_transfers and random.random() < 0.2:
            self._pending.append(identifier)
            return Transfer(identifier, "pending")
        return Transfer(identifier, "ready" if random.random() < 0.75 else "gone")

    def _stream(self) -> None:
        """Give a session more prompt, or close it; now and then all requests start over instead."""
        random = self._streaming
        restarts = self._semantics.scheduler.restarts_running and self._config.kv_connector is None
        if restarts and random.random() < 0.04:
            self._events.append(ResetPrefix(running=True))
            return
        request = random.choice(list(self._rooms))
        items: list[Item] = []
        position = random.choice((0, 0, 1, 5))
        count = min(random.choice((0, 1, 1, 2)), _MOST_ITEMS - self._shown[request])
        for _ in range(count):
            identifier, mask = random.choice(self._items)
            items.append(self._item(identifier, position, mask))
            position += items[-1].length + random.choice((0, 1, 3))
        prompt = max(1, position) + random.choice((0, 1, 6))
        max_tokens = random.randint(1, 6)
        self._shown[request] += len(items)
        # Before 0.31.0 each turn may decode as much as the first.
        own = self._semantics.scheduler.takes_max_tokens_of_chunks
        self._rooms[request] -= prompt + (max_tokens if own else self._first_turns[request])
        # No turn may come that the model's length has no room for.
        if self._rooms[request] < 0 or random.random() < 0.15:
            del self._rooms[request]
            self._events.append(Close(request))
            return
        stop_after = random.randint(1, 4) if random.random() < 0.3 else None
        self._events.append(Chunk(request, prompt, tuple(items), max_tokens, stop_after))

    def _add(self) -> None:
        random = self._random
        request = f"r{self._arrived}"
        self._arrived += 1
        position = random.choice((0, 0, 1, 5, 12))
        items: list[Item] = []
        repeats = not self._squeezed and random.random() < 0.4
        repeated = random.choice(self._items) if repeats else None
        for _ in range(random.choice((4, 6, 7) if self._squeezed else (0, 1, 1, 2, 3, 4))):
            identifier, mask = repeated or random.choice(self._items)
            if position + len(mask) > self._config.max_model_len - 8:
                break
            items.append(self._item(identifier, position, mask))
            position += items[-1].length + random.choice((0, 0, 1, 3, 8))
            if self._squeezed:
                position += random.randrange(6)
        prompt = min(max(position, 1) + random.choice((0, 1, 6)), self._config.max_model_len - 1)
        # No item may be cut where the prompt was.
        prompt = max(prompt, items[-1].offset + items[-1].length if items else 1)
        shown = tuple(items)
        if self._twins:
            prompt, shown = self._twin(self._with_cached_prefix(prompt), shown)
        room = self._config.max_model_len - prompt
        max_tokens = random.randint(1, max(1, min(12, room)))
        resumable = self._streams and self._streaming.random() < 0.6
        if resumable:
            self._rooms[request] = room - max_tokens
            self._first_turns[request] = max_tokens
            self._shown[request] = len(shown)
        self._events.append(
            Add(
                request,
                prompt,
                shown,
                max_tokens=max_tokens,
                priority=self._priority(),
                resumable=resumable,
                sends=self._sends_kv(request),
                **self._rare(),
            )
        )
        if self._config.kv_connector is not None and self._kv.random() < 0.8:
            self._events.append(self._elsewhere_of(request, prompt))
        self._live.append(request)

    def _item(self, identifier: str, position: int, mask: tuple[bool, ...]) -> Item:
        """The item, at times cut short where identifiers may come back with another size."""
        if self._resizing is not None and self._resizing.random() < 0.1 and len(mask) > 1:
            mask = mask[: self._resizing.randrange(1, len(mask))]
            mask = mask if any(mask) else (True,)
        return Item(identifier, position, len(mask), is_embed=None if all(mask) else mask)

    def _sends_kv(self, request: str) -> bool:
        """Whether the KV of a request is sent elsewhere when it has come to its end."""
        if self._config.kv_connector is None or self._kv.random() < 0.6:
            return False
        if self._config.async_scheduling and not self._semantics.scheduler.keeps_until_loaded:
            return False
        self._sends.append(request)
        return True

    def _elsewhere_of(self, request: str, prompt: int) -> Elsewhere:
        """How much of a request can be had elsewhere: all, whole blocks, or any part."""
        random, block_size = self._kv, self._config.block_size
        if random.random() < 0.1:
            self._unknown[request] = prompt
            return Elsewhere(request, None)
        tokens = random.choice(
            (prompt, random.randrange(prompt + 1), prompt // block_size * block_size)
        )
        later = random.random() < 0.6
        (self._loads_later if later else self._loads_at_once).append(request)
        return Elsewhere(request, tokens, later)

    def _ends_of_transfers(self) -> list[AnyEvent]:
        """Transfers that end now: a load, well or not; a sending; or an answer on what can be had
        elsewhere."""
        random = self._kv
        events: list[AnyEvent] = []
        if self._loads_later and random.random() < 0.5:
            events.append(Received(random.choice(self._loads_later[-6:]), self._failure(0.3)))
        if self._loads_at_once and random.random() < 0.3:
            events.append(Received(random.choice(self._loads_at_once[-4:]), self._failure(1.0)))
        if self._sends and random.random() < 0.4:
            events.append(Sent(random.choice(self._sends[-6:])))
        if self._unknown and random.random() < 0.3:
            request = random.choice(list(self._unknown))
            events.append(self._elsewhere_of(request, self._unknown.pop(request)))
        return events

    def _failure(self, likelihood: float) -> int | None:
        """The block from which a load fails; None: it does not fail."""
        fails = self._kv.random() < likelihood and self._semantics.scheduler.retries_failed_loads
        return self._kv.choice((0, 0, 1, 2)) if fails else None

    def _priority(self) -> int:
        """A request's priority. With transfers mostly the later the more urgent: the first that
        runs is the victim."""
        if self._config.ec_connector and self._elsewhere.random() < 0.8:
            return -self._arrived
        return self._random.choice((0, 0, 1, 2))

    def _twin(self, prompt: int, items: tuple[Item, ...]) -> tuple[int, tuple[Item, ...]]:
        """This prompt; one time in two an earlier one again."""
        if self._texts and self._extras.random() < 0.5:
            return self._extras.choice(self._texts)
        self._texts.append((prompt, items))
        return prompt, items

    def _with_cached_prefix(self, prompt: int) -> int:
        """A prompt length that, once its prefix is cached, leaves one token to compute."""
        block_size = self._config.block_size
        longer = -(-prompt // block_size) * block_size + 1
        return longer if longer < self._config.max_model_len else prompt

    def _rare(self) -> dict[str, Any]:
        """Fields that few requests set."""
        random = self._extras
        number = random.randint(1, self._adapters) if self._adapters else 0
        adapter = Adapter(f"adapter-{number}", number, f"/adapters/{number}") if number else None
        skips = random.random() < 0.03 and self._semantics.scheduler.skips_reading
        return {
            "lora": adapter if random.random() < 0.7 else None,
            "salt": random.choice(("s1", "s2")) if random.random() < 0.05 else None,
            "skip_reading": skips,
            "stop_after": random.randint(1, 4) if random.random() < 0.2 else None,
        }
