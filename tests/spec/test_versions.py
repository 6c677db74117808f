"""Releases are ordered by number, and sets of them are read from a short text."""

from itertools import pairwise

import pytest

from cacheproof.spec.versions import Versions, release_key


def test_releases_are_ordered_by_number_not_by_text() -> None:
    releases = ["0.9.2", "0.10.0", "0.10.1", "0.10.1.1", "0.10.2", "0.33.0", "1.0"]
    keys = [release_key(release) for release in releases]
    assert all(earlier < later for earlier, later in pairwise(keys))


@pytest.mark.parametrize("same", ["0.33.0", "0.33", "0.33.0.dev1", "0.33.0+cpu", "0.33.0rc1"])
def test_what_follows_the_digits_is_cut(same: str) -> None:
    assert release_key(same) == release_key("0.33.0")


@pytest.mark.parametrize("text", ["", "main", "v0.33.0"])
def test_what_is_no_number_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="not a release number such as"):
        release_key(text)


@pytest.mark.parametrize(
    ("versions", "inside", "outside"),
    [
        ("all", ["0.1", "99.0"], []),
        (">=0.10.2", ["0.10.2", "0.33.0"], ["0.10.1.1", "0.9"]),
        ("<0.15.0", ["0.14.1"], ["0.15.0", "0.15.1"]),
        (">=0.13.0,<0.15.0", ["0.13.0", "0.14.1"], ["0.12.0", "0.15.0"]),
    ],
)
def test_a_set_of_releases_is_read_from_its_text(
    versions: str, inside: list[str], outside: list[str]
) -> None:
    assert all(release in Versions(versions) for release in inside)
    assert not any(release in Versions(versions) for release in outside)


@pytest.mark.parametrize("text", ["newest", "==0.3", ">0.3", ">=main", ""])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected all|not a release number"):
        Versions(text)


def test_sets_are_equal_by_their_text() -> None:
    assert Versions("<0.15.0") == Versions("<0.15.0")
    assert Versions("all") != Versions("<0.15.0")
    assert len({Versions("all"), Versions("all")}) == 1
