"""A chat: what is posted, and what is made of an answer, which has all of its tokens."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cacheproof.differential.serving.answers import ServerAnswer
from cacheproof.differential.serving.posted import MODEL_NAME, Posted
from cacheproof.differential.serving.traffic import AskedPrompt, ChatPrompt

PATH = "/v1/chat/completions"


class Chat:
    """One request, with an answer that is filled piece by piece."""

    def __init__(self, question: ChatPrompt, request: AskedPrompt, alone: Sequence[bool]) -> None:
        body = body_of(
            question,
            request,
            alone,
            max_tokens=request.max_tokens,
            temperature=0,
            logprobs=True,
            top_logprobs=2,
            return_token_ids=True,
            stream=not request.at_once,
        )
        self.posted = Posted(PATH, "application/json", body)
        self.answer = ServerAnswer()

    def take(self, told: Mapping[str, Any]) -> None:
        """Take in an answer, or a piece of one."""
        answer = self.answer
        answer.prompt = told.get("prompt_token_ids") or answer.prompt
        for choice in told["choices"]:
            # The end token has an id, and may have no log probability of its own beside it.
            logprobs = (choice.get("logprobs") or {}).get("content") or []
            for token_id, one in zip(choice.get("token_ids") or (), logprobs, strict=True):
                tops = sorted((top["logprob"] for top in one["top_logprobs"]), reverse=True)
                answer.tokens.append((token_id, one["logprob"], tops[0] - tops[1]))
            answer.ended = choice["finish_reason"] or answer.ended


def body_of(
    question: ChatPrompt, request: AskedPrompt, alone: Sequence[bool], **asks: object
) -> bytes:
    """What is posted: a chat, and what is asked of it. `alone`: of each medium, whether it is named
    without its data."""
    content = content_of(question, request.uuids, alone)
    body = {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": content}],
        "priority": request.priority,
        **asks,
        **({} if request.salt is None else {"cache_salt": request.salt}),
    }
    return json.dumps(body).encode()


def content_of(
    question: ChatPrompt, uuids: Sequence[str | None], alone: Sequence[bool]
) -> list[dict[str, object]]:
    """A prompt's parts, its media under these names."""
    named = iter(zip(uuids, alone, strict=True))
    content: list[dict[str, object]] = []
    for part in question.parts:
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
        else:
            uuid, is_alone = next(named)
            content.append(part.part(uuid, has_data=not is_alone))
    return content
