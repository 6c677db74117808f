"""A transcript of a sound: what is posted, and what is made of an answer, which has words and times
for its tokens.

A transcript at once is a text. One that is cut at its times has ids of tokens as well, and a mean
log probability of each segment; of a stream's tokens and its prompt's the end says how many.
"""

from collections.abc import Mapping
from typing import Any

from cacheproof.differential.serving.answers import Segment, ServerAnswer
from cacheproof.differential.serving.posted import MODEL_NAME, Posted
from cacheproof.differential.serving.traffic import (
    SAMPLES_PER_SECOND,
    AskedPrompt,
    ChatPrompt,
    Wish,
)
from cacheproof.gpu_runner.whisper_words import FIRST_TIME_ID, TASKS, WORDS

_PATHS = dict(zip(TASKS, ("/v1/audio/transcriptions", "/v1/audio/translations"), strict=True))
_IDS = {word: token_id for token_id, word in enumerate(WORDS)}
_BOUNDARY = "of a form"
_TIMES_PER_SECOND = 50
_FRAME_BYTES = 2 * SAMPLES_PER_SECOND // 100
_WAV_HEADER_BYTES = 44


class Transcript:
    """One request, with an answer that is filled piece by piece."""

    def __init__(self, question: ChatPrompt, wish: Wish, request: AskedPrompt) -> None:
        (sound,) = question.media
        fields = {
            "model": MODEL_NAME,
            "language": wish.language,
            "prompt": wish.words,
            "max_completion_tokens": request.max_tokens,
            "temperature": 0,
            "response_format": "verbose_json" if wish.has_times else "json",
        }
        if not request.at_once and not wish.has_times:
            fields |= {"stream": "true", "stream_include_usage": "true"}
        kind = f'multipart/form-data; boundary="{_BOUNDARY}"'
        self.posted = Posted(_PATHS[wish.task], kind, _form(fields, sound.data))
        self.answer = ServerAnswer(
            shows="cut" if wish.has_times else "words", tells_end=not request.at_once
        )
        # Frames of 10 ms count as tokens of the prompt.
        self._num_frames = (len(sound.data) - _WAV_HEADER_BYTES) // _FRAME_BYTES
        self._wish = wish

    def take(self, told: Mapping[str, Any]) -> None:
        """Take in an answer, or a piece of one. Raises ValueError where it is none."""
        answer = self.answer
        if self._wish.has_times:
            self._take_segments(told)
            return
        if "text" in told:
            self._take_text(told["text"])
            return
        for choice in told["choices"]:
            self._take_text(choice["delta"].get("content") or "")
            answer.ended = choice.get("finish_reason") or answer.ended
        if usage := told.get("usage"):
            prompt = usage["prompt_tokens"] - self._num_frames
            answer.lengths = prompt, usage["completion_tokens"]

    def _take_text(self, text: str) -> None:
        self.answer.tokens += [(token_id, None, None) for token_id in _ids(text)]

    def _take_segments(self, told: Mapping[str, Any]) -> None:
        if told["language"] != self._wish.language:
            raise ValueError(f"it is in {told['language']}, expected {self._wish.language}")
        token_ids: list[int] = []
        for one in told["segments"] or ():
            if _ids(one["text"]) != one["tokens"]:
                raise ValueError(f"{one['text']!r} is said of tokens {one['tokens']}")
            first, last = (
                FIRST_TIME_ID + round(one[name] * _TIMES_PER_SECOND) for name in ("start", "end")
            )
            # A lone time begins and ends a segment.
            own = [first, *one["tokens"], last] if one["tokens"] or first != last else [first]
            begin, end = len(token_ids), len(token_ids) + len(own) - 1
            self.answer.segments.append(Segment(begin, end, len(own), one["avg_logprob"]))
            token_ids += own
        # Releases put a space between segments, or nothing.
        text = "".join(one["text"] for one in told["segments"] or ())
        if "".join(told["text"].split()) != "".join(text.split()):
            raise ValueError(f"{told['text']!r} is said of segments {text!r}")
        # The first time belongs to the prompt.
        self.answer.tokens = [(token_id, None, None) for token_id in token_ids[1:]]


def _ids(text: str) -> list[int]:
    """The tokens of a text. Raises ValueError for a word that the model does not have."""
    unknown = [word for word in text.split() if word not in _IDS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no word of the model")
    return [_IDS[word] for word in text.split()]


def _form(fields: Mapping[str, object], sound: bytes) -> bytes:
    """The fields of a form, and a file."""
    parts = [
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    parts.append(
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="sound.wav"\r\n'
        "Content-Type: audio/wav\r\n\r\n"
    )
    return "".join(parts).encode() + sound + f"\r\n--{_BOUNDARY}--\r\n".encode()
