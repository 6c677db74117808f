"""An encoder output as a file: tensors in the store's entries."""

from typing import BinaryIO

import torch

from cacheproof.reference.encoder_connector import entry_file
from cacheproof.reference.encoder_connector.entry_file import Rows
from cacheproof.reference.encoder_connector.entry_key import EntryKey


def parts_of(rows: torch.Tensor, key: EntryKey) -> list[bytes | memoryview]:
    """The file of an encoder output of [rows, hidden], on any device: its header, and its rows.

    Raises:
        ValueError: the rows are of another dtype or width than the key says, or of a dtype that no
            entry has; or the key is longer than a header may be.
    """
    data = _bytes_of(rows.detach().cpu().contiguous())
    return entry_file.parts_of(Rows(dtype_name(rows.dtype), tuple(rows.shape), data), key)


def load(file: BinaryIO, key: EntryKey) -> torch.Tensor:
    """The rows of an entry: [rows, hidden], on the CPU.

    Raises:
        Torn: it is not the whole entry of that key.
        OSError: it cannot be read.
    """
    rows = torch.empty(0)

    def room_for(count: int) -> memoryview:
        nonlocal rows
        rows = torch.empty(count, key.hidden_size, dtype=getattr(torch, key.dtype))
        return _bytes_of(rows)

    entry_file.load_into(file, key, room_for)
    return rows


def dtype_name(dtype: torch.dtype) -> str:
    """As keys have it: `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def _bytes_of(rows: torch.Tensor) -> memoryview:
    """The memory of contiguous rows on the CPU."""
    return memoryview(rows.view(torch.uint8).numpy()).cast("B") if rows.numel() else memoryview(b"")
