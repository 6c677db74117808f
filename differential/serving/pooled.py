"""What a server tells of a chat at once, and that is no answer: its embedding, the class that it is
of, or how like another one it is."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cacheproof.differential.serving.answers import ServerAnswer
from cacheproof.differential.serving.chats import body_of, content_of
from cacheproof.differential.serving.posted import MODEL_NAME, Posted
from cacheproof.differential.serving.traffic import AskedPrompt, ChatPrompt, ServedTask

PATHS: Mapping[ServedTask, str] = {
    "embed": "/v1/embeddings",
    "classify": "/classify",
    "score": "/score",
}


class Pooled:
    """One request, with an answer that is filled. `other` is the prompt that a score is of, too."""

    def __init__(
        self,
        task: ServedTask,
        question: ChatPrompt,
        request: AskedPrompt,
        alone: Sequence[bool],
        other: ChatPrompt | None = None,
    ) -> None:
        if other is None:
            asks = {"encoding_format": "float"} if task == "embed" else {}
            body = body_of(question, request, alone, **asks)
        else:
            body = _pair(question, request, alone, other)
        self.posted = Posted(PATHS[task], "application/json", body)
        self.answer = ServerAnswer()
        self._task = task

    def take(self, told: Mapping[str, Any]) -> None:
        """Take in an answer. Of a score the lengths are left out: releases count tokens there that
        are no prompt's."""
        (one,) = told["data"]
        if self._task == "score":
            self.answer.vector = [one["score"]]
            return
        self.answer.vector = one["embedding" if self._task == "embed" else "probs"]
        self.answer.lengths = told["usage"]["prompt_tokens"], 0


def _pair(
    question: ChatPrompt, request: AskedPrompt, alone: Sequence[bool], other: ChatPrompt
) -> bytes:
    """What is posted for a score: two prompts, the media of the second one without names."""
    unnamed = (None,) * len(other.media), (False,) * len(other.media)
    body = {
        "model": MODEL_NAME,
        "data_1": {"content": content_of(question, request.uuids, alone)},
        "data_2": {"content": content_of(other, *unnamed)},
        "priority": request.priority,
    }
    return json.dumps(body).encode()
