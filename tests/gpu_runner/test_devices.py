import pytest
import torch

from cacheproof.gpu_runner.devices import in_words, upload


@pytest.mark.parametrize(("width", "words"), [(4, 1), (24, 6)])
def test_rows_of_whole_words_are_moved_as_words(
    device: torch.device, width: int, words: int
) -> None:
    rows = torch.randn(5, width, device=device)
    assert in_words(rows).shape == (5, words)
    places, moved = upload([4, 0, 2], device), torch.zeros(6, width, device=device)
    in_words(moved).index_copy_(0, places, in_words(rows[1:4]))
    expected = torch.zeros_like(moved)
    expected[places] = rows[1:4]
    assert torch.equal(moved, expected)


@pytest.mark.parametrize("width", [1, 3, 6])
def test_rows_that_are_no_whole_words_stay_as_they_are(device: torch.device, width: int) -> None:
    rows = torch.randn(5, width, device=device)
    assert in_words(rows) is rows


def test_numbers_arrive_as_what_they_are(device: torch.device) -> None:
    assert upload([1, 2], device).dtype == torch.int64
    assert upload([], device).dtype == torch.int64
    parts = torch.tensor([0.25, 0.75])
    assert torch.equal(upload(parts, device).cpu(), parts)
    assert upload(parts > 0.5, device).tolist() == [False, True]
