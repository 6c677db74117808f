"""What lets the CPU worker of a release before 0.24.0 attend to an encoder's rows alone.

Its kernel computes in tiles of 32 keys, or 16. Without a causal mask, as in cross-attention, it
masks nothing behind the last key, and attends to the slots up to the tile's end as well: to what
other requests have left there.
"""

import copy
import functools
from typing import Protocol

import torch
import vllm
from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder

FIRST_WITH_MASK = (0, 24)


class MetadataBuilder(Protocol):
    """`CPUAttentionMetadataBuilder` of `vllm.v1.attention.backends.cpu_attn`."""

    is_cross_attention: bool


class AttentionMetadata(Protocol):
    """vLLM's `CommonAttentionMetadata`: a step, as kernels get it."""

    causal: bool
    max_query_len: int
    num_reqs: int
    num_actual_tokens: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table_tensor: torch.Tensor


@functools.cache
def attend_to_rows_alone() -> None:
    """Let cross-attention end with an encoder's last row, for good: each token of a step is handed
    to the kernel as a request of its own, whose causal mask ends there."""
    if tuple(map(int, vllm.__version__.split(".")[:2])) >= FIRST_WITH_MASK:
        return
    own = CPUAttentionMetadataBuilder.build

    @functools.wraps(own)
    def build(
        self: MetadataBuilder,
        common_prefix_len: int,
        common_attn_metadata: AttentionMetadata,
        fast_build: bool = False,
    ) -> object:
        if not self.is_cross_attention:
            return own(self, common_prefix_len, common_attn_metadata, fast_build)
        self.is_cross_attention = False  # where it is set, no mask is causal
        try:
            return own(self, common_prefix_len, _token_by_token(common_attn_metadata), fast_build)
        finally:
            self.is_cross_attention = True

    CPUAttentionMetadataBuilder.build = build


def _token_by_token(step: AttentionMetadata) -> AttentionMetadata:
    counts = step.query_start_loc.diff()
    alone = copy.copy(step)
    alone.causal = True
    alone.max_query_len = 1
    alone.num_reqs = step.num_actual_tokens
    alone.query_start_loc = torch.arange(alone.num_reqs + 1, dtype=torch.int32)
    alone.seq_lens = step.seq_lens.repeat_interleave(counts)
    alone.block_table_tensor = step.block_table_tensor.repeat_interleave(counts, dim=0)
    return alone
