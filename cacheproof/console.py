"""Where output goes: reports to standard output, progress and errors to standard error."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.text import Text

from cacheproof import __version__
from cacheproof.differential import files
from cacheproof.differential.errors import InputError
from cacheproof.differential.words import visible, visible_line

JSON_SCHEMA = 1
TO_STDOUT = "-"
LINE_SECONDS = 10.0


class VisibleConsole(Console):
    """Shows control characters of texts instead of sending them to the terminal."""

    def render_str(self, text: str, **settings: Any) -> Text:
        """A string as it is measured and rendered."""
        return super().render_str(visible(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments of what is to be shown. A text is changed before it is wrapped, so that nothing
        of it is cut; one with control characters loses the styles of its parts."""
        if isinstance(renderable, Text):
            shown = visible(renderable.plain)
            renderable = renderable if shown == renderable.plain else renderable.blank_copy(shown)
        return super().render(renderable, options)


class Output:
    """One command's output. With `--json -` the report is silent and JSON alone is printed.

    Raises:
        InputError: the JSON cannot go there. Said now, not after a long search.
    """

    def __init__(self, json_to: str | None) -> None:
        self._json_to = json_to
        self.report = VisibleConsole(quiet=json_to == TO_STDOUT, highlight=False, markup=False)
        self.progress = VisibleConsole(stderr=True, highlight=False, markup=False)
        if json_to not in (None, TO_STDOUT):
            try:
                files.require_writable(Path(json_to))
            except OSError as error:
                raise _unwritable(json_to, str(error.strerror)) from None

    def line(self, text: str) -> None:
        """One sentence of the report: in one line however wide the console is."""
        self.report.print(text, soft_wrap=True)

    def say(self, line: str) -> None:
        """One line of progress."""
        self.progress.print(visible_line(line), style="dim", soft_wrap=True)

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
        text = _escaped(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        if self._json_to == TO_STDOUT:
            sys.stdout.write(f"{text}\n")
            return
        try:
            files.write(Path(self._json_to), f"{text}\n".encode())
        except OSError as error:
            raise _unwritable(self._json_to, str(error.strerror)) from None

    @contextmanager
    def bar(self, what: str, total: int | None) -> Iterator[Any]:
        """A progress bar, or a line now and then where there is no terminal.

        Yields a function that advances it.
        """
        if not self.progress.is_terminal:
            yield self._lines(what, total)
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.progress, transient=True) as progress:
            task = progress.add_task(visible_line(what), total=total)
            yield lambda count=1: progress.advance(task, count)

    def _lines(self, what: str, total: int | None) -> Callable[..., None]:
        """What advances a bar that is shown as lines."""
        self.say(what)
        done, told = 0, time.monotonic()

        def advance(count: int = 1) -> None:
            nonlocal done, told
            done += count
            if time.monotonic() - told >= LINE_SECONDS:
                told = time.monotonic()
                self.say(f"{what}: {done:,}" + (f" of {total:,}" if total else ""))

        return advance


def _escaped(text: str) -> str:
    """JSON with all escaped that is not printable, which JSON asks for below U+0020 alone."""
    return "".join(
        one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text
    )


def _unwritable(file: str, reason: str) -> InputError:
    return InputError(
        f"--json {file}: cannot be written: {reason}; expected a file in a folder that exists, "
        "or - for standard output"
    )
