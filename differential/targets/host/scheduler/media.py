"""The media that a real scheduler's model is said to have while it is built: that there are some,
and how large the largest item is. At scheduler depth the model is of text, and has no processor
that could be asked; an engine's has one, whose largest item is not the trace's.

A scheduler works out its encoder budgets of that, and makes the manager of its encoder cache: by
`compute_encoder_budget` up to 0.15, by `MultiModalBudget` since.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

from ..vllm_objects.config import ModelConfig, VllmConfig
from ..vllm_objects.encoder_cache import EncoderCacheManager

MODALITY = "image"
ITEMS_MAX = 999
"""Most items of a prompt; a release has this limit where none is asked for."""


class Registry:
    """Stands in for the release's registry, which would make the model's processor."""

    def __init__(self, largest_item: int) -> None:
        self._sizes = {MODALITY: largest_item}
        self._largest = largest_item

    def supports_multimodal_inputs(self, model_config: ModelConfig) -> bool:
        """True: the model takes items."""
        return True

    def get_max_tokens_per_item_by_nonzero_modality(
        self, model_config: ModelConfig
    ) -> Mapping[str, int]:
        """Size of the largest item, by modality."""
        return self._sizes

    get_max_tokens_per_item_by_modality = get_max_tokens_per_item_by_nonzero_modality

    def get_encdec_max_encoder_len(self, model_config: ModelConfig) -> int:
        """Length of the longest encoder input of an encoder-decoder."""
        return self._largest

    def processor_only_cache_from_config(self, vllm_config: VllmConfig) -> None:
        """None: nothing is processed."""

    def create_processor(self, model_config: ModelConfig, **named: object) -> SimpleNamespace:
        """A stand-in for a processor, which is asked for limits and sizes alone."""
        info = SimpleNamespace(
            supported_mm_limits={MODALITY: None},
            allowed_mm_limits={MODALITY: ITEMS_MAX},
            ctx=SimpleNamespace(model_config=model_config),
            get_mm_max_tokens_per_item=lambda seq_len, mm_counts: self._sizes,
        )
        return SimpleNamespace(info=info)


class _InPlaceOf:
    """Stands in for a class of managers: `make(cache_size)` makes its instances."""

    def __init__(self, make: Callable[[int], EncoderCacheManager]) -> None:
        self._make = make

    def __call__(self, cache_size: int) -> EncoderCacheManager:
        return self._make(cache_size)

    def create_manager(self, cache_size: int, vllm_config: VllmConfig) -> EncoderCacheManager:
        """A manager, as schedulers make it since 0.28.0."""
        return self._make(cache_size)


@contextmanager
def with_media(
    module: ModuleType,
    model_config: ModelConfig,
    largest_item: int,
    *,
    encoder_decoder: bool,
    make_manager: Callable[[int], EncoderCacheManager] | None = None,
) -> Iterator[dict[str, Registry]]:
    """Let schedulers of that module be built for a model with items, the largest of this size, and
    with a manager that `make_manager` makes, if it is given. Yields further arguments for them."""
    registry = Registry(largest_item)
    kind = type(model_config)
    told = {
        "is_encoder_decoder": property(lambda self: encoder_decoder),
        "supports_multimodal_inputs": property(lambda self: True),
    }
    limits = SimpleNamespace(enable_mm_embeds=False, mm_processor_cache_gb=0)
    with ExitStack() as changed:
        for name, value in told.items():
            if hasattr(kind, name):
                changed.enter_context(patch.object(kind, name, value))
        if hasattr(kind, "get_multimodal_config"):
            changed.enter_context(patch.object(kind, "get_multimodal_config", lambda _: limits))
        changed.enter_context(patch.object(module, "MULTIMODAL_REGISTRY", registry))
        if make_manager is not None:
            name = "EncoderDecoderCacheManager" if encoder_decoder else "EncoderCacheManager"
            changed.enter_context(patch.object(module, name, _InPlaceOf(make_manager)))
        yield {"mm_registry": registry}
