"""Modelled releases, and texts of their spans."""

import pytest

from cacheproof.reference.releases import MODELLED, spans, within


@pytest.mark.parametrize(
    ("releases", "said"),
    [
        (MODELLED, "0.10.2 to 0.33.0"),
        (("0.10.2", "0.11.0", "0.11.2"), "0.10.2 to 0.11.0, 0.11.2"),
        (("0.33.0",), "0.33.0"),
        ((), ""),
    ],
)
def test_releases_are_named_as_the_spans_that_they_make(
    releases: tuple[str, ...], said: str
) -> None:
    assert spans(releases) == said
    assert within(said) == releases


@pytest.mark.parametrize("text", ["0.33", "0.11.0, 0.10.2", "0.10.2, 0.11.0", "0.10.2 to", " "])
def test_what_are_no_spans_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"modelled release|expected spans"):
        within(text)
