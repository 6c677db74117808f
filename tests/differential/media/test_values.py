"""A value is written as the Python that makes it."""

from typing import Any

import pytest

from cacheproof.differential.generators.media_hash import pair
from cacheproof.differential.media import values as media_hash_values
from cacheproof.differential.media.descriptions import call
from cacheproof.differential.media.values import (
    double,
    raw,
    real,
    spelled,
    text,
    written,
)

SEEDS = range(300)


def test_what_is_written_makes_the_value() -> None:
    words: dict[str, Any] = {**vars(media_hash_values), "call": call}
    odd = [double(b"\1" * 7 + b"\x7f"), double(bytes(6) + b"\xf0\x7f"), real(-0.0)]
    long = [text("a\"'" + "k" * 40 + "\\"), raw(b"'\"" + bytes(99)), text("k" * 99)]
    values = [call(**{"x y": value}) for value in (*odd, *long)]
    values += [value for seed in SEEDS for value in pair(seed)[1:]]
    for value in values:
        assert eval(written(value), words) == value


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("", '""'),
        ("k" * 40, '"k" * 40'),
        ("ab" + "k" * 40 + "c", '"ab" + "k" * 40 + "c"'),
        (bytes(20) + b"a", 'b"\\x00" * 20 + b"a"'),
    ],
)
def test_long_runs_are_written_as_products(content: str | bytes, shown: str) -> None:
    assert spelled(content) == shown
