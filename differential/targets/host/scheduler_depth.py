"""Drives a release's real Scheduler with engine-level events, as its engine core would.

The engine's side is played by this session: it makes the requests, keeps up to two scheduler
outputs in flight (one without asynchronous scheduling), samples a token wherever a step reaches
the end of what is known of a request, and hands the outputs back in order. Nothing is decided
here that the release decides.
"""

import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from vllm.multimodal.inputs import PlaceholderRange
from vllm.v1.core import encoder_cache_manager
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from .protocol import Event, HostError, Illegal
from .recorder import Recorder
from .scheduler_build import (
    VOCABULARY_SIZE,
    call_known,
    encoder_budget,
    engine_for,
    make_encoder_cache_manager,
    make_scheduler,
)
from .scheduler_requests import FIRST_TEXT_TOKEN_ID, RequestMaker, item_size

_WAITING_QUEUES = ("kv_holding_waiting", "skipped_waiting", "waiting")


class _Step(NamedTuple):
    """A scheduler output in flight, with the tokens that its execution will sample."""

    output: Any
    sampled: dict[str, list[int]]


class SchedulerSession:
    """One trace's scheduler. `apply` takes an event and returns its outcome, None for a no-op.

    Raises Illegal where the release refuses the configuration or a request, HostError where this
    driver is at fault; whatever the release itself raises while it runs comes out unchanged.
    """

    def __init__(
        self,
        trace: Event,
        make_manager: Callable[[int], Any] | None = None,
        make_recorder: Callable[[Any], Any] = Recorder,
    ) -> None:
        """The whole trace is needed: its largest item stands for the model's largest, on which
        the release's budgets depend. `make_manager(cache_size)` puts another manager in the place
        of the release's own."""
        header = trace["header"]
        if header["manager"] != "encoder_cache":
            raise Illegal(f"the {header['manager']} manager is not driven at scheduler depth")
        config = header["config"]
        engine = engine_for(config)
        sizes = [
            item_size(item)
            for event in trace["events"]
            if event["event"] == "add"
            for item in event["items"]
        ]
        compute_budget, cache_size = encoder_budget(engine, config, max(sizes, default=0))
        if make_manager is None:
            manager = make_encoder_cache_manager(engine, cache_size)
        else:
            manager = make_manager(cache_size)
        self.recorder = make_recorder(manager)
        self._scheduler = make_scheduler(engine, manager, compute_budget)
        self._requests = RequestMaker(engine, cache_size)
        self._in_flight: deque[_Step] = deque()
        self._max_in_flight = 2 if config["async_scheduling"] else 1
        self._release_error: Exception | None = None
        self._handlers: dict[str, Callable[[Event], Any]] = {
            "add": self._add,
            "schedule": self._schedule,
            "update": self._update,
            "abort": self._abort,
            "reset": self._reset,
            "reset_prefix": self._reset_prefix,
        }

    def apply(self, event: Event) -> Any:
        """The event's outcome, ready for JSON."""
        try:
            return self._handlers[event["event"]](event)
        except (Illegal, HostError):
            raise
        except Exception as error:
            if error is self._release_error:
                raise
            raise HostError(f"{event['event']}: {type(error).__name__}: {error}") from error

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the release; what it raises is its own and not this driver's."""
        try:
            return function(*arguments)
        except Exception as error:
            self._release_error = error
            raise

    def _queues(self) -> dict[str, list[str]]:
        scheduler = self._scheduler
        return {
            "running": [request.request_id for request in scheduler.running],
            "waiting": [
                request.request_id
                for name in _WAITING_QUEUES
                for request in getattr(scheduler, name, ())
            ],
        }

    def _add(self, event: Event) -> Any:
        if self._requests.knows(event["request"]):
            return None
        self._ask(self._scheduler.add_request, self._requests.make(event))
        return self._queues()

    def _schedule(self, event: Event) -> Any:
        if len(self._in_flight) == self._max_in_flight:
            return None
        requests = self._scheduler.requests
        was_running = list(self._scheduler.running)
        was_preempted = {
            request_id
            for request_id, request in requests.items()
            if request.status == RequestStatus.PREEMPTED
        }
        unsampled = {
            request_id: request.num_output_placeholders for request_id, request in requests.items()
        }
        output = self._ask(self._scheduler.schedule)
        started = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        computed = {**started, **dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))}
        scheduled = dict(output.num_scheduled_tokens)
        # 0.11 and before leave a request in `scheduled` that they preempt later in the same step.
        sampled: dict[str, list[int]] = {request_id: [] for request_id in scheduled}
        for request_id in computed:
            end = computed[request_id] + scheduled[request_id]
            if end >= requests[request_id].num_tokens + unsampled[request_id]:
                sampled[request_id].append(_sample(request_id, end))
        self._in_flight.append(_Step(output, sampled))
        return {
            "scheduled": scheduled,
            "computed": computed,
            "encode": {
                request_id: list(inputs)
                for request_id, inputs in output.scheduled_encoder_inputs.items()
            },
            "notices": _notices(output),
            # The two model runners get resumed requests under different headings.
            "new": [request_id for request_id in started if request_id not in was_preempted],
            "resumed": [request_id for request_id in computed if request_id in was_preempted],
            "preempted": sorted(
                request.request_id
                for request in was_running
                if request.status == RequestStatus.PREEMPTED
            ),
            "finished": sorted(output.finished_req_ids),
            **self._queues(),
        }

    def _update(self, event: Event) -> Any:
        if not self._in_flight:
            return None
        sampled: dict[str, int] = {}
        finished: list[str] = []
        for _ in range(min(event["steps"], len(self._in_flight))):
            step = self._in_flight.popleft()
            answers = self._ask(
                self._scheduler.update_from_output, step.output, _executed(step.sampled)
            )
            for answer in (answer for client in answers.values() for answer in client.outputs):
                count = sampled.get(answer.request_id, 0)
                sampled[answer.request_id] = count + len(answer.new_token_ids)
                if answer.finish_reason is not None:
                    finished.append(answer.request_id)
        return {"sampled": sampled, "finished": sorted(finished), **self._queues()}

    def _abort(self, event: Event) -> Any:
        if event["request"] not in self._scheduler.requests:
            return None
        self._ask(self._scheduler.finish_requests, event["request"], RequestStatus.FINISHED_ABORTED)
        return self._queues()

    def _reset(self, event: Event) -> Any:
        if not hasattr(self._scheduler, "reset_encoder_cache"):
            return None
        self._ask(self._scheduler.reset_encoder_cache)
        return True

    def _reset_prefix(self, event: Event) -> Any:
        return bool(self._ask(self._scheduler.reset_prefix_cache))


def _sample(request_id: str, position: int) -> int:
    """The token at a position: the same whenever it is sampled, and never the end of the text."""
    digest = zlib.crc32(f"{request_id}@{position}".encode())
    return FIRST_TEXT_TOKEN_ID + digest % (VOCABULARY_SIZE - FIRST_TEXT_TOKEN_ID)


def _executed(sampled: dict[str, list[int]]) -> Any:
    """What the model runner would return: every scheduled request, aborted ones too."""
    return call_known(
        ModelRunnerOutput,
        req_ids=list(sampled),
        req_id_to_index={request_id: index for index, request_id in enumerate(sampled)},
        sampled_token_ids=[list(tokens) for tokens in sampled.values()],
        spec_token_ids=None,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )


def _notices(output: Any) -> list[str]:
    if hasattr(output, "free_encoder_mm_hashes"):
        return list(output.free_encoder_mm_hashes)
    return [f"{request_id}#{input_id}" for request_id, input_id in output.free_encoder_input_ids]


_MODELLED_MODULE_FUNCTIONS = ("compute_encoder_budget", "compute_mm_encoder_budget")
_MODELLED_METHODS: dict[type, tuple[str, ...]] = {
    Scheduler: (
        "add_request",
        "schedule",
        "_try_schedule_encoder_inputs",
        "_allocate_encoder_inputs",
        "_reject_on_encoder_cache_embed_mismatch",
        "_preempt_request",
        "_update_after_schedule",
        "update_from_output",
        "_update_request_with_output",
        "_free_encoder_inputs",
        "_free_encoder_input",
        "finish_requests",
        "_free_request",
        "reset_encoder_cache",
        "reset_prefix_cache",
    ),
    AsyncScheduler: ("_update_after_schedule", "_update_request_with_output"),
    KVCacheManager: ("get_computed_blocks", "allocate_slots", "free"),
    Request: ("get_num_encoder_tokens", "get_num_encoder_embeds"),
    PlaceholderRange: ("get_num_embeds", "get_embeds_indices_in_range"),
}


def modelled_functions() -> list[tuple[str, Any]]:
    """The functions of this release whose behaviour the product models, by name."""
    module = encoder_cache_manager
    found = [
        (f"{module.__name__}:{name}", getattr(module, name))
        for name in _MODELLED_MODULE_FUNCTIONS
        if hasattr(module, name)
    ]
    managers = {
        manager: tuple(vars(manager))
        for name in ("EncoderCacheManager", "EncoderDecoderCacheManager")
        if (manager := getattr(module, name, None)) is not None
    }
    for owner, names in {**managers, **_MODELLED_METHODS}.items():
        for name in names:
            function = _unwrapped(vars(owner).get(name))
            if hasattr(function, "__code__"):
                found.append((f"{owner.__module__}:{owner.__qualname__}.{name}", function))
    return found


def _unwrapped(member: Any) -> Any:
    """The function behind a class method, a property or a cached property."""
    for attribute in ("__func__", "fget", "func"):
        member = getattr(member, attribute, member)
    return member
