"""An encoder output as a file: tensors in the store's entries."""

from typing import BinaryIO

import torch

from cacheproof.reference.encoder_connector import entry_file
from cacheproof.reference.encoder_connector.entry_file import EntryRows
from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.part import Part


class TensorCodec:
    """Rows on a device as the parts of a file, and back.

    On their way from and to a GPU rows are in pinned memory, which is kept: as much as the largest
    entry has. What `parts_of` gives is there until the next call.

    Args:
        device: where `load` puts rows.
    """

    def __init__(self, device: str | torch.device) -> None:
        self._device = torch.device(device)
        self._pinned = torch.empty(0, dtype=torch.uint8)

    def parts_of(self, rows: torch.Tensor, key: EntryKey) -> list[Part]:
        """The file of an encoder output of [rows, width], on any device: its header, and its rows.
        Raises as the reference's `parts_of`."""
        rows = rows.detach().contiguous()
        if rows.device.type == "cuda":
            room = self._room(rows.nbytes)
            room.copy_(rows.reshape(-1).view(torch.uint8))
            data = _bytes_of(room)
        else:
            data = _bytes_of(rows.cpu())
        return entry_file.parts_of(EntryRows(dtype_name(rows.dtype), tuple(rows.shape), data), key)

    def load(self, file: BinaryIO, key: EntryKey) -> torch.Tensor:
        """The rows of an entry: [rows, width], on the device.

        Raises:
            Torn: it is not the whole entry of that key.
            OSError: it cannot be read.
        """
        dtype = getattr(torch, key.dtype)
        rows = torch.empty(0)

        def room_for(count: int, width: int) -> memoryview:
            nonlocal rows
            if self._device.type == "cuda":
                room = self._room(count * width * dtype.itemsize)
                rows = room.view(dtype).reshape(count, width)
                return _bytes_of(room)
            rows = torch.empty(count, width, dtype=dtype)
            return _bytes_of(rows)

        entry_file.load_into(file, key, room_for)
        return rows.to(self._device)

    def _room(self, size: int) -> torch.Tensor:
        """`size` bytes of pinned memory, or of other memory where none can be pinned. The next call
        reuses them."""
        if self._pinned.nbytes < size:
            try:
                self._pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            except RuntimeError:
                self._pinned = torch.empty(size, dtype=torch.uint8)
        return self._pinned[:size]


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype as keys have it, such as `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def _bytes_of(rows: torch.Tensor) -> memoryview:
    """The memory of contiguous rows on the CPU."""
    return memoryview(rows.view(torch.uint8).numpy()).cast("B") if rows.numel() else memoryview(b"")
