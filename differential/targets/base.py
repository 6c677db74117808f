"""What every target offers: it takes traces and returns step records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol as Interface

from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.texts.known_texts import Reading
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace


class Target(Interface):
    """A system under test.

    `name` is what the user called it, `release` the vLLM release whose promises it must keep
    (None: the newest's), `reading` how its text compares with the modelled releases (None where
    there is no text to read), `protocol` how its scheduler calls its manager. `projects` are those
    whose lanes it runs; the first is the one whose system it is, and whose version `release` is.
    `tree` is the folder of its package vllm, None where what is judged is not in one. `mended` are
    the listed faults that are taken out of it.
    """

    name: str
    projects: tuple[str, ...]
    release: str | None
    reading: Reading | None
    tree: Path | None
    mended: tuple[str, ...]

    @property
    def model(self) -> str | None:
        """The release whose semantics the reference beside it has, and whose features its traces
        have: the nearest by text where there is a text."""
        ...

    @property
    def announcement(self) -> list[str]:
        """Lines to be shown before it is run: that it is no modelled release, or does not read as
        one."""
        ...

    @property
    def protocol(self) -> Protocol:
        """How its scheduler calls its manager. Raises HarnessError when it does not start."""
        ...

    def runs_depth(self, depth: str) -> bool:
        """Whether it runs traces of that depth."""
        ...

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        """One result per trace, in order. `fault` plants a fault of `host/faults/` by name.

        Raises HarnessError when the target broke.
        """
        ...

    def another(self) -> "Target":
        """The same system in another process; itself where it runs in this one."""
        ...

    def close(self) -> None:
        """Give back processes and files."""
        ...
