"""Which KV is computed, and over what: the prefix of a request, or the rows of a prompt of
embeddings."""

import pytest

from cacheproof.differential.judges.scheduler_kv import KVMirror, KVText
from cacheproof.differential.traces.base import Item, Rows
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.scheduler import Chunk
from cacheproof.spec.scheduler_kv import KVReads
from tests.differential.scheduler_traces import CONFIG

STEP = {
    "computed": {},
    "scheduled": {},
    "preempted": [],
    "new": [],
    "resumed": [],
    "blocks": {},
    "drafts": {},
    "free_blocks": 0,
}
"""The outcome of a step that schedules nothing."""


@pytest.mark.parametrize(
    ("reader", "start", "is_left"),
    [
        (Add("b", 40), 32, True),
        (Add("b", 40), 16, False),
        (Add("b", 40, salt="another"), 32, False),
        (Add("b", 31, max_tokens=9), 32, False),
    ],
)
def test_a_block_is_left_if_its_request_had_not_computed_it_when_it_was_preempted(
    reader: Add, start: int, is_left: bool
) -> None:
    added = {"a": Add("a", 40), "b": reader}
    mirror = KVMirror(CONFIG, added.__getitem__)
    first = {"computed": {"a": 0}, "scheduled": {"a": 24}, "new": ["a"], "blocks": {"a": [[1, 2]]}}
    hit = {"computed": {"b": start}, "scheduled": {"b": 1}, "new": ["b"]}
    hit["blocks"] = {"b": [[1, 2, 3]]}
    for outcome in (first, {"preempted": ["a"]}, hit):
        list(mirror.schedule(STEP | outcome))
    assert mirror.was_left("b", 1 if start == 16 else 2) == is_left


@pytest.mark.parametrize(
    ("decoded", "right"), [(((7,), (7,)), 16), (((7,), (8,)), 15), (((), ()), 15)]
)
def test_a_decoded_block_is_right_for_who_decodes_the_same(
    decoded: tuple[tuple[int, ...], ...], right: int
) -> None:
    mirror = KVMirror(CONFIG, {"a": Add("a", 31), "b": Add("b", 31)}.__getitem__)
    begin = {"computed": {"a": 0, "b": 0}, "scheduled": {"a": 31, "b": 31}, "new": ["a", "b"]}
    begin["blocks"] = {"a": [[1, 2]], "b": [[3, 4]]}
    goes_on = {"computed": {"a": 31}, "scheduled": {"a": 1}, "preempted": ["b"]}
    hit = {"computed": {"b": 32}, "scheduled": {"b": 1}, "resumed": ["b"]}
    hit["blocks"] = {"b": [[1, 2, 5]]}
    list(mirror.schedule(STEP | begin))
    for name, tokens in zip("ab", decoded, strict=True):
        mirror.decode(name, tokens)
    list(mirror.schedule(STEP | goes_on))
    _, reads, _ = mirror.schedule(STEP | hit)
    assert isinstance(reads, KVReads)
    assert (reads.reads["b"][2], reads.right["b"][2]) == (16, right)


@pytest.mark.parametrize(
    ("chunk", "first", "right"),
    [
        (Chunk("a", 2, (Item("x", 0, 2),)), 30, 16),
        (Chunk("a", 2, (Item("y", 0, 2),)), 30, 14),
        (Chunk("a", 2), 30, 14),
        (Chunk("a", 1, (Item("x", 0, 1),)), 31, 14),
    ],
    ids=["the same", "another item", "text from its beginning", "behind a decoded token"],
)
def test_what_a_session_computes_of_a_chunk_is_right_for_its_text(
    chunk: Chunk, first: int, right: int
) -> None:
    added = {"a": Add("a", 30, resumable=True), "b": Add("b", 40, (Item("x", 30, 2),))}
    mirror = KVMirror(CONFIG, added.__getitem__)
    begin = {"computed": {"a": 0}, "scheduled": {"a": 30}, "new": ["a"], "blocks": {"a": [[1, 2]]}}
    goes_on = {"computed": {"a": 30}, "scheduled": {"a": 2}}
    hit = {"computed": {"b": 32}, "scheduled": {"b": 1}, "new": ["b"], "blocks": {"b": [[1, 2, 3]]}}
    list(mirror.schedule(STEP | begin))
    mirror.go_on("a", first, chunk)
    list(mirror.schedule(STEP | goes_on))
    _, reads, _ = mirror.schedule(STEP | hit)
    assert isinstance(reads, KVReads)
    assert (reads.reads["b"], reads.right["b"]) == ({1: 16, 2: 16}, {1: 16, 2: right})


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
