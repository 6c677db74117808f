"""The block hasher of this vLLM, and its requests made from `prompt` and `continue` events."""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import get_args

import torch
from vllm.config import cache as cache_config
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1 import request as request_module
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from ..protocol import Event, Illegal
from ..release_calls import call_known, parameters
from ..scheduler.build import sha256
from ..scheduler.requests import carried
from ..scheduler.session import EOS_TOKEN_ID
from ..vllm_objects.requests import BlockHasher
from .block_hash import BlockHashSession

try:
    from vllm.utils.hashing import get_hash_fn_by_name
except ImportError:
    from vllm.utils import get_hash_fn_by_name

_LOOKS_AHEAD = "num_hash_lookahead_tokens" in parameters(kv_cache_utils.get_request_block_hasher)
_TAKES_EMBEDS = "prompt_embeds" in parameters(Request.__init__)
_MIXES_EMBEDS = "prompt_is_token_ids" in parameters(Request.__init__)
_ALGORITHMS = get_args(cache_config.PrefixCachingHashAlgo)
_CONTINUES = hasattr(Scheduler, "_update_request_as_session")


def block_hash_session(header: Event, fault: str | None) -> BlockHashSession[Request]:
    """A session on this release, with a fault of `faults.block_hash` planted if one is named.

    Raises Illegal where the release does not know what the trace asks for.
    """
    config = header["config"]
    size = config["block_size"]
    return BlockHashSession(
        make_request, functools.partial(_go_on, size), block_hasher(config), size, fault
    )


def block_hasher(config: Event) -> BlockHasher:
    """The block hasher of a trace's configuration. Raises Illegal where the release has none."""
    if config["lookahead"] and not _LOOKS_AHEAD:
        raise Illegal("block hashes of this release do not look ahead")
    if config["algorithm"] not in _ALGORITHMS:
        raise Illegal(
            f"this release hashes no blocks with {config['algorithm']}; it offers "
            f"{', '.join(_ALGORITHMS)}"
        )
    ahead = {"num_hash_lookahead_tokens": config["lookahead"]} if config["lookahead"] else {}
    function = get_hash_fn_by_name(config["algorithm"])
    hasher = kv_cache_utils.get_request_block_hasher(config["block_size"], function, **ahead)
    return _seeded(hasher, function)


def _seeded(hasher: BlockHasher, function: Callable[[object], bytes]) -> BlockHasher:
    """The hasher, seeded with the first parent key of its own hash function: that is a global of
    the release, and other depths use another function."""
    kv_cache_utils.init_none_hash(function)
    own = kv_cache_utils.NONE_HASH
    kv_cache_utils.init_none_hash(sha256)
    of_the_others = kv_cache_utils.NONE_HASH

    def hash_blocks(request: Request) -> list[bytes]:
        kv_cache_utils.NONE_HASH = own
        try:
            return hasher(request)
        finally:
            kv_cache_utils.NONE_HASH = of_the_others

    return hash_blocks


def _go_on(block_size: int, request: Request, chunk: Request) -> None:
    """Continue a stopped request as the release's scheduler does, once its last token was
    sampled."""
    if not _CONTINUES:
        raise Illegal("this release does not continue requests")
    chunk.resumable = True
    request.status = RequestStatus.WAITING_FOR_STREAMING_REQ
    request.num_computed_tokens = request.num_tokens - 1
    scheduler = SimpleNamespace(
        hash_block_size=block_size, log_stats=False, num_waiting_for_streaming_input=1
    )
    update = request_module.StreamingUpdate.from_request(chunk)
    Scheduler._update_request_as_session(scheduler, request, update)


def make_request(event: Event, hasher: BlockHasher | None) -> Request:
    """The release's request of a `prompt` event. Raises Illegal where the release has no such
    request."""
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


def _prompt(event: Event) -> dict[str, object]:
    """Token ids, or embeddings, or both with a mask that tells them apart."""
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
