"""How large the encoder compute budget and the encoder cache are, once at start-up."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class EncoderLimits:
    """What of a scheduler configuration bounds the encoder; names are vLLM's.

    No modelled release lets a user set the two budgets: both are `max_num_batched_tokens`.

    Attributes:
        max_num_batched_tokens: token budget of a step.
        max_num_encoder_input_tokens: most embeddings that one step may encode.
        encoder_cache_size: embeddings that the encoder cache keeps.
        disable_chunked_mm_input: whether no item may be computed in several steps.
    """

    max_num_batched_tokens: int
    max_num_encoder_input_tokens: int
    encoder_cache_size: int
    disable_chunked_mm_input: bool = False


def compute_mm_encoder_budget(
    scheduler_config: EncoderLimits, mm_max_toks_per_item: Mapping[str, int]
) -> tuple[int, int]:
    """The encoder compute budget of a step and the size of the encoder cache, in embeddings.

    Each is floored at the largest item that any modality can make, or that item could never run.
    No modality at all means no encoder: (0, 0).

    Raises:
        ValueError: items may not be split, and the largest does not fit a step's token budget.
    """
    if not mm_max_toks_per_item:
        return 0, 0
    largest = max(mm_max_toks_per_item.values())
    if (
        scheduler_config.disable_chunked_mm_input
        and largest > scheduler_config.max_num_batched_tokens
    ):
        raise ValueError(
            f"chunked multimodal input is disabled, and an item of {largest} tokens exceeds "
            f"max_num_batched_tokens = {scheduler_config.max_num_batched_tokens}"
        )
    return (
        max(scheduler_config.max_num_encoder_input_tokens, largest),
        max(scheduler_config.encoder_cache_size, largest),
    )
