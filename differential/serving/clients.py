"""Clients that ask a server at once, each one request after the other."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import Any

from cacheproof.differential.serving import chats, pooled, transcripts
from cacheproof.differential.serving.answers import FAILED, Failure, ServerAnswer
from cacheproof.differential.serving.posted import Posted
from cacheproof.differential.serving.traffic import AskedPrompt, ChatPrompt, ServedTask, Traffic

ANSWER_SECONDS = 180.0
_MISSING = "data is not provided"
"""What a server says that does not know a name which came alone."""
_PAUSED = "Generation is paused"
"""What a server says that an operator has paused, or put to sleep."""
_RETRY_SECONDS, _RETRIES = 0.1, 600
_Way = chats.Chat | transcripts.Transcript | pooled.Pooled


def ask_all(
    url: str,
    traffic: Traffic,
    clients: int,
    advance: Callable[[], None] = lambda: None,
    *,
    patience: int = 1,
) -> list[ServerAnswer]:
    """The answer to each request, in order; so many clients ask at once. `advance` is called for
    each answer; a request that fails is asked again so many times."""
    pool = ThreadPoolExecutor(clients)
    answers = []
    try:
        for answer in pool.map(
            lambda one: ask(
                url,
                traffic.questions[one.question],
                one,
                patience,
                traffic.settings.task,
                None if one.other is None else traffic.questions[one.other],
            ),
            traffic.asks,
        ):
            answers.append(answer)
            advance()
        return answers
    finally:  # who is interrupted asks nothing more
        pool.shutdown(wait=False, cancel_futures=True)


def ask(
    url: str,
    question: ChatPrompt,
    request: AskedPrompt,
    patience: int = 1,
    task: ServedTask = "generate",
    other: ChatPrompt | None = None,
) -> ServerAnswer:
    """Ask one thing, as a client does that has all media itself: what a server does not know by
    name alone is sent after all, a server that fails is asked again, with all media, and one that
    is paused until it goes on."""
    ask_with = partial(_ask_when_on, url, question, request, task=task, other=other)
    answer = ask_with(request.alone)
    with_media = (False,) * len(request.alone)
    if any(request.alone) and _MISSING in answer.failed:
        answer = ask_with(with_media)
        answer.refused_alone = True
    failures: list[Failure] = []
    while answer.failed.startswith(FAILED):
        failures.append(Failure(answer.asked_at, answer.ended_at))
        if len(failures) > patience:
            break
        refused_alone = answer.refused_alone
        answer = ask_with(with_media)
        answer.refused_alone, answer.times_asked_again = refused_alone, len(failures)
    answer.failures = failures
    return answer


def _ask_when_on(
    url: str,
    question: ChatPrompt,
    request: AskedPrompt,
    alone: Sequence[bool],
    *,
    task: ServedTask,
    other: ChatPrompt | None,
) -> ServerAnswer:
    """Ask until the server is not paused; one that stays paused has failed."""
    for _ in range(_RETRIES):
        answer = _ask(url, _way(question, request, alone, task, other), request)
        if _PAUSED not in answer.failed:
            break
        time.sleep(_RETRY_SECONDS)
    return answer


def _leave_at_once(url: str, posted: Posted) -> None:
    """Post, and hang up before the first word of an answer."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", posted.path, posted.body, posted.headers)
    finally:
        connection.close()


def _way(
    question: ChatPrompt,
    request: AskedPrompt,
    alone: Sequence[bool],
    task: ServedTask,
    other: ChatPrompt | None,
) -> _Way:
    """What is posted, and what takes the answer in."""
    if task != "generate":
        return pooled.Pooled(task, question, request, alone, other)
    if question.wish is None:
        return chats.Chat(question, request, alone)
    return transcripts.Transcript(question, question.wish, request)


def _ask(url: str, way: _Way, request: AskedPrompt) -> ServerAnswer:
    answer, posted = way.answer, way.posted
    answer.asked_at = time.time()
    is_pooled = isinstance(way, pooled.Pooled)
    try:
        if request.leaves_after is not None and (request.leaves_after == 0 or is_pooled):
            _leave_at_once(url, posted)
            return answer
        asked = urllib.request.Request(f"{url}{posted.path}", posted.body, posted.headers)
        with urllib.request.urlopen(asked, timeout=ANSWER_SECONDS) as response:
            at_once = request.at_once or is_pooled
            for told in [json.load(response)] if at_once else _streamed(response):
                if "error" in told:
                    answer.failed = _failure(told["error"])
                    break
                way.take(told)
                if request.leaves_after and len(answer.tokens) >= request.leaves_after:
                    answer.ended = None
                    break
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")
        answer.failed = f"{error.code}: {' '.join(said.split())[:300]}"
    except (OSError, HTTPException, ValueError) as error:
        answer.failed = f"{type(error).__name__}: {error}"[:300]
    finally:
        answer.ended_at = time.time()
    return answer


def _failure(error: Any) -> str:
    """What a stream says that fails: the status that it would have had, and the words."""
    if not isinstance(error, dict):
        return f"500: {error}"[:300]
    return f"{error.get('code', 500)}: {error.get('message', error)}"[:300]


def _streamed(response: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """What is told piece by piece, as server-sent events."""
    for line in response:
        word, _, data = line.decode().strip().partition(": ")
        if word == "data" and data != "[DONE]":
            yield json.loads(data)
