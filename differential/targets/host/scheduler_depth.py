"""A release's real Scheduler as what a `SchedulerSession` drives."""

import functools
from collections.abc import Callable
from typing import Any

import numpy
from vllm.multimodal.inputs import PlaceholderRange
from vllm.v1.core import encoder_cache_manager
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from .kv_transfers import Report
from .protocol import Event, Illegal
from .recorder import Recorder
from .scheduler_build import call_known, encoder_budget, engine_for, make_scheduler, parameters
from .scheduler_requests import RequestMaker, item_size
from .scheduler_session import SchedulerKit

try:
    from vllm.v1.outputs import DraftTokenIds
except ImportError:
    DraftTokenIds = None


def build(
    trace: Event,
    make_manager: Callable[[int], Any],
    make_kv_cache_manager: Callable[..., Any] | None = None,
) -> SchedulerKit:
    """The scheduler of a trace, around the manager that `make_manager(cache_size)` makes, and the
    KV cache manager that `make_kv_cache_manager` makes of what the release's own is made of.

    The whole trace is needed: its largest item stands for the model's largest, on which the
    release's budgets depend. Raises Illegal where the release refuses the configuration.
    """
    config = trace["header"]["config"]
    encoder_decoder = trace["header"]["manager"] == "encoder_decoder"
    engine = engine_for(config, encoder_decoder=encoder_decoder)
    sizes = [item_size(item) for event in trace["events"] for item in event.get("items", ())]
    largest = max(sizes, default=0)
    compute_budget, cache_size = encoder_budget(engine, config, largest)
    manager = make_manager(cache_size)
    recorder = Recorder(manager)
    scheduler = make_scheduler(
        engine,
        manager,
        compute_budget,
        v2=config["v2_model_runner"],
        longest_encoder_input=largest if encoder_decoder else None,
        make_kv_cache_manager=make_kv_cache_manager,
    )

    def update(
        output: Any, sampled: dict[str, list[int]], report: Report | None
    ) -> list[tuple[str, int, bool]]:
        answers = scheduler.update_from_output(output, _executed(sampled, report))
        return [
            (answer.request_id, len(answer.new_token_ids), answer.finish_reason is not None)
            for client in answers.values()
            for answer in client.outputs
        ]

    return SchedulerKit(
        scheduler,
        recorder,
        RequestMaker(engine, cache_size, encoder_decoder=encoder_decoder).make,
        update,
        lambda request: scheduler.finish_requests(request, RequestStatus.FINISHED_ABORTED),
        functools.partial(_propose, scheduler),
        functools.partial(_pause, scheduler),
        RequestStatus.PREEMPTED,
        hasattr(scheduler, "reset_encoder_cache"),
    )


def _propose(scheduler: Any, drafts: dict[str, list[int]]) -> None:
    if DraftTokenIds is None:
        raise Illegal("drafts are not taken apart from a step's output")
    scheduler.update_draft_token_ids(DraftTokenIds(list(drafts), list(drafts.values())))


def _pause(scheduler: Any, mode: str) -> None:
    if not hasattr(scheduler, "set_pause_state"):
        raise Illegal("scheduling cannot be paused")
    states = {"new": "PAUSED_NEW", "all": "PAUSED_ALL", "none": "UNPAUSED"}
    scheduler.set_pause_state(type(scheduler.pause_state)[states[mode]])


def _executed(sampled: dict[str, list[int]], report: Report | None) -> Any:
    """What the model runner would return: every scheduled request, aborted ones too."""
    return call_known(
        ModelRunnerOutput,
        kv_connector_output=None if report is None else _reported(report),
        req_ids=list(sampled),
        req_id_to_index={request_id: index for index, request_id in enumerate(sampled)},
        sampled_token_ids=[_in_its_form(tokens) for tokens in sampled.values()],
        spec_token_ids=None,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )


_TAKES_ARRAYS = "ndarray" in str(ModelRunnerOutput.__annotations__["sampled_token_ids"])
"""0.11.1 and 0.11.2 are handed an array of token ids for each request, all others a list."""


def _in_its_form(tokens: list[int]) -> Any:
    return numpy.array(tokens, dtype=numpy.int64) if _TAKES_ARRAYS else list(tokens)


def _reported(report: Report) -> Any:
    if report.invalid and "invalid_block_ids" not in parameters(KVConnectorOutput):
        raise Illegal("no load may fail")
    return call_known(
        KVConnectorOutput,
        finished_sending={report.sent} - {None},
        finished_recving={report.received} - {None},
        invalid_block_ids=set(report.invalid),
    )


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
