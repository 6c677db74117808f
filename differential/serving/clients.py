"""Clients that ask a server at once, each one request after the other."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any

from cacheproof.differential.serving.traffic import Ask, Question, Traffic

ANSWER_SECONDS = 180.0
_PATH = "/v1/chat/completions"
_HEADERS = {"Content-Type": "application/json"}
_MISSING = "data is not provided"
"""What a server says that does not know a name which came alone."""


@dataclass
class Answer:
    """What came back.

    Attributes:
        tokens: each as [id, log probability, lead of the best over the second].
        prompt: the tokens of the prompt, as the server says they are.
        ended: why it ended, in the server's word; None where the client left before, or it failed.
        failed: what kept the client from an answer; empty for nothing.
        refused_alone: whether names alone were refused, and the media sent after them.
        asked_again: whether the server failed, and was asked once more.
    """

    tokens: list[tuple[int, float, float]] = field(default_factory=list)
    prompt: list[int] | None = None
    ended: str | None = None
    failed: str = ""
    refused_alone: bool = False
    asked_again: bool = False


def ask_all(url: str, traffic: Traffic, clients: int) -> list[Answer]:
    """The answer to each request; so many clients ask at once, in the order of the requests."""
    pool = ThreadPoolExecutor(clients)
    try:
        return list(
            pool.map(lambda one: ask(url, traffic.questions[one.question], one), traffic.asks)
        )
    finally:  # who is interrupted asks nothing more
        pool.shutdown(wait=False, cancel_futures=True)


def ask(url: str, question: Question, request: Ask) -> Answer:
    """Ask one thing, as a client does that has all media itself: what a server does not know by
    name alone is sent after all, and a server that fails is asked once more, with all media."""
    answer = _ask(url, question, request, request.alone)
    with_media = (False,) * len(request.alone)
    if any(request.alone) and _MISSING in answer.failed:
        answer = _ask(url, question, request, with_media)
        answer.refused_alone = True
    if answer.failed.startswith("500"):
        refused_alone = answer.refused_alone
        answer = _ask(url, question, request, with_media)
        answer.refused_alone, answer.asked_again = refused_alone, True
    return answer


def _leave_at_once(url: str, body: bytes) -> None:
    """Post, and hang up before the first word of an answer."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", _PATH, body, _HEADERS)
    finally:
        connection.close()


def _ask(url: str, question: Question, request: Ask, alone: Sequence[bool]) -> Answer:
    answer = Answer()
    body = json.dumps(_body(question, request, alone)).encode()
    posted = urllib.request.Request(f"{url}{_PATH}", data=body, headers=_HEADERS)
    try:
        if request.leaves_after == 0:
            _leave_at_once(url, body)
            return answer
        with urllib.request.urlopen(posted, timeout=ANSWER_SECONDS) as response:
            if request.at_once:
                _take(answer, json.load(response))
            else:
                for told in _streamed(response):
                    _take(answer, told)
                    if request.leaves_after and len(answer.tokens) >= request.leaves_after:
                        answer.ended = None
                        break
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")
        answer.failed = f"{error.code}: {' '.join(said.split())[:300]}"
    except (OSError, HTTPException, ValueError) as error:
        answer.failed = f"{type(error).__name__}: {error}"[:300]
    return answer


def _body(question: Question, request: Ask, alone: Sequence[bool]) -> dict[str, Any]:
    named = iter(zip(request.uuids, alone, strict=True))
    content: list[dict[str, Any]] = []
    for part in question.parts:
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
        else:
            uuid, is_alone = next(named)
            content.append(part.part(uuid, has_data=not is_alone))
    body: dict[str, Any] = {
        "model": "tiny",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 2,
        "return_token_ids": True,
        "priority": request.priority,
        "stream": not request.at_once,
    }
    return body if request.salt is None else body | {"cache_salt": request.salt}


def _streamed(response: Any) -> Iterator[Mapping[str, Any]]:
    """What is told piece by piece, as server-sent events."""
    for line in response:
        word, _, data = line.decode().strip().partition(": ")
        if word == "data" and data != "[DONE]":
            yield json.loads(data)


def _take(answer: Answer, told: Mapping[str, Any]) -> None:
    """Take in an answer, or a piece of one."""
    if "error" in told:
        answer.failed = str(told["error"])[:300]
        return
    answer.prompt = told.get("prompt_token_ids") or answer.prompt
    for choice in told["choices"]:
        # The end token has an id, and may have no log probability of its own beside it.
        logprobs = (choice.get("logprobs") or {}).get("content") or []
        for token_id, one in zip(choice.get("token_ids") or (), logprobs, strict=True):
            best, second = sorted((top["logprob"] for top in one["top_logprobs"]), reverse=True)[:2]
            answer.tokens.append((token_id, one["logprob"], best - second))
        answer.ended = choice["finish_reason"] or answer.ended
