"""The real engine: its scheduler's steps are executed by its own worker, with a model.

Started as `PYTHON <this folder> host.engine.engine` in the environment of an engine. One engine
core is made for all traces, as `LLM` makes it; for each trace it gets a scheduler of the trace's
configuration, through the release's own classes. Prompts pass the engine's own input processing,
and their media its processor: what a request's items are is the release's word.
"""

import copy
import dataclasses
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import vllm
from vllm import LLM, SamplingParams
from vllm.config import SchedulerConfig
from vllm.lora.request import LoRARequest
from vllm.v1.core import encoder_cache_manager
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from ..faults.engine.changes import CHANGES, of_the_release
from ..faults.engine.engine import ENGINE_FAULTS
from ..faults.engine.planted import Planted
from ..media_inputs import (
    GIVEN_TOKEN_ID,
    collapsed,
    embeddings_of,
    is_given,
    medium_of,
    name_of,
    prompt_embeds_of,
    row_names_of,
    token_ids_of,
)
from ..package import ours
from ..protocol import Event, HostError, Illegal, Json, Plain, Protocol
from ..scheduler.build import REFUSALS, refusal
from ..scheduler.executed import Executed
from ..scheduler.kv_transfers import TransferReport
from ..scheduler.media import with_media
from ..scheduler.recorder import Recorder
from ..scheduler.session import STOP_TOKEN_ID, SchedulerKit, SchedulerSession
from ..scheduler.settings import LATER, settings_of
from ..session import run_events
from ..vllm_objects.worker import LogprobsLists
from .adapter_files import adapter_directory
from .adapters import adapters_of, leave_rows_without_adapter_alone
from .cross_attention import attend_to_rows_alone
from .drafts import DraftsOfFirstRunner, DraftsOfSecondRunner, drafts_of, speculative_config
from .embedded import know_tokens_of_embeddings, mark_sampled_tokens
from .in_flight import keeping_async_scheduling, stand_in_for_streams
from .items import Names, check_counts, check_items
from .kernels import mend_kernels_of_drafts, register_kernels_once
from .kv_cache_groups import check_groups, groups_of, planned
from .limits import ADAPTER_RANK_MAX, BLOCK_SIZE, ITEMS_MAX, LIMITS, MAX_ADAPTERS, MODELS_SETTING
from .memory import blank, memory_of
from .operations import has_compiled_parts, register_missing, require
from .runners import FirstRunner, ModelRunner, SecondRunner, is_second
from .weights import load_weights

if TYPE_CHECKING:
    from torch import Tensor


class EngineHost:
    """Runs engine-depth traces on this interpreter's engine."""

    def __init__(self) -> None:
        if os.environ.get("PYTHONHASHSEED") != "0":
            raise HostError("PYTHONHASHSEED must be 0: set order would differ between runs")
        register_missing()
        register_kernels_once()
        mend_kernels_of_drafts()
        self.protocol = Protocol.detect(
            encoder_cache_manager.EncoderCacheManager, Request, Scheduler
        )

    def hello(self, plug_in: str | None) -> dict[str, Json]:
        """Versions, and flags of the call protocol."""
        return {
            "python": sys.version.split()[0],
            "vllm": vllm.__version__,
            "protocol": self.protocol._asdict(),
        }

    def run(self, request: Plain) -> Iterator[dict[str, object]]:
        """One result per trace of the batch, in order."""
        for trace in request["traces"]:
            yield _run_trace(trace, request.get("fault"))


def _run_trace(trace: Event, fault: str | None) -> dict[str, object]:
    config = trace["header"]["config"]
    if trace["header"]["depth"] != "engine":
        raise HostError(f"a {trace['header']['depth']}-depth trace for an engine")
    try:
        core = _Core.of(
            config["model"],
            config["video_pruning_rate"],
            drafts_of(config),
            adapters_of(config),
            is_asynchronous=config["async_scheduling"],
            takes_embeddings=config["prompt_embeds"],
        )
    except Illegal as reason:
        return {"records": [], "illegal": str(reason)}
    except ValueError as error:  # a configuration that the release does not take
        return {"records": [], "illegal": refusal(error)}
    try:
        core.check(trace["header"]["manager"])
        kit = core.kit(config, _largest_item(trace))
        for planted in (*(of_the_release(config) if config["as_released"] else ()), fault):
            if planted is not None:
                core.plant(planted)
        session = SchedulerSession(kit, config)
        records = run_events(session, trace["events"])
    except Illegal as reason:
        return {"records": [], "illegal": str(reason)}
    finally:  # the core is that of later traces too
        core.clear()
    return {"records": records, "capacity": session.recorder.manager.cache_size}


class _Core:
    """An engine with a model, made once for all traces; the worker's side of a session."""

    @classmethod
    @functools.cache
    def of(
        cls,
        model: str,
        video_pruning_rate: float,
        drafts: str | None,
        adapters: str | None,
        **how: bool,
    ) -> "_Core":
        return cls(model, video_pruning_rate, drafts, adapters, **how)

    def __init__(
        self,
        model: str,
        video_pruning_rate: float,
        drafts: str | None,
        adapters: str | None,
        *,
        is_asynchronous: bool,
        takes_embeddings: bool,
    ) -> None:
        self._model = model
        self._is_asynchronous = is_asynchronous
        made = functools.partial(
            ours("gpu_runner.tiny_models").ensure, folder=Path(os.environ[MODELS_SETTING])
        )
        self._directory = made(model)
        beside: dict[str, object] = {}
        if adapters is not None:
            leave_rows_without_adapter_alone()
            beside |= {
                "enable_lora": True,
                "max_loras": MAX_ADAPTERS,
                "max_lora_rank": ADAPTER_RANK_MAX,
                "enable_tower_connector_lora": adapters == "towers",
            }
        if drafts is not None:
            drafter = made("drafter") if drafts == "drafter" else None
            beside["speculative_config"] = speculative_config(drafter)
        if model == "whisper" and has_compiled_parts():
            attend_to_rows_alone()
        # Both wait for copies by streams of CUDA, which a CPU does not have.
        if is_asynchronous or drafts is not None:
            stand_in_for_streams()
        with keeping_async_scheduling():
            llm = LLM(
                model=str(self._directory),
                dtype="float32",
                seed=0,
                enforce_eager=True,
                block_size=BLOCK_SIZE,
                max_model_len=LIMITS["max_model_len"],
                max_num_seqs=LIMITS["max_num_seqs"],
                max_num_batched_tokens=LIMITS["max_num_batched_tokens"],
                num_gpu_blocks_override=LIMITS["num_blocks"],
                limit_mm_per_prompt=ITEMS_MAX[model],
                enable_prompt_embeds=takes_embeddings,
                video_pruning_rate=video_pruning_rate or None,
                enable_prefix_caching=None,  # as the model allows
                async_scheduling=is_asynchronous,
                # By its class: releases before 0.23 take its name for that of another on CPUs.
                distributed_executor_backend=UniProcExecutor,
                disable_log_stats=True,
                **beside,
            )
        self._engine = llm.llm_engine
        self._core = self._engine.engine_core.engine_core
        self._is_decoder = self._core.vllm_config.model_config.is_encoder_decoder
        self._hidden_size = self._core.vllm_config.model_config.get_hidden_size()
        self._hasher = self._core.request_block_hasher
        self._runner = self._core.model_executor.driver_worker.worker.model_runner
        self._worker: ModelRunner = (
            SecondRunner(self._runner)
            if is_second()
            else FirstRunner(self._runner, prunes=video_pruning_rate > 0)
        )
        if takes_embeddings and drafts is not None and not is_second():
            know_tokens_of_embeddings()
            mark_sampled_tokens(self._runner)
        self._is_reloaded = False
        self._executed: list[ModelRunnerOutput] = []
        self._names = Names(are_drawn=self._is_decoder)
        self._planted = Planted()
        replaced = DraftsOfSecondRunner if is_second() else DraftsOfFirstRunner
        self._drafts = replaced(self._runner) if drafts == "drafter" else None

    def check(self, manager: str) -> None:
        """Raises Illegal where the engine's model needs another manager."""
        own = "encoder_decoder" if self._is_decoder else "encoder_cache"
        if manager != own:
            raise Illegal(f"the engine's model wants the manager {own}")
        if self._is_decoder and is_second():
            raise Illegal("the second model runner keeps no store for an encoder-decoder")

    def kit(self, config: Event, largest_item: int) -> SchedulerKit:
        """Give the engine a scheduler of that configuration, as if no item of its model had more
        than `largest_item` embeddings. Raises Illegal where it is refused."""
        for name, most in LIMITS.items():
            if config[name] > most:
                raise Illegal(f"the engine was made for {name} up to {most}")
        if config["v2_model_runner"] != is_second():
            raise Illegal("the engine was made with the other model runner")
        if config["block_size"] != BLOCK_SIZE:
            raise Illegal(f"the engine was made for blocks of {BLOCK_SIZE}")
        for name, plain in LATER.items():
            if config[name] != plain:
                raise Illegal(f"the engine was made without {name}")
        check_groups(groups_of(self._core.scheduler.kv_cache_config), config)
        self._config = config
        try:
            scheduler = self._make_scheduler(config, largest_item)
        except REFUSALS as error:
            raise Illegal(refusal(error)) from error
        self._core.scheduler = scheduler
        self._core.request_block_hasher = self._hasher if config["prefix_caching"] else None
        self._names.clear()
        blank(self._runner.kv_caches)
        if self._drafts is not None:
            self._drafts.begin()
        return SchedulerKit(
            scheduler,
            Recorder(scheduler.encoder_cache_manager),
            self._make_request,
            self._update,
            lambda request: scheduler.finish_requests(request, RequestStatus.FINISHED_ABORTED),
            lambda drafts: scheduler.update_draft_token_ids(
                DraftTokenIds(list(drafts), list(drafts.values()))
            ),
            lambda mode: None,
            RequestStatus.PREEMPTED,
            hasattr(scheduler, "reset_encoder_cache"),
            self,
        )

    def _make_scheduler(self, config: Event, largest_item: int) -> Scheduler:
        """The scheduler that the engine core would have if made with that configuration."""
        base = self._core.vllm_config
        scheduler_config = SchedulerConfig(
            **settings_of(config),
            async_scheduling=self._is_asynchronous,
            is_multimodal_model=True,
            is_encoder_decoder=self._is_decoder,
        )
        scheduler_config.max_num_encoder_input_tokens = config["compute_budget"]
        scheduler_config.encoder_cache_size = config["capacity"]
        cache_config = dataclasses.replace(
            base.cache_config, enable_prefix_caching=config["prefix_caching"]
        )
        cache_config.num_gpu_blocks = config["num_blocks"]
        vllm_config = dataclasses.replace(
            base, scheduler_config=scheduler_config, cache_config=cache_config
        )
        scheduler_config.async_scheduling = self._is_asynchronous
        # Copies: the core's own are shared with the worker, and are those of later traces.
        # Slots for what is read ahead end where the model does.
        vllm_config.model_config = copy.copy(base.model_config)
        vllm_config.model_config.max_model_len = config["max_model_len"]
        if config["max_loras"]:
            vllm_config.lora_config = copy.copy(base.lora_config)
            vllm_config.lora_config.max_loras = config["max_loras"]
        old = self._core.scheduler
        with with_media(
            scheduler_module,
            vllm_config.model_config,
            largest_item,
            encoder_decoder=self._is_decoder,
        ) as media:
            return type(old)(
                vllm_config=vllm_config,
                kv_cache_config=planned(old.kv_cache_config, config),
                structured_output_manager=self._core.structured_output_manager,
                block_size=BLOCK_SIZE,
                hash_block_size=BLOCK_SIZE,
                log_stats=False,
                **media,
            )

    def _make_request(self, event: Event, arrival_time: float) -> Request:
        prompt = self._prompt(event)
        params = SamplingParams(
            max_tokens=event["max_tokens"],
            ignore_eos=True,
            stop_token_ids=[STOP_TOKEN_ID],
            temperature=0,  # outputs are compared: nothing may be drawn
            logprobs=2,  # by how much the best token leads over the second
            detokenize=False,
        )
        made = self._engine.input_processor.process_inputs(
            event["request"],
            prompt,
            params,
            self._engine.get_supported_tasks(),
            arrival_time=arrival_time,
            priority=event["priority"],
            lora_request=self._adapter(event["lora"]),
            resumable=event["resumable"],
        )
        self._names.put(made.mm_features, event)
        request, _ = self._core.preprocess_add_request(made)
        check_items(request, event)
        return request

    def _adapter(self, asked: Event | None) -> LoRARequest | None:
        """The adapter that a request asks for, by the directory where it lies."""
        if asked is None:
            return None
        found = adapter_directory(self._directory, asked, self._config)
        return LoRARequest(**{**asked, "lora_path": str(found)})

    def _prompt(self, event: Event) -> dict[str, object]:
        """The prompt as a user gives it: an encoder's input stands beside a decoder's."""
        data: dict[str, list[object]] = {}
        uuids: dict[str, list[str]] = {}
        given: list[Tensor] = []
        for item in event["items"]:
            if is_given(item):
                given.append(embeddings_of(item["identifier"], self._hidden_size))
                continue
            medium = medium_of(name_of(item))
            data.setdefault(medium.modality, []).append(medium.given)
            uuids.setdefault(medium.modality, []).append(name_of(item))
        check_counts(data, self._model)
        beside: dict[str, object] = {}
        if data:
            beside |= {"multi_modal_data": data, "multi_modal_uuids": uuids}
        if event["salt"] is not None:
            beside["cache_salt"] = event["salt"]
        if self._is_decoder:
            return {
                "encoder_prompt": {"prompt": "", **beside},
                "decoder_prompt": {
                    "prompt_token_ids": token_ids_of(event, self._model, has_placeholders=False)
                },
            }
        token_ids = collapsed(token_ids_of(event, self._model), event["items"])
        if event["embeds"]:
            beside["prompt_embeds"] = prompt_embeds_of(event, self._hidden_size)
            are_tokens = [name is None for name in row_names_of(event)]
            if any(are_tokens):
                beside |= {"prompt_token_ids": token_ids, "prompt_is_token_ids": are_tokens}
            return beside
        prompt = {"prompt_token_ids": token_ids, **beside}
        if given:  # as a chat's embeddings are handed on, which alone may have items beside them
            prompt["_prompt_embeds"] = given, GIVEN_TOKEN_ID
            return dict(self._engine.input_processor.renderer._process_tokens(prompt))
        return prompt

    def execute(self, output: SchedulerOutput) -> Executed:
        """Execute a step with the engine's worker."""
        if self._drafts is not None:
            self._drafts.tell(output)
        done = self._output_of(output)
        self._executed.append(done)
        tokens: dict[str, list[int]] = {}
        outputs: dict[str, list[list[float]]] = {}
        for request_id in output.num_scheduled_tokens:
            place = done.req_id_to_index[request_id]
            tokens[request_id] = list(map(int, done.sampled_token_ids[place]))
            if tokens[request_id]:
                outputs[request_id] = _with_logprobs(done.logprobs, place, tokens[request_id])
        entries = self._worker.store
        store = {name: len(rows) for name, rows in entries.items()}
        said = {"store": store, "memory": memory_of(entries.values())}
        return Executed(tokens, outputs, said, self._proposed(output))

    def _output_of(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """The worker's output of a step, waited for as the core does where steps are
        asynchronous."""
        executor = self._core.model_executor
        try:
            done = executor.execute_model(output, non_block=True).result()
            return executor.sample_tokens(None, non_block=True).result() if done is None else done
        except AttributeError as error:
            require(error)
            raise

    def _proposed(self, output: SchedulerOutput) -> dict[str, list[int]] | None:
        """The drafts that are proposed after the step; None where there are none, or where steps
        are asynchronous, and drafts stay with the worker."""
        if self._is_asynchronous or self._core.vllm_config.speculative_config is None:
            return None
        if not output.total_num_scheduled_tokens:
            return None  # nobody asks, as nothing was executed
        drafts = self._core.model_executor.take_draft_token_ids()
        if drafts is None:
            return None
        return {
            request_id: list(map(int, token_ids))
            for request_id, token_ids in zip(drafts.req_ids, drafts.draft_token_ids, strict=True)
        }

    def _update(
        self, output: SchedulerOutput, sampled: dict[str, list[int]], report: TransferReport | None
    ) -> list[tuple[str, int, bool]]:
        # Outputs are handed in in the order in which their steps were executed.
        answers = self._core.scheduler.update_from_output(output, self._executed.pop(0))
        return [
            (answer.request_id, len(answer.new_token_ids), answer.finish_reason is not None)
            for client in answers.values()
            for answer in client.outputs
        ]

    def plant(self, fault: str) -> None:
        """Plant a fault in the engine, until the trace has ended."""
        if fault in CHANGES:
            try:
                self._planted.make(CHANGES[fault](self._runner))
            except AttributeError as error:
                raise Illegal(f"{fault} is a fault of the other model runner: {error}") from error
            return
        self._worker.store = ENGINE_FAULTS[fault](self._worker.store)
        if self._is_decoder:  # whose worker hands on what it encoded, and never looks it up
            self._runner._execute_mm_encoder = self._encode_and_read

    def _encode_and_read(self, output: SchedulerOutput) -> list["Tensor | None"]:
        runner = self._runner
        type(runner)._execute_mm_encoder(runner, output)
        encoded = output.scheduled_encoder_inputs.items()
        return [rows for name, numbers in encoded for rows in self._worker.rows_of(name, numbers)]

    def reset(self) -> None:
        """Forget every encoder output."""
        self._runner.reset_encoder_cache()

    def reload(self, version: int) -> None:
        """Let the worker load the weights of a version, as a user does."""
        directory = ours("gpu_runner.tiny_weights").ensure(
            self._directory, version, self._directory.parent
        )
        load_weights(self._core.model_executor, self._runner.get_model(), directory)
        self._is_reloaded = True

    def clear(self) -> None:
        """End all of the worker's requests, and empty the store: a trace begins with nothing. Each
        trace has a scheduler of its own; the one before may have been left in the middle."""
        self._executed.clear()
        # An empty step: the worker drops its requests as it does for a scheduler.
        output = SchedulerOutput.make_empty()
        output.finished_req_ids = set(self._worker.requests)
        self._output_of(output)
        self._worker.store = {}
        self._worker.forget()
        vars(self._runner).pop("_execute_mm_encoder", None)
        self._planted.take_back()
        if self._is_reloaded:  # whichever version came last: a fault may have loaded another
            self.reload(0)
            self._is_reloaded = False
        if kept := self._worker.requests:
            raise HostError(f"the worker keeps requests: {', '.join(kept)}")


def _with_logprobs(logprobs: LogprobsLists, place: int, tokens: list[int]) -> list[list[float]]:
    """The tokens of the request at that place, each with its log probability and the lead of the
    best token over the second."""
    starts = logprobs.cu_num_generated_tokens
    first = place if starts is None else starts[place]
    rows = (map(float, row[:3]) for row in logprobs.logprobs[first : first + len(tokens)])
    return [
        [token, chosen, one - two] for token, (chosen, one, two) in zip(tokens, rows, strict=True)
    ]


def _largest_item(trace: Event) -> int:
    """Number of rows of the trace's largest item."""
    items = [item for event in trace["events"] for item in event.get("items", ())]
    return max((sum(item["is_embed"] or [item["length"]]) for item in items), default=0)


HOST = EngineHost
