"""The register that searches keep in a file: its traces come first, findings go into it."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from cacheproof.differential.findings import register_file
from cacheproof.differential.findings.register import FaultRecord, of_run, record_of
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search import corpus
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.corpus import Corpus
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import Verdict
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.resolve import reference_for
from cacheproof.output.console import CommandOutput, require_writable


class Register:
    """A register in a file, or none at all.

    Raises:
        InputError: the file is none, or cannot be written. Said now, not after a long search.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._records: dict[str, FaultRecord] = {}
        if path is not None:
            self._records = register_file.load(path)
            require_writable("--register", str(path))

    def __bool__(self) -> bool:
        return self._path is not None

    @property
    def records(self) -> list[FaultRecord]:
        """The records that the file had at first, in its order."""
        return list(self._records.values())

    def replay(
        self,
        output: CommandOutput,
        target: Target,
        lanes: Sequence[Lane],
        known: Sequence[KnownFault],
    ) -> Corpus:
        """Run its traces on a target, and tell listed faults. Raises HarnessError when the target
        does not start."""
        records = self.records
        if not records:
            return Corpus()
        model = reference_for(target)
        with (
            closing(Attribution.of_target(known, target, model)) as attribution,
            closing(model) if model is not None else nullcontext() as reference,
            output.live(f"{target.name}: traces of the register") as live,
        ):
            day = register_file.day_of(time.time())
            advance = live.counter(len(records))
            return corpus.run(target, lanes, records, reference, day, attribution, advance)

    def take(self, output: CommandOutput, verdict: Verdict, ran: Corpus) -> None:
        """Write down what a search has found, and what its corpus has said. A finding that is not
        small yet has no identity and is left out.

        Raises:
            InputError: the file cannot be written.
        """
        if not self:
            return
        day = register_file.day_of(time.time())
        found = [
            record_of(one, verdict.lanes_of[one.key], day)
            for one in verdict.findings
            if not one.stopped_early
        ]
        self.add(output, of_run(ran.records, found))

    def add(self, output: CommandOutput, records: Iterable[FaultRecord]) -> None:
        """Write down what is known of some faults, and say which are mended or came back.

        Raises:
            InputError: the file cannot be written.
        """
        if self._path is None:
            return
        before = self._records
        self._records = register_file.add(records, self._path)
        for name, now in self._records.items():
            was = before.get(name, now)
            if was.status != now.status and now.status in ("mended", "came back"):
                output.line(f"{now.status}: {now.name} ({now.contract})")
        counts = Counter(one.status for one in self._records.values())
        told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        fresh = len(self._records.keys() - before.keys())
        output.line(f"register: {told or 'nothing'}; {fresh} not seen before; {self._path}")
