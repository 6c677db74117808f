"""From the host to a device, without waiting for it, and on a device as fast as it copies."""

from collections.abc import Sequence

import torch


def upload(numbers: torch.Tensor | Sequence[int], device: torch.device) -> torch.Tensor:
    """Numbers of the host on a device, a tensor's as what they are and others as int64; a copy from
    memory that is not pinned would wait."""
    if isinstance(numbers, torch.Tensor):
        tensor = numbers
    else:
        tensor = torch.tensor(numbers, dtype=torch.int64)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def in_words(rows: torch.Tensor) -> torch.Tensor:
    """The memory of [rows, numbers] as words of 16 bytes, if rows are a multiple of that; else as
    it is. What copies rows by an index moves one number at a time, wide or narrow."""
    row_bytes = rows.shape[-1] * rows.element_size()
    return rows if row_bytes % 16 else rows.view(torch.complex128)
