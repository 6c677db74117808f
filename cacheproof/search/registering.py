"""The register that searches keep in a file: its traces come first, findings go into it."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from cacheproof.differential.findings import register_file
from cacheproof.differential.findings.register import FaultRecord
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
