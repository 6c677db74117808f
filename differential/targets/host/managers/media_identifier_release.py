"""Front ends of this vLLM that name the items of requests, as far as naming needs them.

The release's own are its input processor and, from 0.17.0 on, its renderer; the names that its base
processor of media makes; and its parser of items. In the place of the model's processor, of the
tokenizer and, before 0.17.0, of the input preprocessor stands what does nothing else. So a model
that names items by itself is not seen, nor that an item may be refused which comes by an id under
which nothing is kept.
"""

import inspect
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import vllm
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import PlaceholderRange
from vllm.multimodal.parse import MultiModalDataParser
from vllm.multimodal.processing import BaseMultiModalProcessor
from vllm.sampling_params import SamplingParams

from ..faults.media_identifier import MEDIA_IDENTIFIER_FAULTS
from ..protocol import Event, Illegal
from ..vllm_objects.media_names import Item
from .media_identifier import MediaIdentifierSession, settings_of
from .processor_release import bare, called, naming_processor, nothing

try:
    from vllm.v1.engine.input_processor import InputProcessor
except ImportError:
    from vllm.v1.engine.processor import Processor as InputProcessor
try:
    from vllm.renderers.base import BaseRenderer
except ImportError:
    BaseRenderer = None  # type: ignore[assignment, misc]

_MODEL = "tiny"
_HASHER = "blake3"
_NAMES_IN_RENDERER = hasattr(BaseRenderer, "_process_multimodal")
_PROMPT = [1]
_SHAPES = {"image": (2, 2, 3), "audio": (8,)}
_ROWS = "_embeds"
"""What a modality ends with whose items come as an encoder's rows."""


def media_identifier_session(header: Event, fault: str | None) -> MediaIdentifierSession:
    """A session on this release."""
    if header["config"]["adapters_reach"] and not hasattr(InputProcessor, "_get_mm_identifier"):
        raise Illegal(f"vLLM {vllm.__version__} has no adapters that reach an encoder")
    planted = MEDIA_IDENTIFIER_FAULTS[fault or "nothing"]
    return MediaIdentifierSession(
        lambda engine, number: planted(ReleaseNamer(header["config"], engine, number))
    )


class ReleaseNamer:
    """A server of this release."""

    def __init__(self, config: Event, engine: int, number: int) -> None:
        defaults = _options(settings_of(config["settings"], engine)) or {}
        media = SimpleNamespace(
            mm_processor_cache_gb=4 if config["processor_cache"] else 0,
            mm_hasher_algorithm=_HASHER,
            mm_processor_kwargs=defaults or None,
            merge_mm_processor_kwargs=lambda given: {**defaults, **given},
        )
        model = SimpleNamespace(
            model=_MODEL,
            multimodal_config=media,
            get_multimodal_config=lambda: media,
            is_encoder_decoder=False,
            is_multimodal_model=True,
            max_model_len=100,
        )
        whole = SimpleNamespace(
            model_config=model,
            cache_config=SimpleNamespace(enable_prefix_caching=config["prefix_caching"]),
            parallel_config=SimpleNamespace(
                data_parallel_size=1,
                data_parallel_size_local=1,
                local_engines_only=False,
                data_parallel_external_lb=False,
                data_parallel_hybrid_lb=False,
            ),
            lora_config=SimpleNamespace(enable_tower_connector_lora=config["adapters_reach"]),
        )
        self._parser = MultiModalDataParser()
        named = config["model"]
        self._processor = bare(
            BaseMultiModalProcessor if named == _MODEL else naming_processor(named),
            info=SimpleNamespace(
                model_id=_MODEL,
                get_image_processor=lambda **_: SimpleNamespace(use_msac=True),
                ctx=SimpleNamespace(get_mm_config=lambda: media, model_config=model),
                parse_mm_data=self._parser.parse_mm_data,
            ),
            data_parser=self._parser,
            apply=self._apply,
        )
        self._input = bare(
            InputProcessor,
            vllm_config=whole,
            model_config=model,
            cache_config=whole.cache_config,
            lora_config=whole.lora_config,
            generation_config_fields={},
            _platform_validate_request=nothing,
            _validate_lora=nothing,
            _validate_model_inputs=nothing,
            _validate_params=lambda *asked, **named: False,
            apply_watermarking=nothing,
            input_preprocessor=SimpleNamespace(
                preprocess=self._preprocess,
                get_eos_token_id=nothing,
                tokenizer=None,
                _get_mm_processor=lambda *asked: self._processor,
            ),
            renderer=SimpleNamespace(
                get_eos_token_id=nothing, tokenizer=None, get_tokenizer=nothing
            ),
        )
        if _NAMES_IN_RENDERER:
            from vllm.utils.counter import AtomicCounter

            self._renderer = bare(
                BaseRenderer,
                config=whole,
                model_config=model,
                api_process_rank=number,
                _mm_req_counter=AtomicCounter(),
                _mm_timing_registry=SimpleNamespace(get=nothing),
                _drain_mm_cache_invalidations=nothing,
                update_mm_cache_stats=nothing,
                get_mm_processor=lambda *asked: self._processor,
                mm_processor=self._processor,
                _mm_processor_cache=None,
                _mm_processor_only_cache=None,
            )

    def name(
        self, request: str, items: Sequence[Item], adapter: str | None, options: int
    ) -> list[str]:
        data: dict[str, list[Any]] = {}
        uuids: dict[str, list[str | None]] = {}
        for item in items:
            modality = item.modality.removesuffix(_ROWS)
            data.setdefault(modality, []).append(_data_of(item))
            uuids.setdefault(modality, []).append(item.uuid)
        # As a server of chats does: ids of all modalities are said, None where there is none.
        prompt: Any = {
            "prompt_token_ids": _PROMPT,
            "multi_modal_data": data,
            "multi_modal_uuids": uuids,
        }
        if options:
            prompt["mm_processor_kwargs"] = _options(options)
        if _NAMES_IN_RENDERER:
            prompt = called(
                self._renderer._process_multimodal,
                prompt=_PROMPT,
                mm_data=data,
                mm_uuids=uuids,
                mm_processor_kwargs=prompt.get("mm_processor_kwargs"),
                tokenization_kwargs=None,
            )
        made: Any = called(
            self._input.process_inputs,
            request_id=request,
            prompt=prompt,
            engine_input=prompt,
            params=SamplingParams(max_tokens=1),
            supported_tasks=("generate",),
            lora_request=None if adapter is None else LoRARequest(adapter, 1, "/"),
        )
        features = (made[1] if isinstance(made, tuple) else made).mm_features
        named = {
            modality: iter([one.identifier for one in features if one.modality == modality])
            for modality in data
        }
        return [next(named[item.modality.removesuffix(_ROWS)]) for item in items]

    def _preprocess(
        self, prompt: Mapping[str, Any], *asked: object, mm_uuids: Any = None, **named: object
    ) -> dict[str, Any]:
        """What the release's input preprocessor comes to for a prompt of tokens."""
        items = self._parser.parse_mm_data(prompt["multi_modal_data"])
        options = prompt.get("mm_processor_kwargs") or {}
        hashes = self._processor._hash_mm_items(items, options, {}, mm_uuids=mm_uuids)
        return _processed(hashes)

    def _apply(self, inputs: Any, *asked: object, **named: object) -> dict[str, Any]:
        """What the processor of a model comes to, with nothing processed."""
        if hasattr(self._processor, "_get_mm_hashes"):
            return _processed(self._processor._get_mm_hashes(inputs))
        taken = [_MODEL, _HASHER][: len(inspect.signature(inputs.get_mm_hashes).parameters)]
        return _processed(inputs.get_mm_hashes(*taken))


def _options(number: int) -> dict[str, int] | None:
    """What a processor is told under that number."""
    return {"size": number} if number else None


def _data_of(item: Item) -> Any:
    """An array, or rows, that differ by content."""
    if item.content is None:
        return None
    if item.modality.endswith(_ROWS):
        return torch.full((2, 4), float(item.content))
    return np.full(_SHAPES[item.modality], item.content, "u1" if item.modality == "image" else "f4")


def _processed(hashes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A processed prompt, an item a token in turn."""
    places: dict[str, list[PlaceholderRange]] = {}
    at = 0
    for modality, own in hashes.items():
        places[modality] = [
            PlaceholderRange(offset=at + number, length=1) for number in range(len(own))
        ]
        at += len(own)
    return {
        "type": "multimodal",
        "prompt": "",
        "prompt_token_ids": _PROMPT * at,
        "mm_kwargs": {modality: [None] * len(own) for modality, own in hashes.items()},
        "mm_hashes": hashes,
        "mm_placeholders": places,
    }
