"""A release's real Scheduler, made for a `SchedulerSession` to drive."""

import functools
from collections.abc import Callable

import numpy
from numpy.typing import NDArray
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import RequestStatus

from ..protocol import Event, Illegal
from ..release_calls import call_known, parameters
from ..vllm_objects.encoder_cache import EncoderCacheManager
from ..vllm_objects.kv_cache import KVCacheManager
from ..vllm_objects.scheduler import Scheduler, SchedulerOutput
from .build import engine_for, make_scheduler
from .kv_transfers import TransferReport
from .recorder import Recorder
from .requests import RequestMaker, item_size
from .session import SchedulerKit

try:
    from vllm.v1.outputs import DraftTokenIds
except ImportError:
    DraftTokenIds = None


def build(
    trace: Event,
    plant: Callable[[EncoderCacheManager], None],
    make_manager: Callable[[int], EncoderCacheManager] | None = None,
    make_kv_cache_manager: Callable[..., KVCacheManager] | None = None,
) -> SchedulerKit:
    """The scheduler of a trace, with the managers that it makes; or with the one that
    `make_manager(cache_size)` makes, or the KV cache manager that `make_kv_cache_manager` makes of
    what the release's own is made of. `plant` changes the manager of its encoder cache, if a fault
    is asked for.

    The whole trace is needed: its largest item stands for the model's largest, on which the
    release's budgets depend. Raises Illegal where the release refuses the configuration.
    """
    config = trace["header"]["config"]
    encoder_decoder = trace["header"]["manager"] == "encoder_decoder"
    engine = engine_for(config, encoder_decoder=encoder_decoder)
    sizes = [item_size(item) for event in trace["events"] for item in event.get("items", ())]
    largest = max(sizes, default=0)
    scheduler = make_scheduler(
        engine,
        config,
        largest,
        encoder_decoder=encoder_decoder,
        make_manager=make_manager,
        make_kv_cache_manager=make_kv_cache_manager,
    )
    manager = scheduler.encoder_cache_manager
    plant(manager)

    def update(
        output: SchedulerOutput, sampled: dict[str, list[int]], report: TransferReport | None
    ) -> list[tuple[str, int, bool]]:
        answers = scheduler.update_from_output(output, _executed(sampled, report))
        return [
            (answer.request_id, len(answer.new_token_ids), answer.finish_reason is not None)
            for client in answers.values()
            for answer in client.outputs
        ]

    return SchedulerKit(
        scheduler,
        Recorder(manager),
        RequestMaker(engine, manager.cache_size, encoder_decoder=encoder_decoder).make,
        update,
        lambda request: scheduler.finish_requests([request], RequestStatus.FINISHED_ABORTED),
        functools.partial(_propose, scheduler),
        functools.partial(_pause, scheduler),
        RequestStatus.PREEMPTED,
        hasattr(scheduler, "reset_encoder_cache"),
    )


def _propose(scheduler: Scheduler, drafts: dict[str, list[int]]) -> None:
    if DraftTokenIds is None:
        raise Illegal("drafts are not taken apart from a step's output")
    scheduler.update_draft_token_ids(DraftTokenIds(list(drafts), list(drafts.values())))


def _pause(scheduler: Scheduler, mode: str) -> None:
    if not hasattr(scheduler, "set_pause_state"):
        raise Illegal("scheduling cannot be paused")
    states = {"new": "PAUSED_NEW", "all": "PAUSED_ALL", "none": "UNPAUSED"}
    scheduler.set_pause_state(type(scheduler.pause_state)[states[mode]])


def _executed(sampled: dict[str, list[int]], report: TransferReport | None) -> ModelRunnerOutput:
    """The output that a model runner would return: of every scheduled request, aborted ones too."""
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
"""Whether the release takes an array of token ids for each request, as 0.11.1 and 0.11.2 do; all
others take a list."""


def _in_its_form(tokens: list[int]) -> list[int] | NDArray[numpy.int64]:
    return numpy.array(tokens, dtype=numpy.int64) if _TAKES_ARRAYS else list(tokens)


def _reported(report: TransferReport) -> KVConnectorOutput:
    if report.invalid and "invalid_block_ids" not in parameters(KVConnectorOutput):
        raise Illegal("no load may fail")
    return call_known(
        KVConnectorOutput,
        finished_sending=report.sent and {report.sent},
        finished_recving=report.received and {report.received},
        invalid_block_ids=set(report.invalid),
    )
