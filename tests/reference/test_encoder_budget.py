"""The encoder's two budgets are floored at the largest item, or the configuration is refused."""

from typing import Any

import pytest

from cacheproof.reference.encoder_budget import EncoderLimits, compute_mm_encoder_budget


def limits(**settings: Any) -> EncoderLimits:
    return EncoderLimits(
        max_num_batched_tokens=100,
        max_num_encoder_input_tokens=40,
        encoder_cache_size=50,
        **settings,
    )


def test_the_configuration_stands_where_every_item_fits() -> None:
    assert compute_mm_encoder_budget(limits(), {"image": 30, "audio": 40}) == (40, 50)


@pytest.mark.parametrize(("largest", "budgets"), [(45, (45, 50)), (50, (50, 50)), (60, (60, 60))])
def test_both_budgets_are_floored_at_the_largest_item(
    largest: int, budgets: tuple[int, int]
) -> None:
    assert compute_mm_encoder_budget(limits(), {"image": 10, "video": largest}) == budgets


def test_no_modality_means_no_encoder() -> None:
    assert compute_mm_encoder_budget(limits(disable_chunked_mm_input=True), {}) == (0, 0)


def test_an_item_that_may_not_be_split_must_fit_a_step() -> None:
    whole = limits(disable_chunked_mm_input=True)
    assert compute_mm_encoder_budget(whole, {"image": 100}) == (100, 100)
    with pytest.raises(ValueError, match="101 tokens exceeds max_num_batched_tokens = 100"):
        compute_mm_encoder_budget(whole, {"image": 101})


def test_an_item_that_may_be_split_may_exceed_a_step() -> None:
    assert compute_mm_encoder_budget(limits(), {"image": 101}) == (101, 101)
