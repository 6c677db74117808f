"""Requests that a server has to refuse, and who sends the same medium after them."""

import json
from collections import Counter
from collections.abc import Callable

import pytest

from cacheproof.differential.serving.refusals import POOLED_WAYS, WAYS, RefusedRequest, refusals
from tests.differential.serving.stand_in import Body, replying

MEDIUM_FAILS = 500


def content(body: Body) -> str:
    """The first part of a chat, its medium."""
    return json.dumps(body["messages"][0]["content"][0])


def failing(fails: int) -> Callable[[Body], tuple[int, bytes]]:
    """Refuses the first request about a medium, fails so many after it, and answers the rest."""
    seen: Counter[str] = Counter()

    def reply(body: Body) -> tuple[int, bytes]:
        medium = content(body)
        status = [400, *[MEDIUM_FAILS] * fails, *[200] * 2][seen[medium]]
        seen[medium] += 1
        return status, b"{}"

    return reply


@pytest.mark.parametrize(
    ("fails", "then"), [(0, (200, 200)), (1, (MEDIUM_FAILS, 200)), (2, (MEDIUM_FAILS,) * 2)]
)
def test_each_way_has_a_medium_of_its_own(fails: int, then: tuple[int, int]) -> None:
    with replying(failing(fails)) as (url, sent):
        told = list(refusals(url, "llava", 0))
    failed_at = [one.failed_at for one in told]
    assert all(len(one) == sum(status != 200 for status in then) for one in failed_at)
    assert [one._replace(failed_at=()) for one in told] == [
        RefusedRequest(way, 400, then) for way in WAYS
    ]
    assert all(one.is_refused and one.failed_after == fails for one in told)
    wrong, right = sent[::3], sent[1::3]
    assert sent[2::3] == right
    for way, first, second in zip(WAYS, wrong, right, strict=True):
        asked = {name: value for name, value in first.items() if second.get(name) != value}
        words = {"messages"} if not WAYS[way] else set()
        assert asked.keys() == WAYS[way].keys() | words


def test_a_server_for_embeddings_has_ways_of_its_own_and_one_that_classifies_none() -> None:
    with replying(failing(1)) as (url, sent):
        told = list(refusals(url, "llava", 0, "embed"))
        assert list(refusals(url, "llava", 0, "classify")) == []
    assert [one.way for one in told] == list(POOLED_WAYS)
    assert all(one.then == (MEDIUM_FAILS, 200) for one in told)
    assert all("max_tokens" not in body for body in sent)


def test_a_connection_that_fails_is_no_refusal() -> None:
    (first, *_) = refusals("http://127.0.0.1:9", "qwen2_audio", 0)
    assert (first.refused, first.then) == (0, (0, 0))
    assert not first.is_refused
    assert first.failed_after == 2
