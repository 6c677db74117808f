import pytest
import torch

from cacheproof.gpu_runner.kv_store import KVShape, PagedKVStore


@pytest.fixture
def store(device: torch.device) -> PagedKVStore:
    return PagedKVStore(
        KVShape(num_layers=2, num_kv_heads=1, head_dim=3),
        num_blocks=5,
        block_size=4,
        dtype=torch.float32,
        device=device,
    )


def test_tokens_are_kept_where_the_block_table_says(store: PagedKVStore) -> None:
    assert store.slots([3, 1], 2, 7).tolist() == [14, 15, 4, 5, 6]
    assert store.slots([3, 1, 2], 5, 9).tolist() == [5, 6, 7, 8]


def test_tokens_behind_the_last_block_have_no_slot(store: PagedKVStore) -> None:
    with pytest.raises(IndexError, match="token 4 is behind 1 blocks of 4"):
        store.slots([3], 2, 5)


def test_layers_of_several_groups_share_tensors_and_those_of_one_do_not(
    device: torch.device,
) -> None:
    shape = KVShape(5, 1, 3, (4, None, 4, None, 4))
    store = PagedKVStore(shape, 5, 4, dtype=torch.float32, device=device)
    assert [group.layers for group in store.groups] == [(0, 2, 4), (1, 3)]
    assert [group.sliding_window for group in store.groups] == [4, None]
    assert store.group_of == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    store.layers[1].fill_(1)
    assert [bool(layer.any()) for layer in store.layers] == [True, True, False, False, False]
    assert store.num_bytes == 3 * store.layers[0].nbytes


def test_layers_that_attend_alike_are_one_group(store: PagedKVStore) -> None:
    assert [group.layers for group in store.groups] == [(0, 1)]
    assert store.num_bytes == 2 * store.layers[0].nbytes


def test_what_was_written_to_slots_of_a_layer_is_read_from_them_and_from_no_other_layer(
    store: PagedKVStore, device: torch.device
) -> None:
    slots = store.slots([3, 1], 2, 7).to(device)
    key = torch.arange(15.0, device=device).reshape(5, 1, 3)
    store.write(1, slots, key, -key)
    keys, values = store.read(1, slots)
    assert torch.equal(keys, key)
    assert torch.equal(values, -key)
    assert not store.read(0, slots)[0].any()
