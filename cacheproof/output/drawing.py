"""The files that show a run over time: `--html` and `--perfetto`."""

from collections.abc import Iterable
from dataclasses import dataclass

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.finding import Replay
from cacheproof.differential.findings.timeline.model import (
    Timeline,
    broken_by,
    require_timeline,
    timeline,
)
from cacheproof.differential.findings.timeline.page import page
from cacheproof.differential.findings.timeline.perfetto import perfetto
from cacheproof.differential.judges.retrace import Retrace
from cacheproof.differential.targets.base import Target
from cacheproof.differential.traces.trace import Trace
from cacheproof.output.console import require_writable, write_file

_WRITERS = {"--html": page, "--perfetto": perfetto}


@dataclass(frozen=True)
class Drawings:
    """Where a timeline is to be written, by option; nowhere by default.

    Raises:
        InputError: one of the files cannot be written, or two are the same.
    """

    html: str | None = None
    perfetto: str | None = None

    def __post_init__(self) -> None:
        for option, file in self._asked.items():
            require_writable(option, file)
        if len({*self._asked.values()}) < len(self._asked):
            raise InputError(f"--html and --perfetto are both {self.html}; expected two files")

    @property
    def _asked(self) -> dict[str, str]:
        named = {"--html": self.html, "--perfetto": self.perfetto}
        return {option: file for option, file in named.items() if file is not None}

    @property
    def are_asked_for(self) -> bool:
        """Whether any is."""
        return bool(self._asked)

    def require_none(self, where: str) -> None:
        """See that nothing is asked for, where there is no run of a trace.

        Raises:
            InputError: something is.
        """
        for option in self._asked:
            raise InputError(f"{where}: a page has no timeline; expected no {option}")

    def require_timeline(self, trace: Trace, where: str) -> None:
        """See whether there is anything to draw, where it is asked for.

        Raises:
            InputError: such a trace has no timeline.
        """
        if self._asked:
            require_timeline(trace.header, trace.events, where)

    def write(self, drawn: Timeline) -> None:
        """Write what was asked for.

        Raises:
            InputError: a file cannot be written.
        """
        for option, file in self._asked.items():
            write_file(option, file, _WRITERS[option](drawn))

    def write_replay(
        self, trace: Trace, runs: Replay, target: Target, answer: Iterable[tuple[str, str]]
    ) -> None:
        """Write the first run of a replay, if anything was asked for; the page begins with the
        `answer`.

        Raises:
            InputError: a file cannot be written.
        """
        if not self._asked:
            return
        result, seen = runs.result, runs.examination
        retrace = Retrace(trace, result.records, target.release, target.protocol, result.capacity)
        broken = broken_by(seen.violations.values(), seen.difference, runs.contract or "")
        moments = retrace.moments()
        self.write(timeline(trace.header, moments, broken, target=target.name, answer=answer))
