"""Records what a worker's encoder store holds after each step."""

import functools
import time
from collections.abc import Callable, Mapping, Sized
from typing import Any, ParamSpec, TypeVar

import msgspec

from cacheproof.differential.recording.ending import say_why_it_ended
from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.messages import Opened, Raised, Stored
from cacheproof.differential.recording.raising import place_of, words_of
from cacheproof.differential.recording.writer import Writer
from cacheproof.differential.targets.host.vllm_objects.scheduler import SchedulerOutput
from cacheproof.differential.targets.host.vllm_objects.worker import (
    GPUModelRunner,
    SecondModelRunner,
)

_NOTHING: dict[str, int | None] = {}

P = ParamSpec("P")
R = TypeVar("R")


class WorkerRecording:
    """The record of one model runner, which it wraps."""

    def __init__(
        self,
        runner: GPUModelRunner | SecondModelRunner,
        writer: Writer,
        hasher: Hasher,
        opened: Opened,
    ) -> None:
        self._runner = runner
        self._writer = writer
        self._hasher = hasher
        self._opened = opened
        self._steps = 0
        self._held: dict[str, int] = {}
        self._names: list[str] = []
        self._ended = False
        self._clock = time.monotonic_ns()
        self._execute = runner.execute_model
        runner.execute_model = self._call
        if hasattr(runner, "sample_tokens"):  # the second half of a step
            runner.sample_tokens = functools.partial(self._sample, runner.sample_tokens)

    def _call(self, output: SchedulerOutput, *args: Any, **kwargs: Any) -> Any:
        try:
            answer = self._execute(output, *args, **kwargs)
        except BaseException as error:
            self._safely(self._raised, "execute_model", self._steps + 1, error)
            raise
        if not self._ended:
            try:
                self._executed(output)
            except Exception as error:
                self._fail(error)
        return answer

    def _sample(self, sample: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return sample(*args, **kwargs)
        except BaseException as error:
            self._safely(self._raised, "sample_tokens", self._steps, error)
            raise

    def _safely(self, function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        if self._ended:
            return
        try:
            function(*args, **kwargs)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """A failure of ours ends the recording and does not reach the engine."""
        self._ended = True
        say_why_it_ended(error, self._writer)

    def _executed(self, output: SchedulerOutput) -> None:
        self._steps += 1
        cache = self._runner.encoder_cache
        store = cache if isinstance(cache, dict) else cache.encoder_outputs
        if self._writer.wants_file:
            self._begin()
        names = [*store]
        # A list is compared in less time than the keys of a dict.
        is_as_before = not output.scheduled_encoder_inputs and names == self._names
        told = _NOTHING if is_as_before else self._changed(store)
        self._names = names
        tokens = output.total_num_scheduled_tokens
        self._writer.put(Stored(self._tick(), self._steps, tokens, told))

    def _changed(self, store: Mapping[str, Sized]) -> dict[str, int | None]:
        """What is in a store in rows, where that changed, and None for what is gone."""
        now = {name: len(rows) for name, rows in store.items()}
        changed: dict[str, int | None] = {
            name: rows for name, rows in now.items() if self._held.get(name) != rows
        }
        changed |= dict.fromkeys(self._held.keys() - now.keys())
        self._held = now
        return {self._hasher.identifier(name): rows for name, rows in changed.items()}

    def _begin(self) -> None:
        self._held = {}
        self._names = []
        self._clock = time.monotonic_ns()
        self._writer.begin(msgspec.structs.replace(self._opened, started=time.time()))

    def _raised(self, operation: str, step: int, error: BaseException) -> None:
        if self._writer.wants_file:
            self._begin()
        text, place = words_of(error, self._hasher), place_of(error)
        kind = type(error).__name__
        self._writer.put(Raised(self._tick(), operation, kind, text, [], place, step))
        self._writer.flush(1.0)

    def _tick(self) -> int:
        now = time.monotonic_ns()
        passed, self._clock = (now - self._clock) // 1000, now
        return passed
