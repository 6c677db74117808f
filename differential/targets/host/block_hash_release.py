"""The block hasher of this vLLM, and its requests made from `prompt` events."""

from collections.abc import Callable
from typing import Any

import torch
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1.core import kv_cache_utils
from vllm.v1.request import Request

from .block_hash import BlockHashSession
from .protocol import Event, Illegal
from .scheduler_build import EOS_TOKEN_ID, call_known, parameters, sha256
from .scheduler_requests import carried

_LOOKS_AHEAD = "num_hash_lookahead_tokens" in parameters(kv_cache_utils.get_request_block_hasher)
_TAKES_EMBEDS = "prompt_embeds" in parameters(Request.__init__)
_MIXES_EMBEDS = "prompt_is_token_ids" in parameters(Request.__init__)


def block_hash_session(header: Event, fault: str | None) -> BlockHashSession:
    """A session on this release, with a fault of `block_hash_faults` planted if one is named.

    Raises Illegal where the release does not know what the trace asks for.
    """
    config = header["config"]
    if config["lookahead"] and not _LOOKS_AHEAD:
        raise Illegal("block hashes of this release do not look ahead")
    kv_cache_utils.init_none_hash(sha256)
    ahead = {"num_hash_lookahead_tokens": config["lookahead"]} if config["lookahead"] else {}
    hasher = kv_cache_utils.get_request_block_hasher(config["block_size"], sha256, **ahead)
    return BlockHashSession(make_request, hasher, config["block_size"], fault)


def make_request(event: Event, hasher: Callable[[Any], Any] | None) -> Any:
    """The release's request of a `prompt` event. Raises Illegal where it has no such request."""
    adapter = event["lora"]
    return call_known(
        Request,
        request_id=event["request"],
        sampling_params=SamplingParams(max_tokens=1, ignore_eos=True, temperature=0),
        pooling_params=None,
        eos_token_id=EOS_TOKEN_ID,
        arrival_time=0.0,
        lora_request=None if adapter is None else call_known(LoRARequest, **adapter),
        cache_salt=event["salt"],
        block_hasher=hasher,
        **_prompt(event),
        **carried(event["items"]),
    )


def _prompt(event: Event) -> dict[str, Any]:
    """Token ids, or embeddings, or both with a mask of what is which."""
    rows = event["embeds"]
    if rows is None:
        return {"prompt_token_ids": list(event["tokens"])}
    if not _TAKES_EMBEDS:
        raise Illegal("requests of this release carry no prompt embeddings")
    width = max(len(row) for row in rows if row is not None) // 2
    data = b"".join(bytes(width) if row is None else bytes.fromhex(row) for row in rows)
    tensor = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(len(rows), -1)
    if all(row is not None for row in rows):
        return {"prompt_token_ids": None, "prompt_embeds": tensor}
    if not _MIXES_EMBEDS:
        raise Illegal("requests of this release mix no tokens and prompt embeddings")
    return {
        "prompt_token_ids": list(event["tokens"]),
        "prompt_embeds": tensor,
        "prompt_is_token_ids": [row is None for row in rows],
    }
