"""One engine of a trace for connectors: both sides of a connector, played.

The calls and their order are those of vLLM's scheduler and of its first model runner. What an
engine would encode is known without a model: each row says of which item, model, version of the
weights and place it is.
"""

import resource
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

from ..protocol import Event, Json
from .store import Store

DEPTH_OF_STORE = 4
"""Folders between the trace's own and its store's, and the most that an identifier may climb."""
PLACES = 64
"""Rows say their place modulo this, which every dtype can."""
Rows = dict[str, Any]
"""Rows by identifier, of whatever kind a connector has them."""


class Copies(Protocol):
    """Copies that are made while steps go on."""

    @property
    def are_under_way(self) -> bool:
        """Whether a copy has not ended."""

    def delay(self, late: int) -> None:
        """Begin a step, whose copies end `late` steps later, and after those of earlier steps."""

    def ended(self) -> list[tuple[str, object | None]]:
        """The identifier of each load that was reported as ended with this step, and the rows that
        it has brought; None for rows that were there when the step read them."""


class WorkerReport(Protocol):
    """`vllm.distributed.ec_transfer.ec_connector.base.ECConnectorWorkerMetadata`: what a rank
    reports of its copies."""

    def aggregate(self, other: "WorkerReport", /) -> "WorkerReport": ...


class SchedulerSide(Protocol):
    """`vllm.distributed.ec_transfer.ec_connector.base.ECConnectorBase`, as schedulers call it.

    update_state_after_free, request_finished, reset_cache: of some connectors alone.
    """

    def has_cache_item(self, identifier: str, /) -> bool: ...
    def update_state_after_alloc(self, request: SimpleNamespace, index: int, /) -> None: ...
    def update_state_after_free(self, request: SimpleNamespace, index: int, /) -> None: ...
    def request_finished(self, request: SimpleNamespace, /) -> object: ...
    def build_connector_meta(self, scheduler_output: SimpleNamespace, /) -> Any: ...
    def update_connector_output(self, connector_output: SimpleNamespace, /) -> None: ...
    def reset_cache(self) -> None: ...
    def shutdown(self) -> None: ...


class WorkerSide(Protocol):
    """`vllm.distributed.ec_transfer.ec_connector.base.ECConnectorBase`, as runners call it."""

    def start_save_caches(self, **kwargs: object) -> None: ...
    def start_load_caches(self, encoder_cache: Rows, **kwargs: object) -> None: ...
    def save_caches(self, encoder_cache: Rows, mm_hash: str, **kwargs: object) -> None: ...
    def bind_connector_metadata(self, metadata: Any, /) -> None: ...
    def clear_connector_metadata(self) -> None: ...
    def get_finished(
        self, finished_req_ids: set[str], /
    ) -> tuple[set[str] | None, set[str] | None]: ...
    def build_connector_worker_meta(self) -> WorkerReport | None: ...
    def shutdown(self) -> None: ...


class Kit(NamedTuple):
    """A connector of one engine.

    Attributes:
        scheduler: the connector on the scheduler's side.
        worker: the connector on the worker's side, of the first rank.
        made: rows of numbers, [[...], ...], as the worker has them.
        read: numbers, width and dtype of rows.
        report: what tells the scheduler's side that all loads of a step's metadata are done.
        pinned: identifiers that the scheduler's side keeps; None where that is not to be seen.
        saving: those of these identifiers whose saves have not ended; None as well.
        settle: waits until nothing is written in the background.
        copies: those that are made while steps go on; None: each step waits for its own.
        further: the connector on the side of each further rank's worker.
    """

    scheduler: SchedulerSide
    worker: WorkerSide
    made: Callable[[list[list[int]]], object]
    read: Callable[[Any], tuple[list[list[float]], int, str]]
    report: Callable[[Any], SimpleNamespace]
    pinned: Callable[[], set[str]] | None = None
    saving: Callable[[list[str]], set[str]] | None = None
    settle: Callable[[], None] = lambda: None
    copies: Copies | None = None
    further: tuple[WorkerSide, ...] = ()


MakeKit = Callable[[Event, Event, int, Path, str | None], Kit]
"""(configuration, model, version of the weights, the store's folder, a fault to plant) -> a kit."""


class ConnectorEngine:
    """The engine in the process: one method for each order, with plain values."""

    def __init__(self, config: Event, model: int, weights: int, store: Store, kit: Kit) -> None:
        self._rows = {item["identifier"]: item["rows"] for item in config["items"]}
        self._gaps = {item["identifier"]: item["gaps"] for item in config["items"]}
        self._numbers = {name: number for number, name in enumerate(self._rows)}
        self._width = row_width(config["models"][model])
        self._model, self._weights = model, weights
        self._store = store
        self._kit = kit
        self._held: set[str] = set()
        self._freed: list[str] = []
        self._planned: deque[tuple[object, list[str], list[str], list[str], list[str]]] = deque()
        self._requests: deque[list[SimpleNamespace]] = deque()
        self._encoder_cache: Rows = {}
        self._ranks: list[tuple[WorkerSide, Rows]] = [
            (kit.worker, self._encoder_cache),
            *[(one, {}) for one in kit.further],
        ]
        self._in_flight: list[str] = []

    def plan(
        self, requests: list[list[str]], refused: list[str], preempted: list[str]
    ) -> dict[str, Json]:
        """Plan a step of the scheduler; returns what it was promised of the items that the engine
        lacks."""
        promised: dict[str, bool] = {}
        loads: list[str] = []
        encodes: list[str] = []
        planned = []
        scheduled = {str(number): len(items) for number, items in enumerate(requests)}
        for name, items in zip(scheduled, requests, strict=True):
            gone = set(preempted) - self._held
            request, answers = self._schedule(name, items, refused, gone)
            planned.append(request)
            promised |= answers
            taken = [name for name in answers if name not in refused]
            loads += [name for name in taken if answers[name]]
            encodes += [name for name in taken if not answers[name] and name not in gone]
            self._held.update(set(taken) - gone)
        self._in_flight += loads
        step = SimpleNamespace(num_scheduled_tokens=scheduled)
        metadata = self._kit.scheduler.build_connector_meta(step)
        named = dict.fromkeys(name for items in requests for name in items)
        reads = [name for name in named if name in self._held]
        self._planned.append((metadata, self._freed, loads, encodes, reads))
        self._requests.append(planned)
        self._freed = []
        return {"promised": promised, "encodes": encodes, "pins": self._pins()}

    def _schedule(
        self, request_id: str, items: list[str], refused: list[str], gone: set[str]
    ) -> tuple[SimpleNamespace, dict[str, bool]]:
        """Schedule one request of a step; returns it, and what is promised of the items that the
        engine lacks. The connector is told of the items that get room; of those that are gone by
        the end of the step, in a request of their own."""
        scheduler = self._kit.scheduler
        asked = [name for name in dict.fromkeys(items) if name not in self._held]
        promised = {name: bool(scheduler.has_cache_item(name)) for name in asked}
        request, preempted = (
            SimpleNamespace(
                request_id=one,
                mm_features=[_feature(name, self._rows[name], self._gaps[name]) for name in items],
                get_num_encoder_embeds=lambda index: self._rows[items[index]],
            )
            for one in (request_id, f"{request_id}, preempted")
        )
        taken = [name for name in asked if name not in refused]
        for name in sorted(taken, key=promised.__getitem__):  # what is encoded first, as of 0.29.0
            told = preempted if name in gone else request
            scheduler.update_state_after_alloc(told, items.index(name))
        return request, promised

    def _pins(self) -> list[list[str]] | None:
        if self._kit.pinned is None:
            return None
        return [sorted(set(self._in_flight)), sorted(self._kit.pinned())]

    def execute(self, dies_at: int | None, late: int) -> dict[str, Json]:
        """Execute the worker's part of the oldest step; returns whose the rows are that it
        loaded."""
        metadata, freed, loads, encodes, reads = self._planned.popleft()
        cache = self._encoder_cache
        for name in freed:
            for _, held in self._ranks:
                held.pop(name, None)
        self._begin(metadata, late)
        loaded = {name: self._described(cache[name]) for name in loads if name in cache}
        further = [
            (name, self._described(held[name]))
            for _, held in self._ranks[1:]
            for name in loads
            if name in held
        ]
        if dies_at is not None:
            _die_at(dies_at)
        files = {name: self._save(name) for name in encodes}
        caches = [held for _, held in self._ranks]
        missing = sorted(name for name in reads if not all(name in held for held in caches))
        landed = further + self._report(loads)
        self._finish(self._requests.popleft())
        return {
            "loaded": loaded,
            "landed": landed,
            "missing": missing,
            "files": files,
            "copying": self._is_copying(),
            "rest": self._rest(),
        }

    def abort(self) -> dict[str, Json]:
        """End the requests of all planned steps before the worker executes these."""
        aborted = sum(map(len, self._requests))
        for requests in self._requests:
            self._finish(requests)
        return {"aborted": aborted}

    def _finish(self, requests: list[SimpleNamespace]) -> None:
        """Tell the connector that the places of requests are free, and that they have ended; each
        once."""
        scheduler = self._kit.scheduler
        for request in requests:
            for index in range(len(request.mm_features)):
                if hasattr(scheduler, "update_state_after_free"):
                    scheduler.update_state_after_free(request, index)
            if hasattr(scheduler, "request_finished"):
                scheduler.request_finished(request)
        requests.clear()

    def _begin(self, metadata: object, late: int = 0) -> None:
        """Begin a step of the worker: it loads."""
        if self._kit.copies is not None:
            self._kit.copies.delay(late)
        for worker, cache in self._ranks:
            worker.bind_connector_metadata(metadata)
            worker.start_save_caches(encoder_cache=cache)
            worker.start_load_caches(cache)

    def _report(self, loads: list[str]) -> list[tuple[str, dict[str, Json]]]:
        """End a step that has begun these loads: the worker reports what has ended. Returns what a
        load has brought by then, where that is later than its step."""
        copies, received, told = self._kit.copies, None, None
        for worker, _ in self._ranks:
            _, of_rank = worker.get_finished(set())
            received = of_rank if received is None else received | (of_rank or set())
            report = worker.build_connector_worker_meta()
            if report is not None:
                told = report if told is None else told.aggregate(report)
            worker.clear_connector_metadata()
        self._kit.settle()
        ended = [] if copies is None else copies.ended()
        reported = loads if received is None else received
        for name in reported if copies is None else [name for name, _ in ended]:
            if name in self._in_flight:
                self._in_flight.remove(name)
        self._kit.scheduler.update_connector_output(
            SimpleNamespace(
                finished_sending=None, finished_recving=received, ec_connector_worker_meta=told
            )
        )
        return [(name, self._described(rows)) for name, rows in ended if rows is not None]

    def _is_copying(self) -> bool:
        return self._kit.copies is not None and self._kit.copies.are_under_way

    def _idle(self) -> list[tuple[str, dict[str, Json]]]:
        """Run steps without a request until no copy is under way."""
        landed = []
        while self._is_copying():
            self._begin(self._kit.scheduler.build_connector_meta(SimpleNamespace()))
            landed += self._report([])
        return landed

    def _save(self, name: str) -> list[str]:
        """Encode and save an item; returns what appears in the store."""
        before = self._store.names()
        for worker, cache in self._ranks:
            cache[name] = self._kit.made(self._own(name))
            worker.save_caches(cache, name)
        self._kit.settle()
        return sorted(self._store.names() - before)

    def _rest(self) -> list[list[str]] | None:
        """What is still pinned or being saved; None where a step is planned or a copy under way."""
        if self._kit.saving is None or self._planned or self._is_copying():
            return None
        pinned = set() if self._kit.pinned is None else self._kit.pinned()
        return [sorted(pinned), sorted(self._kit.saving(list(self._rows)))]

    def forget(self, items: list[str]) -> dict[str, Json]:
        """Evict items from the engine's own cache; the worker hears of it with the next step. Items
        that a planned step reads stay, as the manager keeps them."""
        needed = {name for *_, reads in self._planned for name in reads}
        gone = [name for name in items or sorted(self._held) if name in self._held - needed]
        self._held.difference_update(gone)
        self._freed += gone
        return {"forgot": gone}

    def new_weights(self, weights: int) -> dict[str, Json]:
        """Drop what the engine has encoded, once all copies have ended; the connector is told if it
        can be."""
        landed = self._idle()
        self._held.clear()
        for _, cache in self._ranks:
            cache.clear()
        self._freed = []
        self._weights = weights
        told = getattr(self._kit.scheduler, "reset_cache", None)
        if told is not None:
            told()
        return {"told": told is not None, "landed": landed}

    def ask(self) -> dict[str, Json]:
        """What is promised of each item, once all copies have ended; nothing follows from it."""
        scheduler = self._kit.scheduler
        landed, rest = self._idle(), self._rest()
        promised = {name: bool(scheduler.has_cache_item(name)) for name in self._rows}
        scheduler.build_connector_meta(SimpleNamespace())
        return {"promised": promised, "landed": landed, "rest": rest}

    def stop(self) -> dict[str, Json]:
        """Shut both sides down."""
        for worker, _ in self._ranks:
            worker.shutdown()
        self._kit.scheduler.shutdown()
        return {}

    def _own(self, name: str) -> list[list[int]]:
        """The rows that this engine encodes an item to."""
        head = [1 + self._numbers[name], 1 + self._model, self._weights]
        filler = [0] * (self._width - 4)
        return [[*head, place % PLACES, *filler] for place in range(self._rows[name])]

    def _described(self, rows: object) -> dict[str, Json]:
        """Whose rows are, by what they say; `whole` where all say the same, each at its own
        place."""
        numbers, width, dtype = self._kit.read(rows)
        first = numbers[0] if numbers and width >= 4 else [0.0] * 4
        whole = width >= 4 and all(
            row == [*first[:3], place % PLACES, *[0] * (width - 4)]
            for place, row in enumerate(numbers)
        )
        return {
            "item": _whole(first[0]) - 1,
            "model": _whole(first[1]) - 1,
            "weights": _whole(first[2]),
            "count": len(numbers),
            "width": width,
            "dtype": dtype,
            "whole": whole and bool(numbers),
        }


def row_width(model: Event) -> int:
    """Columns of a model's encoder outputs."""
    width: int = model["width"] * model["layers"]
    return width


def _feature(identifier: str, rows: int, gaps: int) -> SimpleNamespace:
    """An item of a request, with what connectors read of it."""
    place = SimpleNamespace(offset=0, length=rows + gaps, get_num_embeds=lambda: rows)
    return SimpleNamespace(
        identifier=identifier, mm_hash=identifier, modality="image", mm_position=place, data=None
    )


def _whole(number: float) -> int:
    """A number of a row as an integer; 0 where it is none."""
    return int(number) if 0 <= number < 1 << 24 and number == int(number) else 0


def _die_at(count: int) -> None:
    """Let the system kill this process when it writes beyond that byte of a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, resource.RLIM_INFINITY))
