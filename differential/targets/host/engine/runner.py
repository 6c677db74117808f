"""The torch runner: the reference's steps are executed by the product's own runner, with a model.

Started as `PYTHON <this folder> host.engine.runner` in an environment that has torch and
transformers, with the setting CACHEPROOF_REFERENCE: the flags of the reference's semantics, as
JSON.
"""

import functools
import importlib.util
import json
import os
import sys
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..by_name import joined
from ..faults.runner.adapters import ADAPTER_FAULTS, ADAPTER_KEY_FAULTS
from ..faults.runner.ahead import AHEAD_FAULTS
from ..faults.runner.audio import AUDIO_FAULTS
from ..faults.runner.cross_attention import CROSS_FAULTS, pairs_rows_by_place
from ..faults.runner.deepstack import DEEPSTACK_FAULTS
from ..faults.runner.embedded import EMBEDDED_FAULTS, EMBEDDED_KEY_FAULTS
from ..faults.runner.given import GIVEN_FAULTS
from ..faults.runner.groups import GROUP_FAULTS
from ..faults.runner.runner import ROTARY_FAULTS, RUNNER_FAULTS
from ..faults.runner.salt import SALT_FAULTS
from ..faults.runner.sessions import SESSION_FAULTS
from ..faults.runner.weights import RESET_FAULTS, WEIGHT_FAULTS
from ..managers.media_hash_alone import REFERENCE_SETTING
from ..media_inputs import (
    FRAMES_PER_SECOND,
    FRAMES_TOGETHER,
    ItemMedium,
    ItemSound,
    embeddings_of,
    is_given,
    medium_of,
    name_of,
    prompt_embeds_of,
    row_names_of,
)
from ..package import ours
from ..protocol import Event, HostError, Json, Plain
from ..scheduler.executed import Executed
from ..scheduler.session import SchedulerKit
from .limits import LOOKUP_LONGEST, MODELS_SETTING, NUM_DRAFTS
from .memory import memory_of
from .recalled_drafts import RecalledDrafts

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import ProcessorMixin

    from cacheproof.gpu_runner.adapters import LoadedAdapter
    from cacheproof.gpu_runner.models.base import MultiModalModel
    from cacheproof.gpu_runner.requests import PromptEmbeds, RequestState, RunnerPrompt
    from cacheproof.gpu_runner.runner import Runner
    from cacheproof.reference.scheduled_request import ScheduledRequest
    from cacheproof.reference.scheduler.output import SchedulerOutput
    from cacheproof.reference.semantics import Semantics

_FAULTS = joined(
    RUNNER_FAULTS,
    ROTARY_FAULTS,
    CROSS_FAULTS,
    DEEPSTACK_FAULTS,
    AUDIO_FAULTS,
    AHEAD_FAULTS,
    ADAPTER_FAULTS,
    WEIGHT_FAULTS,
    GIVEN_FAULTS,
    EMBEDDED_FAULTS,
    GROUP_FAULTS,
    SESSION_FAULTS,
)
_OF_ONE_MEDIUM = {
    "cohere2_vision": {"pixel_values"},
    "qwen2_5_vl": {"pixel_values", "pixel_values_videos"},
    "qwen3_vl": {"pixel_values", "pixel_values_videos"},
}
"""What a model's processor makes of a medium that is all of it, tiles or patches one after the
other; anything else is the first of a batch."""
_FAULTS_OF_KEYS = joined(SALT_FAULTS, ADAPTER_KEY_FAULTS, EMBEDDED_KEY_FAULTS)


class RunnerHost:
    """Runs engine-depth traces on the reference and the torch runner, with models on a device of
    torch."""

    def __init__(self, *, tagged: bool = True, device: str = "cpu") -> None:
        self._tagged = tagged
        self._device = device
        flags = json.loads(os.environ[REFERENCE_SETTING])
        self._semantics = ours("reference.semantics").Semantics.ideal().changed(flags)
        self._protocol = ours("differential.targets.reference").protocol_of(self._semantics)

    def hello(self, plug_in: str | None) -> dict[str, Json]:
        """Versions of what runs here."""
        return {
            "python": sys.version.split()[0],
            "vllm": "none",
            "protocol": self._protocol._asdict(),
        }

    def run(self, request: Plain) -> Iterator[dict[str, object]]:
        """One result per trace of the batch, in order; under changed flags, where the request has
        some."""
        semantics = self._semantics.changed(request.get("flags") or {})
        for trace in request["traces"]:
            yield self._run_trace(trace, semantics, request.get("fault"))

    def _run_trace(
        self, trace: Event, semantics: "Semantics", fault: str | None
    ) -> dict[str, object]:
        config = trace["header"]["config"]
        if trace["header"]["depth"] != "engine":
            raise HostError(f"a {trace['header']['depth']}-depth trace for a runner")
        scheduler = ours("differential.targets.reference_scheduler")
        worker = None
        # Of the package, as the reference scheduler knows them: it raises its own Illegal.
        protocol, session, depth = (
            ours(f"differential.targets.host.{name}")
            for name in ("protocol", "session", "scheduler.session")
        )
        try:
            plant = _FAULTS.get(fault or "")
            of_decisions = None if plant or fault in _FAULTS_OF_KEYS | RESET_FAULTS else fault
            kit = scheduler.build(trace, semantics, of_decisions)
            model = _model(config["model"], config["video_pruning_rate"], self._device)
            # It raises the package's own Illegal, as the reference does.
            ours("differential.targets.host.engine.kv_cache_groups").check_groups(
                _groups_of(model, config["block_size"]), config
            )
            worker = _Worker(
                model,
                config,
                _store_size(trace, kit, semantics),
                tagged=self._tagged,
                needs_rows=not semantics.encoder_cache.drafts_without_rows,
            )
            if _is_decoder(trace) and not semantics.encoder_cache.pairs_decoder_rows:
                pairs_rows_by_place(worker.runner)
            if plant:
                plant(worker.runner)
            if fault in RESET_FAULTS:
                RESET_FAULTS[fault](kit.scheduler)
            if fault in _FAULTS_OF_KEYS:
                kit = kit._replace(make_request=_FAULTS_OF_KEYS[fault](kit.make_request))
            kit = worker.told(kit)
            records = session.run_events(depth.SchedulerSession(kit, config), trace["events"])
        except protocol.Illegal as reason:
            return {"records": [], "illegal": str(reason)}
        finally:
            if worker is not None:
                worker.end()
        return {"records": records, "capacity": kit.recorder.manager.cache_size}


def _store_size(trace: Event, kit: SchedulerKit, semantics: "Semantics") -> int:
    """What the worker's store must hold: the ledger of a release that credits an item again and
    again bounds nothing, and its worker keeps what a step encodes."""
    capacity: int = kit.recorder.manager.cache_size
    if _is_decoder(trace) and not semantics.encoder_cache.releases_decoder_once:
        return max(capacity, trace["header"]["config"]["compute_budget"])
    return capacity


def _is_decoder(trace: Event) -> bool:
    return bool(trace["header"]["manager"] == "encoder_decoder")


def _groups_of(model: "MultiModalModel", block_size: int) -> list[Event]:
    """The groups of a model's KV cache, in the words of traces."""
    windows = [group.sliding_window for group in model.kv_shape.groups]
    kinds = [("full", 0) if one is None else ("sliding_window", one) for one in windows]
    if model.cross_kv_shape is not None:
        kinds.append(("cross", 0))
    return [{"kind": kind, "block_size": block_size, "window": size} for kind, size in kinds]


class _Worker:
    """The torch runner as a session's worker."""

    def __init__(
        self,
        model: "MultiModalModel",
        config: Event,
        encoder_cache_size: int,
        *,
        tagged: bool,
        needs_rows: bool,
    ) -> None:
        """A drafter that is a model reads ahead; there it `needs_rows`, or does without."""
        self._drafts: RecalledDrafts | None = None
        self._takes_drafts = bool(config["num_speculative_tokens"])
        self._is_asynchronous = config["async_scheduling"]
        if self._takes_drafts and config["drafter"]:
            vocabulary_size = ours("gpu_runner.tiny_models").VOCABULARY_SIZE
            self._drafts = RecalledDrafts(config["num_speculative_tokens"], vocabulary_size)
        self.runner: Runner = ours("gpu_runner.runner").Runner(
            model,
            num_blocks=config["num_blocks"],
            block_size=config["block_size"],
            encoder_cache_size=encoder_cache_size,
            tagged=tagged,
            asynchronous=self._is_asynchronous,
            drafter=self._draft if self._takes_drafts else None,
            reads_ahead=self._drafts is not None,
            needs_rows=needs_rows,
        )
        self._config = config
        self._version = 0

    def told(self, kit: SchedulerKit) -> SchedulerKit:
        """The kit with this worker, which takes in every request that is made."""

        def make_request(event: Event, arrival_time: float) -> "ScheduledRequest":
            request = kit.make_request(event, arrival_time)
            if event["event"] == "add":
                self.runner.add(event["request"], self._prompt(event, request))
            elif event["event"] == "chunk":
                self.runner.add_chunk(event["request"], self._prompt(event, request))
            return request

        return kit._replace(make_request=make_request, worker=self)

    def _prompt(self, event: Event, request: "ScheduledRequest") -> "RunnerPrompt":
        requests = ours("gpu_runner.requests")
        items = tuple(
            requests.MediaItem(feature, *self._inputs(item))
            for feature, item in zip(request.mm_features, event["items"], strict=True)
        )
        return requests.RunnerPrompt(
            tuple(request.prompt_token_ids),
            items,
            event["salt"],
            self._adapter(event["lora"]),
            self._prompt_embeds(event) if event["embeds"] else None,
        )

    def _prompt_embeds(self, event: Event) -> "PromptEmbeds":
        """The embeddings of a prompt of embeddings."""
        model = self.runner.model
        rows = prompt_embeds_of(event, model.embedding_size).to(model.device, model.dtype)
        return ours("gpu_runner.requests").PromptEmbeds(rows, tuple(row_names_of(event)))

    def _inputs(self, item: Event) -> tuple[str, dict[str, "Tensor"]]:
        """An item's modality, and the runner's inputs for it."""
        if not is_given(item):
            return _inputs(self._config["model"], name_of(item))
        rows = embeddings_of(item["identifier"], self.runner.model.hidden_size)
        return ours("gpu_runner.requests").GIVEN, {"rows": rows}

    def _adapter(self, asked: Event | None) -> "LoadedAdapter | None":
        """The adapter that a request asks for."""
        if asked is None:
            return None
        if self.runner.cross_kv_store is not None:
            protocol = ours("differential.targets.host.protocol")
            raise protocol.Illegal("the runner has no adapters of a decoder that attends")
        adapters = ours("gpu_runner.adapters")
        return adapters.load(
            # It raises the package's own Illegal, as the reference does.
            ours("differential.targets.host.engine.adapter_files").adapter_directory(
                _directory(self._config["model"]), asked, self._config
            ),
            ours("reference.request").LoRARequest(**asked),
            dtype=self.runner.model.dtype,
            device=self.runner.model.device,
        )

    def _draft(self, requests: Mapping[str, "RequestState"]) -> Mapping[str, list[int]]:
        """Drafts for requests, by prompt lookup or by a drafter."""
        if self._drafts is None:
            lookup = ours("gpu_runner.prompt_lookup")
            is_second = self._config["v2_model_runner"]
            look_up = lookup.look_up_latest if is_second else lookup.look_up
            return {
                name: look_up(request.token_ids, NUM_DRAFTS, longest=LOOKUP_LONGEST)
                for name, request in requests.items()
            }
        return self._drafts.propose({name: _decoded(one) for name, one in requests.items()})

    def execute(self, output: "SchedulerOutput") -> Executed:
        """Execute a step."""
        sampled = self.runner.execute(output)
        store = self.runner.encoder_store
        said: dict[str, Json] = {
            "store": dict(store.sizes),
            "memory": memory_of(store.entries.values()),
        }
        if self.runner.origins is not None:
            rows, slots = self.runner.origins.take()
            said["origins"] = {"rows": vars(rows), "slots": vars(slots)}
        drafts = None
        if self._takes_drafts and not self._is_asynchronous:
            # Also of those whose prompt goes on: what was proposed before is forgotten with it.
            scheduled = output.num_scheduled_tokens
            drafts = {name: self.runner.batch.of(name).drafts for name in scheduled}
        return ours("differential.targets.host.scheduler.executed").Executed(
            {
                name: [one.token_id for one in sampled.get(name, ())]
                for name in output.num_scheduled_tokens
            },
            {name: list(map(list, tokens)) for name, tokens in sampled.items()},
            said,
            drafts,
        )

    def reset(self) -> None:
        """Forget every encoder output."""
        store = self.runner.encoder_store
        store.free(list(store.sizes))

    def reload(self, version: int) -> None:
        """Load the weights of a version."""
        directory = _directory(self._config["model"])
        weights = ours("gpu_runner.tiny_weights")
        self.runner.reload(weights.ensure(directory, version, directory.parent))
        self._version = version

    def end(self) -> None:
        """Leave the model with the weights that it began with: the next trace has the model too."""
        if self._version:
            self.reload(0)


def _decoded(request: "RequestState") -> tuple[Hashable, list[int]]:
    """A request's prompt with its items, and what it has decoded."""
    names = tuple(item.feature.identifier for item in request.prompt.items)
    prompt = request.prompt.token_ids
    return (prompt, names), request.token_ids[len(prompt) :]


@functools.cache
def _model(name: str, video_pruning_rate: float, device: str) -> "MultiModalModel":
    import torch

    torch.set_num_threads(1)
    own = {"video_pruning_rate": video_pruning_rate} if video_pruning_rate else {}
    return ours("gpu_runner.models.loading").load(
        name, _directory(name), dtype=torch.float32, device=torch.device(device), **own
    )


def _directory(name: str) -> Path:
    directory: Path = ours("gpu_runner.tiny_models").ensure(name, Path(os.environ[MODELS_SETTING]))
    return directory


@functools.cache
def _processor(name: str) -> "ProcessorMixin":
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(_directory(name))


@functools.lru_cache(maxsize=1024)
def _inputs(model: str, identifier: str) -> tuple[str, dict[str, "Tensor"]]:
    """A medium's modality, and what the model's processor makes of it."""
    import torch

    medium, processor = medium_of(identifier), _processor(model)
    if isinstance(medium, ItemSound):
        samples, rate = medium.given
        made = processor.feature_extractor(
            samples, sampling_rate=rate, return_attention_mask=True, return_tensors="pt"
        )
        made["feature_attention_mask"] = made.pop("attention_mask")
    elif medium.modality == "image":
        made = processor.image_processor(medium.given, return_tensors="pt")
    else:
        made = processor.video_processor(
            [medium.pixels], do_sample_frames=False, return_tensors="pt"
        )
        if model == "qwen2_5_vl":
            made["second_per_grid_ts"] = torch.tensor([_seconds_of_grid(medium, processor)])
    whole = _OF_ONE_MEDIUM.get(model, set())
    return medium.modality, {
        name: value if name in whole else value[0] for name, value in made.items()
    }


def _seconds_of_grid(video: ItemMedium, processor: "ProcessorMixin") -> float:
    """Seconds from one row of a video's time axis to the next, as in the release."""
    if _is_told_frame_rates():
        return FRAMES_TOGETHER / FRAMES_PER_SECOND
    made = processor(text=[processor.video_token], videos=[video.pixels], do_sample_frames=False)
    return float(made["second_per_grid_ts"][0])


@functools.cache
def _is_told_frame_rates() -> bool:
    """Whether the release in this interpreter tells its processor a video's frame rate (vLLM PR
    #47736), read off its text; where there is no release, the runner does."""
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        return True
    model = Path(found.origin).parent / "model_executor" / "models" / "qwen2_5_vl.py"
    return "video_needs_metadata" in model.read_text()


HOST = RunnerHost
