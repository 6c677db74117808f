"""What lets a CPU's worker run requests with an adapter beside requests without one.

The release's kernels for GPUs skip rows that have no adapter, whose slot is -1. Those in torch,
which CPUs get, take the last slot for it: such a row is answered under whatever adapter lies
there, as soon as another row of the step has one.
"""

import functools

import torch
from vllm.lora.ops.torch_ops import lora_ops

from ..protocol import Event, Illegal
from .limits import MAX_ADAPTERS


@functools.cache
def leave_rows_without_adapter_alone() -> None:
    """Let nothing be added to rows without an adapter, for good."""
    own = lora_ops.bgmv_shrink

    @functools.wraps(own)
    def shrink(
        inputs: torch.Tensor,
        weights: torch.Tensor,
        outputs: torch.Tensor,
        slots: torch.Tensor,
        scale: float,
    ) -> None:
        own(inputs, weights, outputs, slots, scale)
        outputs[slots < 0] = 0

    lora_ops.bgmv_shrink = shrink


def adapters_of(config: Event) -> str | None:
    """What adapters have weights for; None without adapters. Raises Illegal where no engine runs so
    many."""
    if config["max_loras"] > MAX_ADAPTERS:
        raise Illegal(f"the engine was made for {MAX_ADAPTERS} adapters")
    if config["max_loras"] == 0:
        return None
    return "towers" if config["tower_adapters"] else "decoder"
