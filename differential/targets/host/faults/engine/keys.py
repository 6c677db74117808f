"""Faults of an engine's block keys, which leave out what keeps requests of one text apart."""

from ...by_name import by_name
from ...vllm_objects.requests import Request
from ...vllm_objects.worker import GPUModelRunner
from .engine import Change

ExtraKeys = tuple[tuple[str, object], ...]
"""What a block's key names beside its tokens: kinds, and what is there of each."""


def _without(kind: str, *, everywhere: bool) -> Change:
    """Let keys leave out a kind of extra key: everywhere, or only in a request's first block."""
    from vllm.v1.core import kv_cache_utils  # the faults' names are read where it is not

    made = kv_cache_utils.generate_block_hash_extra_keys

    def extra_keys(
        request: Request, start: int, end: int, first_item: int
    ) -> tuple[ExtraKeys | None, int]:
        keys, item = made(request, start, end, first_item)
        if everywhere or start == 0:
            keys = tuple(key for key in keys or () if key[0] != kind)
        elif keys is None and kind == "cache_salt" and request.cache_salt:
            keys = ((kind, request.cache_salt),)
        return keys or None, item

    return kv_cache_utils, "generate_block_hash_extra_keys", extra_keys


def forgets_salts(runner: GPUModelRunner) -> Change:
    """Requests of any salt share blocks."""
    return _without("cache_salt", everywhere=True)


def leaves_the_first_block_unsalted(runner: GPUModelRunner) -> Change:
    """Requests of any salt share their first block, and no other."""
    return _without("cache_salt", everywhere=False)


def shares_kv_across_adapters(runner: GPUModelRunner) -> Change:
    """Requests under any adapter share blocks."""
    return _without("lora", everywhere=True)


def forgets_prompt_embeds(runner: GPUModelRunner) -> Change:
    """Prompts of any embeddings share blocks."""
    return _without("prompt_embeds", everywhere=True)


EMBEDDED_KEY_FAULTS = by_name(forgets_prompt_embeds)
SALT_KEY_FAULTS = by_name(forgets_salts, leaves_the_first_block_unsalted)
ADAPTER_KEY_FAULTS = by_name(shares_kv_across_adapters)
