"""Targets that go wrong, in a module that worker processes can import too."""

import os
from collections.abc import Sequence
from typing import NoReturn

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace


class Broken(ReferenceTarget):
    """A target whose host breaks at every batch."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> NoReturn:
        raise HarnessError("host of it crashed (exit status 7)")


class Deaf(ReferenceTarget):
    """A target in which no planted fault takes."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return super().run(traces)


class Deadly(ReferenceTarget):
    """A target that ends the process that runs it."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> NoReturn:
        os._exit(9)


class Leaking(ReferenceTarget):
    """The reference with a fault of its own, beside any that is planted."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return super().run(traces, fault or "leaks_a_slot")


class Evicting(ReferenceTarget):
    """The reference with a fault that shows in traces of several shapes."""

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return super().run(traces, fault or "evicts_newest_first")
