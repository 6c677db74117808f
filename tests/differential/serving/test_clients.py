"""Clients beside a server that is none: what they send, and what they make of what comes back."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cacheproof.differential.serving.clients import ServerAnswer, ask
from cacheproof.differential.serving.traffic import AskedPrompt, ChatPrompt, ServedMedium
from tests.differential.serving.stand_in import Body, replying

QUESTION = ChatPrompt(("w1", ServedMedium("image", "image 1", b"data"), "w2"))
REQUEST = AskedPrompt(0, 8, ("image 1",), (False,), 2, "salt", leaves_after=None, at_once=True)
ALONE = replace(REQUEST, alone=(True,))
ANSWERED = 200
Reply = Callable[[dict[str, Any]], tuple[int, list[dict[str, Any]]]]


def choice(token_id: int, ended: str | None = None) -> dict[str, Any]:
    """A piece of an answer, with one token."""
    tops = [{"logprob": -1.5}, {"logprob": -1.0}]
    logprobs = {"content": [{"logprob": -1.0, "top_logprobs": tops}]}
    return {"token_ids": [token_id], "logprobs": logprobs, "finish_reason": ended}


def piece(*choices: dict[str, Any]) -> dict[str, Any]:
    return {"prompt_token_ids": [7, 8], "choices": list(choices)}


def one_after_the_other(*replies: Reply) -> Callable[[Body], tuple[int, bytes]]:
    """What is replied to each request, as a chat's server writes it."""
    left = iter(replies)

    def reply(body: Body) -> tuple[int, bytes]:
        status, pieces = next(left)(body)
        texts = map(json.dumps, pieces)
        if not body["stream"]:
            return status, "".join(texts).encode()
        return status, "".join(f"data: {text}\n\n" for text in (*texts, "[DONE]")).encode()

    return reply


def answered(request: AskedPrompt, *replies: Reply) -> tuple[ServerAnswer, list[dict[str, Any]]]:
    with replying(one_after_the_other(*replies)) as (url, sent):
        return ask(url, QUESTION, request), sent


def right(body: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Three tokens, at once or one by one."""
    choices = [choice(10), choice(11), choice(12, "length")]
    if body["stream"]:
        return ANSWERED, [piece(one) for one in choices]
    whole = choice(12, "length")
    whole["token_ids"] = [10, 11, 12]
    whole["logprobs"]["content"] *= 3
    return ANSWERED, [piece(whole)]


def failing(status: int, words: str) -> Reply:
    return lambda body: (status, [{"error": {"message": words}}])


def test_an_answer_at_once_and_one_by_one_are_the_same() -> None:
    at_once, sent = answered(REQUEST, right)
    streamed, _ = answered(replace(REQUEST, at_once=False), right)
    assert at_once == streamed
    assert at_once.tokens == [(10, -1.0, 0.5), (11, -1.0, 0.5), (12, -1.0, 0.5)]
    assert (at_once.prompt, at_once.ended, at_once.failed) == ([7, 8], "length", "")
    (body,) = sent
    assert body["cache_salt"] == "salt"
    assert body["priority"] == 2
    assert [part["type"] for part in body["messages"][0]["content"]] == [
        "text",
        "image_url",
        "text",
    ]


def test_who_leaves_has_what_came_until_then() -> None:
    left, _ = answered(replace(REQUEST, at_once=False, leaves_after=2), right)
    assert [token for token, *_ in left.tokens] == [10, 11]
    assert left.ended is None
    assert left.failed == ""
    gone, _ = answered(replace(REQUEST, at_once=False, leaves_after=0), right)
    assert gone == ServerAnswer()


def test_what_is_not_known_by_its_name_is_sent_after_all() -> None:
    missing = failing(400, "Cache miss for image at index 0 but data is not provided.")
    answer, sent = answered(ALONE, missing, right)
    assert answer.refused_alone
    assert answer.ended == "length"
    parts = [body["messages"][0]["content"][1] for body in sent]
    assert [part["image_url"] is None for part in parts] == [True, False]
    assert {part["uuid"] for part in parts} == {"image 1"}


def test_a_server_that_fails_is_asked_once_more_with_all_media() -> None:
    answer, sent = answered(ALONE, failing(500, "Internal server error"), right)
    assert answer.times_asked_again == 1
    assert answer.ended == "length"
    assert sent[1]["messages"][0]["content"][1]["image_url"] is not None
    failed, _ = answered(REQUEST, failing(500, "no"), failing(500, "still no"))
    assert "still no" in failed.failed


def test_a_stream_that_fails_is_asked_for_once_more() -> None:
    def fails(body: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
        return ANSWERED, [{"error": {"message": "Internal server error", "code": 500}}]

    answer, _ = answered(replace(REQUEST, at_once=False), fails, right)
    assert answer.times_asked_again == 1
    assert answer.ended == "length"


def test_a_server_that_is_paused_is_asked_until_it_goes_on() -> None:
    paused = failing(503, "Generation is paused. Please retry after it resumes.")
    answer, sent = answered(REQUEST, paused, paused, right)
    assert (answer.ended, answer.times_asked_again, len(sent)) == ("length", 0, 3)


def test_other_refusals_are_told() -> None:
    answer, sent = answered(REQUEST, failing(400, "too long"))
    assert "400" in answer.failed
    assert "too long" in answer.failed
    assert len(sent) == 1
    error = {"message": "too long", "code": 400}
    within, _ = answered(
        replace(REQUEST, at_once=False), lambda body: (ANSWERED, [{"error": error}])
    )
    assert within.failed == "400: too long"
    nobody = ask("http://127.0.0.1:9", QUESTION, REQUEST)
    assert "refused" in nobody.failed


def test_a_score_is_of_two_prompts_whose_media_come_with_their_data() -> None:
    said = {"data": [{"score": 0.25}], "usage": {"prompt_tokens": 15}}
    other = ChatPrompt((ServedMedium("image", "image 2", b"more"), "w3"))
    with replying(lambda body: (200, json.dumps(said).encode())) as (url, sent):
        answer = ask(url, QUESTION, replace(REQUEST, other=1), task="score", other=other)
    assert (answer.vector, answer.lengths) == ([0.25], None)
    first, second = (sent[0][name]["content"] for name in ("data_1", "data_2"))
    assert [part["type"] for part in first] == ["text", "image_url", "text"]
    assert first[1]["uuid"] == "image 1"
    assert [part["type"] for part in second] == ["image_url", "text"]
    assert "uuid" not in second[0]


def test_a_class_is_told_by_the_probability_of_each() -> None:
    said = {"data": [{"probs": [0.5, 0.25, 0.25]}], "usage": {"prompt_tokens": 7}}
    with replying(lambda body: (200, json.dumps(said).encode())) as (url, sent):
        answer = ask(url, QUESTION, REQUEST, task="classify")
    assert (answer.vector, answer.lengths) == ([0.5, 0.25, 0.25], (7, 0))
    assert "messages" in sent[0]


def test_an_embedding_is_asked_for_at_once() -> None:
    said = {"data": [{"embedding": [0.5, 0.5]}], "usage": {"prompt_tokens": 7}}
    with replying(lambda body: (200, json.dumps(said).encode())) as (url, sent):
        answer = ask(url, QUESTION, REQUEST, task="embed")
    assert (answer.vector, answer.lengths) == ([0.5, 0.5], (7, 0))
    assert sent[0]["encoding_format"] == "float"
    assert "max_tokens" not in sent[0]
