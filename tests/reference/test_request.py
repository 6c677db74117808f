"""Placeholders, features and requests as the caches see them."""

import pytest

from cacheproof.reference.request import (
    MultiModalFeature,
    PlaceholderRange,
    Request,
    encoder_identifier,
)

SPARSE = (False, True, True, False, True)


def item(offset: int, length: int, name: str = "h") -> MultiModalFeature:
    return MultiModalFeature.of(name, PlaceholderRange(offset, length))


def test_a_placeholder_without_a_mask_takes_an_embedding_per_token() -> None:
    place = PlaceholderRange(3, 5)
    assert place.get_num_embeds() == 5
    assert place.end == 8
    assert place.get_embeds_indices_in_range(2, 4) == (2, 4)


def test_a_sparse_placeholder_takes_the_embeddings_of_its_mask() -> None:
    assert PlaceholderRange(0, 5, SPARSE).get_num_embeds() == 3
    assert PlaceholderRange(0, 2, (False, False)).get_num_embeds() == 0


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [
        (0, 5, (0, 3)),
        (0, 1, (0, 0)),
        (1, 2, (0, 1)),
        (2, 4, (1, 2)),
        (3, 4, (2, 2)),
        (5, 5, (3, 3)),
    ],
)
def test_a_window_of_a_sparse_placeholder_reads_the_rows_under_it(
    start: int, end: int, rows: tuple[int, int]
) -> None:
    assert PlaceholderRange(7, 5, SPARSE).get_embeds_indices_in_range(start, end) == rows


def test_windows_that_follow_each_other_read_every_row_once() -> None:
    place = PlaceholderRange(0, 5, SPARSE)
    for cut in range(6):
        first, second = (
            place.get_embeds_indices_in_range(0, cut),
            place.get_embeds_indices_in_range(cut, 5),
        )
        assert (first[0], first[1], second[1]) == (0, second[0], 3)


@pytest.mark.parametrize(
    ("offset", "length", "mask"), [(-1, 3, None), (0, 0, None), (0, 3, (True, True)), (0, 1, ())]
)
def test_a_placeholder_that_cannot_be_is_refused(
    offset: int, length: int, mask: tuple[bool, ...] | None
) -> None:
    with pytest.raises(ValueError, match=r"placeholder|mask"):
        PlaceholderRange(offset, length, mask)


def test_an_encoder_adapter_stands_before_the_hash_in_the_identifier() -> None:
    place = PlaceholderRange(0, 1)
    plain = MultiModalFeature.of("hash", place)
    adapted = MultiModalFeature.of("hash", place, lora_name="adapter")
    assert (plain.identifier, plain.mm_hash) == ("hash", "hash")
    assert (adapted.identifier, adapted.mm_hash) == ("adapter:hash", "hash")
    assert encoder_identifier("hash", "other") != encoder_identifier("hash", "adapter")


def test_a_request_counts_the_embeddings_of_its_items() -> None:
    sparse = MultiModalFeature.of("s", PlaceholderRange(4, 5, SPARSE))
    request = Request("r", 9, [item(0, 4), sparse])
    assert [request.get_num_encoder_embeds(number) for number in range(2)] == [4, 3]
    assert request.has_encoder_inputs
    assert not Request("r", 9, []).has_encoder_inputs


@pytest.mark.parametrize(
    ("prompt", "features", "why"),
    [
        (10, [item(0, 4), item(3, 4)], "overlap"),
        (10, [item(5, 2), item(0, 2)], "out of order"),
        (5, [item(2, 4)], "reaches past the prompt"),
    ],
)
def test_a_request_with_impossible_features_is_refused(
    prompt: int, features: list[MultiModalFeature], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Request("r", prompt, features)
