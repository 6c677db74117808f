"""Where output goes: reports to standard output, progress and errors to standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from cacheproof import __version__
from cacheproof.differential.errors import InputError

JSON_SCHEMA = 1
TO_STDOUT = "-"


class Output:
    """One command's output. With `--json -` the report is silent and JSON alone is printed."""

    def __init__(self, json_to: str | None) -> None:
        self._json_to = json_to
        self.report = Console(quiet=json_to == TO_STDOUT, highlight=False)
        self.progress = Console(stderr=True, highlight=False)

    def say(self, line: str) -> None:
        """One line of progress."""
        self.progress.print(line, style="dim", markup=False)

    def write_json(self, command: str, content: dict[str, Any]) -> None:
        """Write the command's JSON where the user asked for it, if anywhere.

        Raises:
            InputError: the file cannot be written.
        """
        if self._json_to is None:
            return
        document = {
            "schema_version": JSON_SCHEMA,
            "command": command,
            "versions": {"cacheproof": __version__, "python": sys.version.split()[0]},
            **content,
        }
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
        if self._json_to == TO_STDOUT:
            sys.stdout.write(text)
            return
        try:
            Path(self._json_to).write_text(text)
        except OSError as error:
            raise InputError(
                f"--json {self._json_to}: cannot be written: {error.strerror}; name a file "
                "in a folder that exists, or - for standard output"
            ) from None

    @contextmanager
    def bar(self, what: str, total: int | None) -> Iterator[Any]:
        """A progress bar; yields a function that advances it."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.progress, transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda count=1: progress.advance(task, count)
