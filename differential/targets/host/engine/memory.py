"""The memory that the entries of an encoder store keep alive, and the content of KV memory at a
trace's begin."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def memory_of(entries: Iterable["Tensor"]) -> dict[str, int]:
    """Bytes of a row, and of the tensors that entries of [rows, hidden] are, or are parts of."""
    bytes_of_row = 0
    held: dict[int, int] = {}
    for rows in entries:
        storage = rows.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        bytes_of_row = rows.shape[1] * rows.element_size()
    return {"bytes_of_row": bytes_of_row, "bytes_held": sum(held.values())}


def blank(kv_caches: Iterable["Tensor"]) -> None:
    """Fill the KV caches of all layers with zeros, as an engine begins: what a trace reads there
    without having written it is not another trace's."""
    import torch  # read where it is not

    with torch.inference_mode():
        for cache in kv_caches:
            cache.zero_()
