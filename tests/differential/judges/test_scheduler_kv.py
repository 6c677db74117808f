"""What the KV of a prompt of embeddings is computed over: its rows, by what they are."""

import pytest

from cacheproof.differential.judges.scheduler_kv import KVText
from cacheproof.differential.traces.base import Rows
from cacheproof.differential.traces.manager import Add


def of(*names: str, prompt: int = 8) -> KVText:
    """The text of a prompt of these rows, one behind the other, and tokens behind them."""
    rows, at = [], 0
    for name in names:
        length = int(name.split()[-1])
        rows.append(Rows(name, at, length))
        at += length
    return KVText(Add("a", prompt, embeds=tuple(rows) or None))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (("embeddings 1 of 4",), ("embeddings 1 of 4",), 8),
        (("embeddings 1 of 4",), ("embeddings 2 of 4",), 0),
        (("embeddings 1 of 4",), (), 0),
        (("embeddings 1 of 4", "embeddings 2 of 4"), ("embeddings 1 of 4",), 4),
        (("embeddings zero of 4",), ("embeddings zero of 6",), 4),
        (("embeddings zero of 4", "embeddings zero of 2"), ("embeddings zero of 6",), 8),
    ],
)
def test_prompts_are_alike_as_far_as_their_rows_are(
    one: tuple[str, ...], other: tuple[str, ...], alike: int
) -> None:
    pairs = [(of(*one).through(at), of(*other).through(at)) for at in range(8)]
    assert [mine == theirs for mine, theirs in pairs] == [at < alike for at in range(8)]
