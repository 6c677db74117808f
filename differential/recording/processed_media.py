"""Records the two halves of a cache of processed media: what a front end has sent, and what of it
an engine core, or a worker, has had."""

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar

import msgspec

from cacheproof.differential.recording.ending import say_why_it_ended
from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.messages import (
    HOW,
    ItemSent,
    ItemsReceived,
    MediaForgotten,
    Message,
    Opened,
    Raised,
)
from cacheproof.differential.recording.raising import place_of, words_of
from cacheproof.differential.recording.writer import Records

P = ParamSpec("P")
R = TypeVar("R")
_BY_NAME, _BY_DATA, _BY_ADDRESS = range(len(HOW))
_RAISED_SECONDS = 1.0


class SentFeature(Protocol):
    """An item of a request as it reaches an engine core."""

    identifier: str
    data: Any


class MediaRecording:
    """The record of one half, whose methods it wraps. A front end may call from several threads,
    and so may an engine core."""

    role: ClassVar[str]
    operations: ClassVar[tuple[str, ...]]

    def __init__(self, cache: Any, writer: Records, hasher: Hasher, opened: Opened) -> None:
        self._cache = cache
        self._writer = writer
        self._hasher = hasher
        self._opened = opened
        self._is_shared = opened.settings["store"] == "shm"
        self._lock = threading.Lock()
        self._ended = False
        self._clock = 0
        for name in self.operations:
            if hasattr(cache, name):
                setattr(cache, name, functools.partial(self._call, name, getattr(cache, name)))

    def _call(self, name: str, method: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        before = self._safely(self._seen, name, *args, **kwargs)
        try:
            answer = method(*args, **kwargs)
        except Exception as error:
            self._safely(self._note, name, before, None, error)
            raise
        self._safely(self._note, name, before, answer, None)
        return answer

    def _safely(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """A failure of ours ends the recording and does not reach the engine."""
        with self._lock:
            try:
                return None if self._ended else function(*args, **kwargs)
            except Exception as error:
                self._ended = True
                say_why_it_ended(error, self._writer)
                return None

    def _seen(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """What is to be known of a call's arguments after it."""
        raise NotImplementedError

    def _note(self, name: str, before: Any, answer: Any, error: Exception | None) -> None:
        """Write down what a call came to."""
        raise NotImplementedError

    def _put(self, message: Callable[[int], Message], name: str, error: Exception | None) -> None:
        now = time.monotonic_ns()
        if self._writer.wants_file:
            self._clock = now
            self._writer.begin(msgspec.structs.replace(self._opened, started=time.time()))
        passed = (now - self._clock) // 1000
        # What was rounded off is of the next: both halves are held against each other by time.
        self._clock += 1000 * passed
        if error is not None:
            kind, text = type(error).__name__, words_of(error, self._hasher)
            self._writer.put(Raised(0, name, kind, text, [], place_of(error)))
        self._writer.put(message(passed))
        if error is not None and self._is_shared:  # which may end the worker
            self._writer.flush(_RAISED_SECONDS)


class SenderRecording(MediaRecording):
    """The record of a front end's half."""

    role = "sender"
    operations = ("get_and_update_item", "invalidate", "clear_cache")

    def _seen(self, name: str, *args: Any, **kwargs: Any) -> str | None:
        if name == "clear_cache":
            return None
        # The name of the item is the last argument of both others.
        return self._hasher.identifier(kwargs["mm_hash"] if "mm_hash" in kwargs else args[-1])

    def _note(self, name: str, before: Any, answer: Any, error: Exception | None) -> None:
        if name != "get_and_update_item":
            self._put(lambda passed: MediaForgotten(passed, before), name, error)
            return
        how = _BY_NAME if error is not None else _how(answer[0])
        failed = "" if error is None else type(error).__name__
        self._put(lambda passed: ItemSent(passed, before, how, failed), name, error)


class ReceiverRecording(MediaRecording):
    """The record of the other half: an engine core's or, of shared memory, a worker's."""

    role = "receiver"
    operations = ("get_and_update_features", "clear_cache")

    def _seen(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "clear_cache":
            return None
        features = kwargs["mm_features"] if "mm_features" in kwargs else args[0]
        return features, [(self._name_of(one), _how(one.data)) for one in features]

    def _note(self, name: str, before: Any, answer: Any, error: Exception | None) -> None:
        if name == "clear_cache":
            self._put(lambda passed: MediaForgotten(passed, None), name, error)
            return
        features, items = before
        lacking = self._lacking(features, error)
        failed = "" if error is None else type(error).__name__
        self._put(lambda passed: ItemsReceived(passed, items, lacking, failed), name, error)

    def _name_of(self, feature: SentFeature) -> str:
        # Adapters have their name before the identifier, and no part in the name of the item.
        name = getattr(feature, "mm_hash", None) or feature.identifier
        return self._hasher.identifier(name)

    def _lacking(self, features: Sequence[SentFeature], error: Exception | None) -> list[str]:
        """The items that an exception names; the first that is still without data, where it names
        none."""
        if error is None:
            return []
        named = getattr(error, "mm_hashes", None)
        if named is not None:
            return list(map(self._hasher.identifier, named))
        if self._is_shared:
            return []
        return [self._name_of(one) for one in features if one.data is None][:1]


def _how(data: Any) -> int:
    if data is None:
        return _BY_NAME
    return _BY_ADDRESS if "address" in data else _BY_DATA
