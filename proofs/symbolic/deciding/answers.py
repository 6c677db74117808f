"""What was asked of an operation before, and what came of it.

An answer is kept by all that it hangs on: the methods that the operation runs as they are read,
what is said of the class beside them, and the question. So of a class in which one method was
changed the other operations are not proved again, in whatever process they were.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

Answer = TypeVar("Answer")
QuestionPart: TypeAlias = "str | int | bool | Sequence[QuestionPart] | None"
Question = tuple[QuestionPart, ...]
"""What is asked, as texts, numbers, truth values, and lists of them."""


class AnswerStore(Protocol):
    """Where answers are kept, each by a digest."""

    def read(self, digest: str) -> bytes | None: ...

    def write(self, digest: str, answer: bytes) -> None: ...


class OperationAnswers:
    """Answers to what is asked about a kind of class, under one promise and one seed.

    Args:
        store: where they are kept; None: they are not.
        about: what all questions have in common.
    """

    def __init__(self, store: AnswerStore | None = None, *about: str) -> None:
        self._store = store
        self._about = about

    @property
    def are_kept(self) -> bool:
        """Whether there is anywhere to keep them."""
        return self._store is not None

    def known(self, question: Question, kind: Any) -> tuple[Any] | None:
        """The answer of a `kind` in a tuple of its own; None where none is kept."""
        if self._store is None:
            return None
        found = self._store.read(self._digest(question))
        return None if found is None else msgspec.json.decode(found, type=tuple[kind])

    def keep(self, question: Question, answer: object) -> None:
        """Keep an answer."""
        if self._store is not None:
            # in a tuple: an answer may be None, and `known` is None where none is kept
            self._store.write(self._digest(question), msgspec.json.encode((answer,)))

    def once(self, question: Question, kind: Any, ask: Callable[[], Answer]) -> Answer:
        """The answer of a `kind` that is kept, or the one that is found now."""
        known = self.known(question, kind)
        if known is not None:
            answer: Answer = known[0]
            return answer
        answer = ask()
        self.keep(question, answer)
        return answer

    def _digest(self, question: Question) -> str:
        return hashlib.sha256(msgspec.json.encode((self._about, question))).hexdigest()
