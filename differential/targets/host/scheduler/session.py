"""Drives a scheduler with engine-level events, as an engine core would.

The engine's side is played by this session: it makes the requests, keeps up to two scheduler
outputs in flight (one without asynchronous scheduling), samples a token wherever a step reaches
the end of what is known of a request, and hands the outputs back in order. Nothing is decided
here that the scheduler decides.
"""

import itertools
import zlib
from collections import deque
from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ..protocol import Event, HostError, Illegal, Json
from ..session import is_raised_by_release
from ..vllm_objects.requests import Request
from ..vllm_objects.scheduler import (
    KVTold,
    Scheduler,
    SchedulerOutput,
)
from .encoder_transfers import EncoderTransfers
from .executed import Executed, Worker, said_of
from .kv_transfers import KVTransfers, KVWorker, TransferReport
from .recorder import Recorder
from .told import resumed, told

Given = ParamSpec("Given")
Answered = TypeVar("Answered")
FIRST_TEXT_TOKEN_ID = 10
EOS_TOKEN_ID = 2
STOP_TOKEN_ID = 4
VOCABULARY_SIZE = 50272
PLACEHOLDER_TOKEN_ID = 3
WAITING_QUEUES = ("kv_holding_waiting", "skipped_waiting", "waiting")


class SchedulerKit(NamedTuple):
    """What a session drives: a scheduler, and how it is spoken to.

    scheduler: a release's, or one with its attributes and methods.
    recorder: logs the calls of its encoder cache manager.
    make_request: makes a request from an `add`, a `chunk` or a `close` and the arrival time;
        raises Illegal where it is refused.
    update: hands in a scheduler output with the tokens sampled for each of its requests, and what
        the workers report of KV transfers, if anything; returns (request, number of new tokens,
        whether it ended) for each that the engine is told of.
    abort: ends a request from outside.
    propose: hands in drafts for requests.
    pause: from now on only running requests are scheduled ("new"), none ("all"), or all ("none").
    preempted: the status of a request that lost its blocks.
    resets: whether the encoder cache can be reset.
    worker: what executes steps; None: nothing does, and tokens follow from their positions.
    """

    scheduler: Scheduler
    recorder: Recorder
    make_request: Callable[[Event, float], Any]
    update: Callable[
        [SchedulerOutput, dict[str, list[int]], TransferReport | None],
        list[tuple[str, int, bool]],
    ]
    abort: Callable[[str], object]
    propose: Callable[[dict[str, list[int]]], object]
    pause: Callable[[str], object]
    preempted: object
    resets: bool
    worker: Worker | None = None


class _Step(NamedTuple):
    """A scheduler output in flight: its number; each request's number of drafts, None where the
    step does not reach the end of what is known of it; and what a worker made of it, if any."""

    number: int
    output: SchedulerOutput
    drafts: dict[str, int | None]
    executed: Executed | Exception | None


class _Session(NamedTuple):
    """A resumable request: the `add` of its arrival, and the chunks that are no part of it yet."""

    first: Event
    chunks: deque[Event]


class SchedulerSession:
    """One trace's scheduler. `apply` takes an event and returns its outcome, None for a no-op.

    Raises Illegal where a request is refused, HostError where this driver is at fault; whatever the
    scheduler itself raises while it runs comes out unchanged.
    """

    def __init__(self, kit: SchedulerKit, config: Event) -> None:
        self.recorder = kit.recorder
        self._kit = kit
        self._scheduler = kit.scheduler
        self._arrived: set[str] = set()
        self._in_flight: deque[_Step] = deque()
        self._asynchronous: bool = config["async_scheduling"]
        self._max_in_flight = 2 if self._asynchronous else 1
        self._max_drafts: int = config["num_speculative_tokens"]
        self._has_drafter: bool = config["drafter"]
        self._one_text: bool = config["one_text"]
        self._stops_after: dict[str, int | None] = {}
        self._sessions: dict[str, _Session] = {}
        self._open: set[str] = set()
        self._arrivals = 0
        self._steps = 0
        self._preempted: set[str] = set()
        self._waiting_queues = [name for name in WAITING_QUEUES if hasattr(kit.scheduler, name)]
        self._kv_connector: KVTransfers | None = getattr(kit.scheduler, "connector", None)
        self._kv_worker = KVWorker(config["block_size"])
        self._release_error: Exception | None = None
        self._handlers: dict[str, Callable[[Event], Json]] = {
            "add": self._add,
            "chunk": self._chunk,
            "close": self._close,
            "schedule": self._schedule,
            "update": self._update,
            "abort": self._abort,
            "reset": self._reset,
            "reload": self._reload,
            "reset_prefix": self._reset_prefix,
            "pause": self._pause,
            "transfer": self._transfer,
            "elsewhere": self._elsewhere,
            "received": self._received,
            "sent": self._sent,
        }

    def apply(self, event: Event) -> Json:
        """The event's outcome, ready for JSON."""
        try:
            return self._handlers[event["event"]](event)
        except (Illegal, HostError):
            raise
        except Exception as error:
            if error is self._release_error:
                raise
            raise HostError(f"{event['event']}: {type(error).__name__}: {error}") from error

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler that is driven."""
        return self._scheduler

    def position(self) -> dict[str, object]:
        """The session's own state, of requests that the scheduler has or that are in flight; other
        names may come again."""
        in_flight = [name for step in self._in_flight for name in step.drafts]
        there = {*self._scheduler.requests, *in_flight}
        return {
            "_arrived": self._arrived & there,
            "_stops_after": {name: self._stops_after[name] for name in sorted(there)},
            "_in_flight": self._in_flight,
            "_arrivals": self._arrivals,
            "_steps": self._steps,
        }

    def go_to(self, position: dict[str, object]) -> None:
        """Put the session back into a `position`, without resumable requests; the caller puts back
        the scheduler."""
        vars(self).update(position)

    def _ask(
        self, function: Callable[Given, Answered], *arguments: Given.args, **named: Given.kwargs
    ) -> Answered:
        """Call the scheduler; what it raises is noted as its own, not this driver's."""
        try:
            return function(*arguments, **named)
        except Exception as error:
            self._release_error = error
            raise

    def _standing(self) -> dict[str, Json]:
        """The requests that run and that wait, in order, and the number of free KV blocks."""
        scheduler = self._scheduler
        return {
            "running": [request.request_id for request in scheduler.running],
            "waiting": [
                request.request_id
                for name in self._waiting_queues
                for request in getattr(scheduler, name)
            ],
            "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        }

    def _add(self, event: Event) -> Json:
        if event["request"] in self._arrived:
            return None
        self._arrive(event)
        self._arrived.add(event["request"])
        if event["sends"] and self._kv_connector is not None:
            self._kv_connector.send(event["request"])
        self._stops_after[event["request"]] = event["stop_after"]
        if event["resumable"]:
            self._sessions[event["request"]] = _Session(event, deque())
            self._open.add(event["request"])
        return self._standing()

    def _arrive(self, event: Event) -> None:
        try:
            request = self._kit.make_request(event, float(self._arrivals + 1))
        except (Illegal, HostError):
            raise
        except Exception as error:
            # Both sides take part in making a request: only the traceback tells whose error it is.
            if is_raised_by_release(error):
                self._release_error = error
            raise
        self._arrivals += 1
        self._ask(self._scheduler.add_request, request)

    def _chunk(self, event: Event) -> Json:
        if not self._is_open(event["request"]):
            return None
        session = self._sessions[event["request"]]
        session.chunks.append(event)
        self._arrive({**session.first, **event})
        return {**_of_sessions(self._continued()), **self._standing()}

    def _close(self, event: Event) -> Json:
        if not self._is_open(event["request"]):
            return None
        self._open.remove(event["request"])
        first = self._sessions[event["request"]].first
        self._arrive({**first, **event, "items": [], "prompt": 1, "resumable": False})
        return self._standing()

    def _is_open(self, request_id: str) -> bool:
        request = self._scheduler.requests.get(request_id)
        return request_id in self._open and request is not None and not _has_ended(request)

    def _continued(self) -> list[list[Json]]:
        """Sessions whose next chunk has become part of their prompt, each with the token at which
        it begins; without those that the next update ends with an error."""
        begun: list[list[Json]] = []
        ending = getattr(self._scheduler, "encoder_cache_mismatch_reqs", ())
        for request_id, session in self._sessions.items():
            request = self._scheduler.requests.get(request_id)
            if request is None or not session.chunks or request_id in ending:
                continue
            waiting = sum(update is not None for update in request.streaming_queue)
            if waiting < len(session.chunks):
                chunk = session.chunks.popleft()
                self._stops_after[request_id] = chunk["stop_after"]
                begun.append([request_id, request.num_tokens - chunk["prompt"]])
        return begun

    def _schedule(self, event: Event) -> Json:
        if len(self._in_flight) == self._max_in_flight:
            return None
        requests = self._scheduler.requests
        preempted = self._kit.preempted
        was_running = list(self._scheduler.running)  # a copy: schedule() changes the list
        was_preempted = {
            request_id for request_id, request in requests.items() if request.status is preempted
        }
        if self._kv_connector is not None:
            # Whoever loads KV after a preemption has another status, and is resumed all the same.
            self._preempted |= was_preempted
            was_preempted |= {
                name for name in self._preempted & requests.keys() if _loads(requests[name])
            }
        # Before schedule(), which adds the placeholders of its own step.
        unsampled = {
            request_id: getattr(request, "num_output_placeholders", None)
            for request_id, request in (requests.items() if self._asynchronous else ())
        }
        output = self._ask(self._scheduler.schedule)
        started = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        computed = {**started, **dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))}
        scheduled = dict(output.num_scheduled_tokens)
        drafts = {
            request_id: len(tokens)
            for request_id, tokens in output.scheduled_spec_decode_tokens.items()
        }
        # 0.11 and before leave a request in `scheduled` that they preempt later in the same step.
        reached: dict[str, int | None] = dict.fromkeys(scheduled)
        for request_id in computed:
            end = computed[request_id] + scheduled[request_id]
            placeholders = unsampled.get(request_id, 0)
            if placeholders is None:  # and schedule() has done without
                raise HostError(f"{request_id} has no num_output_placeholders")
            if end >= requests[request_id].num_tokens + placeholders:
                reached[request_id] = drafts.get(request_id, 0)
        padded = started.keys() | resumed(cached)
        for request_id in padded & drafts.keys():
            reached[request_id] = 0  # nobody proposed them
        self._steps += 1
        executed = self._execute(output)
        self._in_flight.append(_Step(self._steps, output, reached, executed))
        kv_told: KVTold | None = getattr(output, "kv_connector_metadata", None)
        if kv_told:
            self._kv_worker.begin(self._steps, kv_told)
        return {
            "scheduled": scheduled,
            "computed": computed,
            "drafts": drafts,
            # The two model runners are told of resumed requests under different headings.
            "new": [request_id for request_id in started if request_id not in was_preempted],
            "resumed": [request_id for request_id in computed if request_id in was_preempted],
            "preempted": sorted(
                request.request_id for request in was_running if request.status is preempted
            ),
            # They hold what they have claimed until the next update ends them.
            "rejected": sorted(getattr(self._scheduler, "encoder_cache_mismatch_reqs", ())),
            **told(output, requests, self._max_drafts),
            **self._standing(),
            **(executed.said if isinstance(executed, Executed) else {}),
            # What a connector's metadata tells the workers, where there is one.
            **(getattr(output, "ec_connector_metadata", None) or {}),
            **(kv_told or {}),
        }

    def _update(self, event: Event) -> Json:
        if not self._in_flight:
            return None
        sampled: dict[str, int] = {}
        finished: list[str] = []
        continued: list[list[Json]] = []
        reports: list[Json] = []
        executed: list[tuple[Executed, dict[str, int]]] = []
        accepted: list[int] = event["accepts"] or [0]
        for _ in range(min(event["steps"], len(self._in_flight))):
            step = self._in_flight.popleft()
            if step.executed is None:
                tokens = self._sampled(step, accepted)
            elif isinstance(step.executed, Exception):
                self._release_error = step.executed
                raise step.executed
            else:
                tokens = step.executed.tokens
            report = self._report(step)
            reports.append(report and [report.received, report.sent, sorted(report.invalid)])
            answers = self._ask(self._kit.update, step.output, tokens, report)
            if isinstance(step.executed, Executed):
                took = {request_id: count for request_id, count, _ in answers}
                executed.append((step.executed, took))
            for request_id, count, ended in answers:
                sampled[request_id] = sampled.get(request_id, 0) + count
                if ended:
                    finished.append(request_id)
            continued += self._continued()
            # Where steps are asynchronous, drafts stay with the worker.
            rests = getattr(step.output, "skip_drafts", False)
            if self._max_drafts and not self._asynchronous and not rests:
                proposals = self._proposals(step)
                if proposals is not None:
                    self._ask(self._kit.propose, proposals)
        return {
            "sampled": sampled,
            "finished": sorted(finished),
            **_of_sessions(continued),
            **({"kv_reports": reports} if any(reports) else {}),
            **said_of(executed),
            **self._standing(),
        }

    def _execute(self, output: SchedulerOutput) -> Executed | Exception | None:
        """What a worker makes of a step; None without a worker. What it raises comes with the
        step's output, and a worker that has failed executes nothing more."""
        if self._kit.worker is None:
            return None
        for step in self._in_flight:
            if isinstance(step.executed, Exception):
                return step.executed
        try:
            return self._kit.worker.execute(output)
        except Illegal:
            raise
        except Exception as error:
            return error

    def _report(self, step: _Step) -> TransferReport | None:
        """The workers' report of KV transfers with the step's output; None where there is none."""
        report = self._kv_worker.report(step.number)
        return report if any(report) else None

    def _sampled(self, step: _Step, accepted: list[int]) -> dict[str, list[int]]:
        """The tokens that an execution of the step would sample for each of its requests."""
        turns = itertools.cycle(accepted)
        sampled = {}
        for request_id, drafts in step.drafts.items():
            count = 0 if drafts is None else 1 + (min(drafts, next(turns)) if drafts else 0)
            sampled[request_id] = [self._sample(request_id, number) for number in range(count)]
        return sampled

    def _sample(self, request_id: str, number: int) -> int:
        """The token at a position: identical whenever it is sampled."""
        request = self._scheduler.requests.get(request_id)
        if request is None:
            return FIRST_TEXT_TOKEN_ID  # it ended since, and nobody looks
        if request.num_output_tokens + number + 1 == self._stops_after[request_id]:
            return STOP_TOKEN_ID
        position = request.num_tokens + number
        if self._one_text:
            return _text(position)
        digest = zlib.crc32(f"{request_id}@{position}".encode())
        return FIRST_TEXT_TOKEN_ID + digest % (VOCABULARY_SIZE - FIRST_TEXT_TOKEN_ID)

    def _proposals(self, step: _Step) -> dict[str, list[int]] | None:
        """Drafts for the step's requests that go on decoding: the worker's; or else as many as a
        drafter makes, and up to as many without one."""
        if isinstance(step.executed, Executed):
            return step.executed.drafts
        proposals = {}
        for request_id, drafts in step.drafts.items():
            count = 0 if drafts is None else self._max_drafts
            if not self._has_drafter:
                count = self._sample(request_id, 0) % (count + 1)
            proposals[request_id] = [FIRST_TEXT_TOKEN_ID] * count
        return proposals

    def _abort(self, event: Event) -> Json:
        if event["request"] not in self._scheduler.requests:
            return None
        self._ask(self._kit.abort, event["request"])
        return self._standing()

    def _reset(self, event: Event) -> Json:
        if not self._kit.resets:
            return None
        self._ask(self._scheduler.reset_encoder_cache)
        if self._kit.worker is not None:
            self._ask(self._kit.worker.reset)
        return True

    def _reload(self, event: Event) -> Json:
        assert self._kit.worker is not None
        self._ask(self._kit.worker.reload, event["version"])
        return True

    def _reset_prefix(self, event: Event) -> Json:
        if not event["running"]:
            return bool(self._ask(self._scheduler.reset_prefix_cache))
        try:
            signature(self._scheduler.reset_prefix_cache).bind(True)
        except TypeError:
            raise Illegal("running requests cannot start over") from None
        return bool(self._ask(self._scheduler.reset_prefix_cache, True))

    def _pause(self, event: Event) -> Json:
        self._ask(self._kit.pause, event["mode"])
        return True

    def _transfer(self, event: Event) -> Json:
        connector: EncoderTransfers | None = getattr(self._scheduler, "ec_connector", None)
        if connector is None:
            return None
        return connector.transfer(event["identifier"], event["state"])

    def _elsewhere(self, event: Event) -> Json:
        if self._kv_connector is None:
            return None
        self._kv_connector.elsewhere(event["request"], event["tokens"], event["later"])
        return True

    def _received(self, event: Event) -> Json:
        return self._kv_worker.end_load(event["request"], event["failed"]) or None

    def _sent(self, event: Event) -> Json:
        return self._kv_worker.end_sending(event["request"]) or None


def _has_ended(request: Request) -> bool:
    """Whether the request has ended, and is kept only for its blocks."""
    return bool(request.status.name.startswith("FINISHED"))


def _loads(request: Request) -> bool:
    """Whether the request waits for its KV."""
    return bool(request.status.name == "WAITING_FOR_REMOTE_KVS")


def prompt_token_ids(event: Event, *, has_placeholders: bool = True) -> list[int]:
    """The tokens of a prompt. All prompts are of one text, so that they share KV blocks wherever
    their items allow it. A decoder's prompt has no placeholders for its encoder's input."""
    token_ids = _TEXT[: event["prompt"]]
    token_ids += map(_text, range(len(token_ids), event["prompt"]))
    for item in event["items"] if has_placeholders else ():
        start, length = item["offset"], item["length"]
        token_ids[start : start + length] = [PLACEHOLDER_TOKEN_ID] * length
    return token_ids


def _text(position: int) -> int:
    """The token at a position of the text of all requests."""
    return FIRST_TEXT_TOKEN_ID + position % 1000


_TEXT = list(map(_text, range(1000)))
"""The beginning of the text of all requests: few prompts are longer."""


def _of_sessions(continued: list[list[Json]]) -> dict[str, Json]:
    """The part of an outcome about sessions that went on; empty where none did."""
    return {"continued": continued} if continued else {}
