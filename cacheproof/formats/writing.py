"""Where the formats go that a command was asked for, and that its surroundings ask for."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cacheproof.differential import files
from cacheproof.differential.errors import InputError
from cacheproof.formats import github, junit, sarif
from cacheproof.formats.result import Report

ACTIONS = "GITHUB_ACTIONS"
SUMMARY = "GITHUB_STEP_SUMMARY"


@dataclass(frozen=True)
class Formats:
    """The files that `--junit` and `--sarif` name.

    Raises:
        InputError: one of them cannot be written, or both are one. Said now, not after a long
            search.
    """

    junit: Path | None = None
    sarif: Path | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def __post_init__(self) -> None:
        for option, file in self._asked():
            if str(file) == "-":
                raise InputError(
                    f"{option} -: expected a file; of all formats JSON alone goes to standard "
                    "output, with --json -"
                )
            try:
                files.require_writable(file)
            except OSError as error:
                raise _unwritable(option, file, error) from None
        asked = [file.resolve() for _, file in self._asked()]
        if len(set(asked)) < len(asked):
            raise InputError(
                f"--junit and --sarif {self.junit}: one file for two formats; expected one each"
            )

    def write(self, report: Report, *, annotates: bool, say: Callable[[str], None]) -> None:
        """Write all of them; with `annotates` also what GitHub reads off standard output. A summary
        that cannot be written is no reason to fail: `say` is told.

        Raises:
            InputError: a file cannot be written.
        """
        if self.junit is not None:
            _write("--junit", self.junit, junit.written(report, datetime.now(UTC)))
        if self.sarif is not None:
            _write("--sarif", self.sarif, sarif.written(report))
        if annotates and self.environment.get(ACTIONS) == "true":
            sys.stdout.writelines(f"{line}\n" for line in github.annotations(report))
        if place := self.environment.get(SUMMARY):
            try:
                with Path(place).open("a", encoding="utf-8") as file:
                    file.write(github.summary(report))
            except OSError as error:
                say(f"{SUMMARY}: {place}: cannot be written: {error.strerror}")

    def _asked(self) -> list[tuple[str, Path]]:
        both = (("--junit", self.junit), ("--sarif", self.sarif))
        return [(option, file) for option, file in both if file is not None]


def _write(option: str, file: Path, content: bytes) -> None:
    try:
        files.write(file, content)
    except OSError as error:
        raise _unwritable(option, file, error) from None


def _unwritable(option: str, file: Path, error: OSError) -> InputError:
    return InputError(
        f"{option} {file}: cannot be written: {error.strerror}; expected a file in a folder that "
        "exists"
    )
