"""Positions on three axes, and which rows of a video are kept, by hand."""

import pytest
import torch

from cacheproof.gpu_runner.rotary import AXES, Grid, of_prompt
from cacheproof.gpu_runner.video_pruning import num_retained, retained
from cacheproof.reference.request import PlaceholderRange


def test_text_counts_up_on_all_axes() -> None:
    positions, behind = of_prompt(3, [])
    assert positions.tolist() == [[0, 1, 2]] * AXES
    assert behind == 3


def test_an_image_stands_in_a_grid_and_text_goes_on_behind_its_longer_side() -> None:
    positions, behind = of_prompt(10, [(PlaceholderRange(2, 6), Grid(1, 2, 3))])
    assert positions[:, 2:8].tolist() == [[2] * 6, [2, 2, 2, 3, 3, 3], [2, 3, 4, 2, 3, 4]]
    assert positions[:, 8:].tolist() == [[5, 6]] * AXES
    assert behind == 7


def test_frames_are_apart_by_their_interval_and_text_goes_on_behind_the_last() -> None:
    positions, behind = of_prompt(7, [(PlaceholderRange(1, 6), Grid(3, 1, 2, 2.5))])
    assert positions[0, 1:].tolist() == [1, 1, 3, 3, 6, 6]
    assert positions[2, 1:].tolist() == [1, 2, 1, 2, 1, 2]
    assert behind == 7


def test_items_that_touch_follow_one_another() -> None:
    items = [(PlaceholderRange(4, 2), Grid(1, 1, 2)), (PlaceholderRange(0, 4), Grid(1, 2, 2))]
    positions, behind = of_prompt(6, items)
    assert positions[2].tolist() == [0, 1, 0, 1, 2, 3]
    assert behind == 4


def test_a_pruned_item_is_one_place_and_text_goes_on_behind_its_width() -> None:
    positions, behind = of_prompt(6, [(PlaceholderRange(1, 3), Grid(4, 5, 2, 2.0))], pruned=True)
    assert positions.tolist() == [[0, 1, 1, 1, 3, 4]] * AXES
    assert behind == 5


@pytest.mark.parametrize(
    ("grid", "rate", "kept"),
    [
        (Grid(4, 2, 2), 0.5, 8),
        (Grid(4, 2, 2), 0.9, 4),
        (Grid(3, 1, 1), 0.5, 1),
        (Grid(1, 2, 2), 0.7, 4),
    ],
)
def test_the_first_frame_stays_whatever_the_rate(grid: Grid, rate: float, kept: int) -> None:
    assert num_retained(grid, rate) == kept


def test_rows_that_say_least_new_are_dropped() -> None:
    still, turned = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    rows = torch.stack([still, still, still, turned, still, turned])
    assert retained(rows, Grid(3, 1, 2), 0.5).tolist() == [0, 1, 3]
    assert retained(rows, Grid(3, 1, 2), 0.4).tolist() == [0, 1, 3]
    assert retained(rows, Grid(3, 1, 2), 0.2).tolist() == [0, 1, 2, 3]
