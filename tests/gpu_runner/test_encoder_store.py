import pytest
import torch

from cacheproof.gpu_runner.encoder_store import (
    EncoderCacheMiss,
    EncoderStore,
    StoreOverflow,
    StoreRead,
)

READ = StoreRead("a", position=7, step=3, start=1, end=3)


def rows(count: int, first: float = 0.0) -> torch.Tensor:
    return (torch.arange(count * 4, dtype=torch.float32) + first).reshape(count, 4)


def test_a_gather_gives_the_window_of_the_entry() -> None:
    store = EncoderStore(8)
    store.put("x", rows(4))
    store.put("y", rows(4, first=100))
    assert torch.equal(store.gather("x", READ), rows(4)[1:3])


def test_a_miss_names_request_identifier_position_and_step() -> None:
    with pytest.raises(
        EncoderCacheMiss, match="request a reads row 1 of x at position 7 in step 3"
    ):
        EncoderStore(8).gather("x", READ)


def test_what_was_freed_is_missed_and_its_rows_are_free_again() -> None:
    store = EncoderStore(4)
    store.put("x", rows(4))
    store.free(["x", "x", "never there"])
    with pytest.raises(EncoderCacheMiss):
        store.gather("x", READ)
    store.put("y", rows(4))
    assert store.sizes == {"y": 4}


def test_an_output_that_does_not_fit_is_refused_and_nothing_changes() -> None:
    store = EncoderStore(6)
    store.put("x", rows(4))
    with pytest.raises(StoreOverflow, match="y has 3 rows, and 4 of the store's 6 are taken"):
        store.put("y", rows(3))
    assert store.sizes == {"x": 4}
    store.put("x", rows(6))
    assert store.sizes == {"x": 6}


def test_an_entry_that_was_cut_from_a_batch_keeps_only_itself_alive() -> None:
    batch = rows(12)
    store = EncoderStore(8)
    store.put("x", batch[:4])
    store.put("y", batch[4:8])
    store.free(["x"])
    assert store.num_bytes == 4 * 4 * batch.element_size()
    assert batch[4:8].untyped_storage().nbytes() == batch.numel() * batch.element_size()
    assert store.peak_bytes == 8 * 4 * batch.element_size()


def test_an_entry_does_not_change_with_the_tensor_that_it_was_made_of() -> None:
    batch = rows(8)
    store = EncoderStore(8)
    store.put("x", batch[:4])
    batch.zero_()
    assert torch.equal(store.gather("x", READ), rows(4)[1:3])
