"""The embedding of a chat: what is posted, and what is made of an answer, which comes at once."""

from collections.abc import Mapping, Sequence
from typing import Any

from cacheproof.differential.serving.answers import ServerAnswer
from cacheproof.differential.serving.chats import body_of
from cacheproof.differential.serving.posted import Posted
from cacheproof.differential.serving.traffic import AskedPrompt, ChatPrompt

PATH = "/v1/embeddings"


class Embedding:
    """One request, with an answer that is filled."""

    def __init__(self, question: ChatPrompt, request: AskedPrompt, alone: Sequence[bool]) -> None:
        body = body_of(question, request, alone, encoding_format="float")
        self.posted = Posted(PATH, "application/json", body)
        self.answer = ServerAnswer()

    def take(self, told: Mapping[str, Any]) -> None:
        """Take in an answer."""
        (one,) = told["data"]
        self.answer.embedding = one["embedding"]
        self.answer.lengths = told["usage"]["prompt_tokens"], 0
