"""Makes a release's real requests from `add` events, in the shape that this release wants.

The release itself says whether it takes a request: InputProcessor._validate_model_input (0.12+;
before, Processor._validate_model_input) for the prompt and its items, SamplingParams for the rest.
Only what no processor can produce (items that overlap, are empty or leave the prompt) is refused
here.
"""

import functools
from types import SimpleNamespace

import torch
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalKwargsItem, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request

from ..protocol import Event, Illegal, RefusedByRelease
from ..release_calls import call_known, parameters
from ..vllm_objects.config import ModelConfig, VllmConfig
from .build import REFUSALS, SchedulerParts, refusal
from .session import EOS_TOKEN_ID, STOP_TOKEN_ID, VOCABULARY_SIZE, prompt_token_ids

try:
    from vllm.multimodal.inputs import MultiModalFeatureSpec
except ImportError:
    MultiModalFeatureSpec = None
try:
    from vllm.v1.engine.input_processor import InputProcessor
except ModuleNotFoundError as error:
    if error.name != "vllm.v1.engine.input_processor":
        raise
    from vllm.v1.engine.processor import Processor as InputProcessor

_COUNTS_EMBEDS = hasattr(Request, "get_num_encoder_embeds")


def item_size(item: Event) -> int:
    """Encoder cache slots of an item, in the unit of this release."""
    placeholder = _placeholder(item)
    if not _COUNTS_EMBEDS:
        return placeholder.length
    embeds = placeholder.get_num_embeds
    return int(embeds() if callable(embeds) else embeds)


class RequestMaker:
    """Makes the requests of one trace."""

    def __init__(self, engine: SchedulerParts, cache_size: int, *, encoder_decoder: bool) -> None:
        self._validator = _PromptValidator(engine.vllm_config, cache_size)
        self._block_hasher = engine.block_hasher
        self._encoder_decoder = encoder_decoder

    def make(self, event: Event, arrival_time: float) -> Request:
        """The release's request. Raises Illegal where the release refuses it."""
        _check_items(event, is_prompt=not self._encoder_decoder)
        placeholders = [_placeholder(item) for item in event["items"]]
        token_ids = prompt_token_ids(event, has_placeholders=not self._encoder_decoder)
        try:
            self._validator.check(token_ids, placeholders)
            sampling_params = SamplingParams(
                max_tokens=event["max_tokens"],
                ignore_eos=True,
                stop_token_ids=[STOP_TOKEN_ID],
                temperature=0,
            )
        except REFUSALS as error:
            raise RefusedByRelease(error, refusal(error)) from error
        if event["skip_reading"]:
            if not hasattr(sampling_params, "skip_reading_prefix_cache"):
                raise Illegal("no request skips reading the prefix cache")
            sampling_params.skip_reading_prefix_cache = True
        if event["resumable"] and "resumable" not in parameters(Request.__init__):
            raise Illegal("no request is resumable")
        return call_known(
            Request,
            request_id=event["request"],
            prompt_token_ids=token_ids,
            sampling_params=sampling_params,
            pooling_params=None,
            eos_token_id=EOS_TOKEN_ID,
            arrival_time=arrival_time,
            priority=event["priority"],
            lora_request=None if event["lora"] is None else LoRARequest(**event["lora"]),
            cache_salt=event["salt"],
            block_hasher=self._block_hasher,
            resumable=event["resumable"],
            **carried(event["items"]),
        )


def _check_vocabulary(token_ids: list[int]) -> None:
    assert max(token_ids) < VOCABULARY_SIZE


# 0.15 and 0.16 ask the processor of the model whether prompts may be of any length: they may not.
_LENGTH_IS_CHECKED = SimpleNamespace(
    _get_model_cls=lambda model_config: SimpleNamespace(
        _processor_factory=SimpleNamespace(
            info=lambda context: SimpleNamespace(skip_prompt_length_check=False)
        )
    ),
    _create_processing_ctx=lambda model_config, tokenizer: None,
)


class _PromptValidator(InputProcessor):
    """The release's check of a processed prompt, without its tokenizer and processors."""

    tokenizer = None  # on the class, since they are properties of some releases
    renderer = SimpleNamespace(validate_token_ids=_check_vocabulary)
    input_preprocessor = SimpleNamespace(mm_registry=_LENGTH_IS_CHECKED)

    def __init__(self, vllm_config: VllmConfig, cache_size: int) -> None:
        self.model_config = _MultiModal(vllm_config.model_config)
        self.scheduler_config = vllm_config.scheduler_config
        self.supports_mm_inputs = True
        self.mm_encoder_cache_size = cache_size
        self.skip_prompt_length_check = False

    def check(self, token_ids: list[int], placeholders: list[PlaceholderRange]) -> None:
        """Let the release check a prompt; what it raises comes out unchanged."""
        prompt = {
            "type": "multimodal",
            "prompt_token_ids": token_ids,
            "mm_placeholders": {"image": placeholders},
        }
        lora = {"lora_request": None} if _VALIDATES_LORA else {}
        self._validate_model_input(prompt, **lora, prompt_type="decoder")


_VALIDATES_LORA = "lora_request" in parameters(InputProcessor._validate_model_input)


class _MultiModal:
    """The model configuration, posing as that of a multimodal model."""

    is_multimodal_model = True

    def __init__(self, model_config: ModelConfig) -> None:
        self._model_config = model_config

    def __getattr__(self, name: str) -> object:
        return getattr(self._model_config, name)


def _check_items(event: Event, *, is_prompt: bool) -> None:
    """Refuse items that no processor makes; they are part of the prompt, or input of an encoder."""
    end = 0
    for index, item in enumerate(event["items"]):
        name = f"item {index} of {event['request']}"
        if item["offset"] < end or item["length"] < 1:
            raise Illegal(f"{name} is empty or not after the one before")
        end = item["offset"] + item["length"]
        if end > event["prompt"] and is_prompt:
            raise Illegal(f"{name} ends behind the prompt")
        if item["is_embed"] is not None and len(item["is_embed"]) != item["length"]:
            raise Illegal(f"{name} has a mask of another length")


def _placeholder(item: Event) -> PlaceholderRange:
    mask = item["is_embed"]
    return PlaceholderRange(
        offset=item["offset"],
        length=item["length"],
        is_embed=None if mask is None else torch.tensor(mask, dtype=torch.bool),
    )


@functools.cache
def _media() -> MultiModalKwargsItem:
    return call_known(MultiModalKwargsItem.dummy, modality="image", nbytes=1)


def carried(items: list[Event]) -> dict[str, list[object]]:
    """The arguments by which a request gets its items: lists side by side up to 0.10.1.1, features
    since."""
    placeholders = [_placeholder(item) for item in items]
    if MultiModalFeatureSpec is None:
        return {
            "multi_modal_kwargs": [_media() for _ in items],
            "multi_modal_hashes": [item["identifier"] for item in items],
            "multi_modal_placeholders": placeholders,
        }
    return {
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
