"""Drives a release's real Scheduler with engine-level events, as its engine core would.

The engine's side is played by this session: it makes the requests, keeps up to two scheduler
outputs in flight (one without asynchronous scheduling), samples a token wherever a step reaches
the end of what is known of a request, and hands the outputs back in order. Nothing is decided
here that the release decides.
"""

import functools
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from vllm.multimodal.inputs import MultiModalKwargsItem, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.core import encoder_cache_manager
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import FinishReason
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from .protocol import Event, HostError, Illegal
from .recorder import Recorder
from .scheduler_build import (
    EOS_TOKEN_ID,
    VOCABULARY_SIZE,
    call_known,
    encoder_budget,
    engine_for,
    make_encoder_cache_manager,
    make_scheduler,
    prompt_validator,
    refusal,
)

try:
    from vllm.multimodal.inputs import MultiModalFeatureSpec
except ImportError:
    MultiModalFeatureSpec = None

import torch

_PLACEHOLDER_TOKEN_ID = 3
_FIRST_TEXT_TOKEN_ID = 10
_COUNTS_EMBEDS = hasattr(Request, "get_num_encoder_embeds")
_QUEUES = ("kv_holding_waiting", "skipped_waiting", "waiting")


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
        header: Event,
        events: Iterable[Event],
        make_manager: Callable[[int, str], Any] | None = None,
        make_recorder: Callable[[Any], Any] = Recorder,
    ) -> None:
        """`events` is the whole trace: its largest item is the model's largest, which the release
        needs for its budgets. `make_manager(cache_size, "features" or "positions")` puts another
        manager in the place of the release's own; the word says how its requests carry items."""
        if header["manager"] != "encoder_cache":
            raise Illegal(f"the {header['manager']} manager is not driven at scheduler depth")
        config = header["config"]
        engine = engine_for(config)
        sizes = [
            _size(_placeholder(item))
            for event in events
            if event["event"] == "add"
            for item in event["items"]
        ]
        compute_budget, cache_size = encoder_budget(engine, config, max(sizes, default=0))
        if make_manager is None:
            manager = make_encoder_cache_manager(engine, cache_size)
        else:
            manager = make_manager(cache_size, "features" if MultiModalFeatureSpec else "positions")
        self.recorder = make_recorder(manager)
        self._scheduler = make_scheduler(engine, manager, compute_budget)
        self._validate_prompt = prompt_validator(engine, cache_size)
        self._block_hasher = engine.block_hasher
        self._in_flight: deque[_Step] = deque()
        self._max_in_flight = 2 if config["async_scheduling"] else 1
        self._arrivals: dict[str, float] = {}
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
                for name in _QUEUES
                if hasattr(scheduler, name)
                for request in getattr(scheduler, name)
            ],
        }

    def _add(self, event: Event) -> Any:
        request_id = event["request"]
        if request_id in self._arrivals:
            return None
        placeholders = _placeholders(event)
        token_ids = _prompt_token_ids(event)
        self._validate_prompt(token_ids, placeholders)
        self._arrivals[request_id] = float(len(self._arrivals) + 1)
        request = _make_request(
            event, token_ids, placeholders, self._arrivals[request_id], self._block_hasher
        )
        self._ask(self._scheduler.add_request, request)
        return self._queues()

    def _schedule(self, event: Event) -> Any:
        if len(self._in_flight) == self._max_in_flight:
            return None
        scheduler = self._scheduler
        was_running = list(scheduler.running)
        was_preempted = {
            request_id
            for request_id, request in scheduler.requests.items()
            if request.status == RequestStatus.PREEMPTED
        }
        placeholders = {
            request_id: request.num_output_placeholders
            for request_id, request in scheduler.requests.items()
        }
        output = self._ask(scheduler.schedule)
        started = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        computed = {**started, **dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))}
        scheduled = dict(output.num_scheduled_tokens)
        sampled = {}
        for request_id, count in scheduled.items():
            end = computed[request_id] + count
            known = scheduler.requests[request_id].num_tokens + placeholders[request_id]
            sampled[request_id] = [_sample(request_id, end)] if end >= known else []
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
            outputs = self._ask(
                self._scheduler.update_from_output, step.output, _executed(step.sampled)
            )
            for client in outputs.values():
                for output in client.outputs:
                    count = sampled.get(output.request_id, 0)
                    sampled[output.request_id] = count + len(output.new_token_ids)
                    if output.finish_reason is not None:
                        finished.append(output.request_id)
        return {"sampled": sampled, "finished": sorted(finished), **self._queues()}

    def _abort(self, event: Event) -> Any:
        if event["request"] not in self._scheduler.requests:
            return None
        self._ask(
            self._scheduler.finish_requests, event["request"], RequestStatus.FINISHED_ABORTED
        )
        return self._queues()

    def _reset(self, event: Event) -> Any:
        if not hasattr(self._scheduler, "reset_encoder_cache"):
            return None
        self._ask(self._scheduler.reset_encoder_cache)
        return True

    def _reset_prefix(self, event: Event) -> Any:
        return bool(self._ask(self._scheduler.reset_prefix_cache))


def _prompt_token_ids(event: Event) -> list[int]:
    """One text for everybody: prompts share KV blocks wherever their items allow it."""
    token_ids = [_FIRST_TEXT_TOKEN_ID + position % 1000 for position in range(event["prompt"])]
    for item in event["items"]:
        token_ids[item["offset"] : item["offset"] + item["length"]] = [
            _PLACEHOLDER_TOKEN_ID
        ] * item["length"]
    return token_ids


def _sample(request_id: str, position: int) -> int:
    """The token at a position: the same whenever it is sampled, and never the end of the text."""
    digest = zlib.crc32(f"{request_id}@{position}".encode())
    return _FIRST_TEXT_TOKEN_ID + digest % (VOCABULARY_SIZE - _FIRST_TEXT_TOKEN_ID)


def _placeholder(item: Event) -> Any:
    mask = item["is_embed"]
    return PlaceholderRange(
        offset=item["offset"],
        length=item["length"],
        is_embed=None if mask is None else torch.tensor(mask, dtype=torch.bool),
    )


def _placeholders(event: Event) -> list[Any]:
    """The items' placeholders; no processor of any release makes them overlap or leave the prompt."""
    end = 0
    for index, item in enumerate(event["items"]):
        if item["offset"] < end or item["length"] < 1:
            raise Illegal(f"item {index} of {event['request']} is empty or not after the one before")
        end = item["offset"] + item["length"]
        if end > event["prompt"]:
            raise Illegal(f"item {index} of {event['request']} ends behind the prompt")
        if item["is_embed"] is not None and len(item["is_embed"]) != item["length"]:
            raise Illegal(f"item {index} of {event['request']} has a mask of another length")
    return [_placeholder(item) for item in event["items"]]


def _size(placeholder: Any) -> int:
    """Encoder cache slots of an item, in the unit of this release."""
    if not _COUNTS_EMBEDS:
        return placeholder.length
    embeds = placeholder.get_num_embeds
    return int(embeds() if callable(embeds) else embeds)


@functools.cache
def _media() -> Any:
    return call_known(MultiModalKwargsItem.dummy, modality="image", nbytes=1)


def _make_request(
    event: Event,
    token_ids: list[int],
    placeholders: list[Any],
    arrival_time: float,
    block_hasher: Callable[[Any], list[Any]],
) -> Any:
    items = event["items"]
    if MultiModalFeatureSpec is None:
        carried: dict[str, Any] = {
            "multi_modal_kwargs": [_media() for _ in items],
            "multi_modal_hashes": [item["identifier"] for item in items],
            "multi_modal_placeholders": placeholders,
        }
    else:
        carried = {
            "mm_features": [
                call_known(
                    MultiModalFeatureSpec,
                    data=_media(),
                    modality="image",
                    identifier=item["identifier"],
                    mm_position=placeholder,
                    mm_hash=item["mm_hash"],
                )
                for item, placeholder in zip(items, placeholders, strict=True)
            ]
        }
    try:
        sampling_params = SamplingParams(
            max_tokens=event["max_tokens"], ignore_eos=True, temperature=0
        )
    except ValueError as error:
        raise Illegal(refusal(error)) from error
    return call_known(
        Request,
        request_id=event["request"],
        prompt_token_ids=token_ids,
        sampling_params=sampling_params,
        pooling_params=None,
        eos_token_id=EOS_TOKEN_ID,
        arrival_time=arrival_time,
        priority=event["priority"],
        block_hasher=block_hasher,
        **carried,
    )


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


def modelled_functions() -> list[tuple[str, Any]]:
    """Release functions whose behaviour the product models, by name, where this release has them."""
    owners = {
        encoder_cache_manager: ("compute_encoder_budget", "compute_mm_encoder_budget"),
        encoder_cache_manager.EncoderCacheManager: None,
        getattr(encoder_cache_manager, "EncoderDecoderCacheManager", object): None,
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
    found = []
    for owner, names in owners.items():
        if owner is object:
            continue
        prefix = owner.__name__ if not isinstance(owner, type) else (
            f"{owner.__module__}:{owner.__qualname__}"
        )
        separator = "." if isinstance(owner, type) else ":"
        for name in names or [name for name in vars(owner) if name != "__doc__"]:
            function = vars(owner).get(name)
            function = getattr(function, "__func__", getattr(function, "fget", function))
            if callable(function):
                found.append((f"{prefix}{separator}{name}", function))
    return found
