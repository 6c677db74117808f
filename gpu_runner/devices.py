"""From the host to a device, without waiting for it."""

from collections.abc import Sequence

import torch


def upload(numbers: torch.Tensor | Sequence[int], device: torch.device) -> torch.Tensor:
    """Numbers of the host on a device; a copy from memory that is not pinned would wait."""
    tensor = torch.as_tensor(numbers, dtype=torch.int64)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
