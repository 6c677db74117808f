"""Records where a front end could not go on with what an engine said: its server ends there."""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.messages import AnswersFailed, Opened, Raised
from cacheproof.differential.recording.raising import place_of, words_of
from cacheproof.differential.recording.writer import Records

OPERATION = "process_outputs"
_SECONDS = 1.0


class EngineOutput(Protocol):
    """What an engine says of a request in a step."""

    request_id: str
    finish_reason: object
    pooling_output: object


class AnswersRecording:
    """The record of one output processor, which it wraps; `records` gives what is written to, once
    there is anything to write."""

    def __init__(
        self, processor: Any, records: Callable[[], Records], hasher: Hasher, opened: Opened
    ) -> None:
        self._processor = processor
        self._records = records
        self._writer: Records | None = None
        self._hasher = hasher
        self._opened = opened
        processor.process_outputs = functools.partial(self._call, processor.process_outputs)

    def _call(
        self,
        process: Callable[..., Any],
        engine_core_outputs: Sequence[EngineOutput],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        try:
            return process(engine_core_outputs, *args, **kwargs)
        except Exception as error:
            with suppress(Exception):  # whatever is wrong with us, the front end says what it would
                self._note(engine_core_outputs, error)
            raise

    def _note(self, outputs: Sequence[EngineOutput], error: Exception) -> None:
        writer = self._writer = self._writer or self._records()
        kind = type(error).__name__
        text = words_of(error, self._hasher)
        writer.begin(msgspec.structs.replace(self._opened, started=time.time()))
        writer.put(Raised(0, OPERATION, kind, text, [], place_of(error)))
        writer.put(AnswersFailed(0, list(self._ended(outputs))))
        writer.flush(_SECONDS)

    def _ended(self, outputs: Sequence[EngineOutput]) -> Iterator[str]:
        """Why the engine has ended requests for which no tokens are made, without their result."""
        for one in outputs:
            state = self._processor.request_states.get(one.request_id)
            has_none = one.finish_reason is not None and one.pooling_output is None
            if has_none and state is not None and state.detokenizer is None:
                yield str(one.finish_reason)
