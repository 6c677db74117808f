"""What becomes of a picture that came with a request which had to be refused.

A server fetches and processes media before it knows whether it takes the request. Who sends the
same medium next has asked for nothing wrong, and is to be answered.
"""

import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import NamedTuple

from cacheproof.differential.serving import chats, pooled
from cacheproof.differential.serving.posted import MODEL_NAME
from cacheproof.differential.serving.traffic import (
    MAX_MODEL_LEN,
    MODALITIES,
    ServedMedium,
    ServedModel,
    ServedTask,
    medium_of,
)

WAYS: Mapping[str, Mapping[str, object]] = {
    "a prompt that is too long": {},
    "more tokens than there are places": {"max_tokens": 2 * MAX_MODEL_LEN},
    "more tokens at least than at most": {"min_tokens": 10},
    "too many log probabilities": {"logprobs": True, "top_logprobs": 1000},
    "a token that is none, allowed": {"allowed_token_ids": [10**8]},
    "a token that is none, with a bias": {"logit_bias": {str(10**8): 1}},
}
"""Why a request has to be refused, and what it asks for beside a medium and a few tokens."""
POOLED_WAYS: Mapping[str, Mapping[str, object]] = {
    "a prompt that is too long": {},
    "a cut behind the last place": {"truncate_prompt_tokens": 2 * MAX_MODEL_LEN},
    "fewer numbers than an embedding has": {"dimensions": 8},
}
"""The same where it asks for an embedding."""
_ANSWER_SECONDS = 60.0
_ANSWERED = 200
_REFUSED = range(400, 500)


class RefusedRequest(NamedTuple):
    """A request that had to be refused, and two after it that ask about its medium.

    Attributes:
        refused: the status of the first; 0 for a connection that failed.
        then: those of the two after it, one after the other.
        failed_at: when one of these failed, each time, in seconds since the epoch.
    """

    way: str
    refused: int
    then: tuple[int, int]
    failed_at: tuple[float, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether the server said that the first request was wrong."""
        return self.refused in _REFUSED

    @property
    def failed_after(self) -> int:
        """How many of the two after it were not answered."""
        return sum(status != _ANSWERED for status in self.then)


def refusals(
    url: str, model: ServedModel, seed: int, task: ServedTask = "generate"
) -> Iterator[RefusedRequest]:
    """Ask in every way, each about a medium that the server has not seen. A server that transcribes
    is asked nothing, nor one that classifies or scores."""
    if model == "whisper" or task not in ("generate", "embed"):
        return
    ways, path = (WAYS, chats.PATH) if task == "generate" else (POOLED_WAYS, pooled.PATHS[task])
    asks = {"max_tokens": 4, "temperature": 0} if task == "generate" else {}
    rng = random.Random(f"refusals {model} {seed}")
    for number, (way, wrong) in enumerate(ways.items()):
        medium = medium_of(rng, MODALITIES[model][0], number)
        words = MAX_MODEL_LEN if not wrong else 2
        refused = _status(url + path, {**_body(medium, words), **asks, **wrong})
        right = {**_body(medium, 2), **asks}
        asked = [(_status(url + path, right), time.time()) for _ in range(2)]
        (once, _), (again, _) = asked
        failed_at = tuple(when for status, when in asked if status != _ANSWERED)
        yield RefusedRequest(way, refused, (once, again), failed_at)


def _body(medium: ServedMedium, words: int) -> dict[str, object]:
    content = [medium.part(None, has_data=True), {"type": "text", "text": "w1 " * words}]
    return {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": content}],
    }


def _status(url: str, body: Mapping[str, object]) -> int:
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, HTTPException):
        return 0
