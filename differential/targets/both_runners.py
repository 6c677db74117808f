"""An engine with both of its model runners, each in a host of its own: a trace says which it wants.

The second one's kernels are Triton's, and are interpreted. Triton is fetched when the first such
trace is run. What is run under the second is run under the first as well, so that their answers
can be compared; no fault is planted there.
"""

import itertools
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.provision import environment
from cacheproof.differential.provision.cache import Cache, Report
from cacheproof.differential.targets.host.engine.interpreted import INTERPRET_SETTING
from cacheproof.differential.targets.host.engine.runners import SECOND_SETTING
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.traces.records import UNDER_FIRST, TraceResult
from cacheproof.differential.traces.trace import ModelRunner, Trace

SECOND_MODULE = "host.engine.second"
_EXECUTED = ("encode", "notices", "store", "outputs", "untaken", "continued")
"""Fields of an outcome in which both runners are compared: items to be encoded and dropped, entries
of the store, tokens, and sessions that go on."""
SECOND_ON_CPU = "vllm/v1/worker/cpu/model_runner.py"
"""The second model runner's form for CPUs."""


class EngineTarget(HostTarget):
    """An engine whose own host has the first model runner; the second has a host of its own."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._second: HostTarget | None = None
        self._asked: deque[list[bool]] = deque()
        """For each batch that was sent: whether each of its traces runs under the second too."""

    def has_runner(self, runner: ModelRunner) -> bool:
        """Whether the release has that model runner for CPUs."""
        return runner == "first" or (self.tree is not None and (self.tree / SECOND_ON_CPU).exists())

    def provide(self, report: Report) -> None:
        """Fetch what the second model runner needs, if it is not there.

        Raises:
            SetupError: it cannot be fetched.
        """
        cache = Cache.locate()
        if environment.locate(cache, environment.TRITON) is None:
            with cache.writing():
                environment.ensure(cache, environment.TRITON, report=report)

    def submit(
        self,
        traces: Sequence[Trace],
        fault: str | None = None,
        flags: Mapping[str, bool] | None = None,
    ) -> None:
        second = self.has_runner("second")
        is_second = [second and trace.runner == "second" for trace in traces]
        with self._both_or_none():
            if own := [one for one, other in zip(traces, is_second, strict=True) if not other]:
                super().submit(own, fault, flags)
            # The first runner answers what is its own first, and `collect` asks in that order.
            if others := list(itertools.compress(traces, is_second)):
                self._host_of_second().submit(others, fault, flags)
                super().submit([one.under_runner("first") for one in others], None, flags)
        self._asked.append(is_second)

    def collect(self, expected: int) -> list[TraceResult]:
        is_second = self._asked.popleft()
        count = sum(is_second)
        with self._both_or_none():
            own = iter(super().collect(expected - count) if count < expected else ())
            others: Iterator[TraceResult] = iter(())
            if count:
                under_second = self._host_of_second().collect(count)
                others = map(_beside, under_second, super().collect(count))
        return [next(others if other else own) for other in is_second]

    @contextmanager
    def _both_or_none(self) -> Iterator[None]:
        """Where one of both hosts breaks, end the other: it has answers that nobody collects any
        more, and would give them to the next question."""
        try:
            yield
        except HarnessError:
            self.close()
            raise

    def another(self) -> "EngineTarget":
        twin = super().another()
        assert isinstance(twin, EngineTarget)
        twin._second = None
        twin._asked = deque()
        return twin

    def close(self) -> None:
        super().close()
        self._asked.clear()  # ended hosts answer nothing more
        if self._second is not None:
            self._second.close()

    def _host_of_second(self) -> HostTarget:
        if self._second is None:
            self.provide(lambda line: print(line, file=sys.stderr, flush=True))
            settings = settings_of_second(self._environment["PYTHONPATH"])
            self._second = self.beside(self.name, SECOND_MODULE, self._depths, settings)
        return self._second


def _beside(second: TraceResult, first: TraceResult) -> TraceResult:
    """The result under the second model runner, with the outcomes under the first beside its own,
    as far as the first came."""
    if first.illegal is not None:  # nothing to compare with
        return second
    records = [
        two._replace(outcome={**two.outcome, UNDER_FIRST: _executed(one.outcome)})
        if isinstance(one.outcome, dict) and isinstance(two.outcome, dict)
        else two
        # Either may have ended earlier: what both came to is compared.
        for one, two in zip(first.records, second.records, strict=False)
    ]
    return msgspec.structs.replace(second, records=[*records, *second.records[len(records) :]])


def _executed(outcome: Mapping[str, Any]) -> dict[str, Any]:
    return {name: outcome[name] for name in _EXECUTED if name in outcome}


def settings_of_second(search: str) -> dict[str, str]:
    """Environment variables of the second model runner's process beside those of an engine's;
    `search` is the engine's PYTHONPATH. Triton must be installed."""
    libraries = environment.locate(Cache.locate(), environment.TRITON)
    assert libraries is not None
    where = os.pathsep.join((search, *map(str, libraries.overlays)))
    return {SECOND_SETTING: "1", INTERPRET_SETTING: "1", "PYTHONPATH": where}
