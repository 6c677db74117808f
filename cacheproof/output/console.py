"""Where output goes: reports to standard output, progress and errors to standard error."""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text
from typer import Exit

from cacheproof.differential import files
from cacheproof.differential.errors import CacheproofError, InputError
from cacheproof.differential.search.verdict import INTERRUPTED, VOID
from cacheproof.differential.traces.wording import visible, visible_line
from cacheproof.formats import document
from cacheproof.formats.result import Report, Result
from cacheproof.formats.writing import Formats
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.progress import Live
from cacheproof.output.verdict_line import VerdictLine, of_trouble

TO_STDOUT = "-"
OR_STDOUT = ", or - for standard output"
NOTHING_YET = "interrupted before it concluded anything"
FILLING = re.compile(r" +(?=\n)")


class VisibleConsole(Console):
    """Shows control characters of texts instead of sending them to the terminal; where there is
    none, no line ends in the spaces that fill it up there."""

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

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """What is written. Rich has no public place between a table's cells and the file."""
        text = super()._render_buffer(buffer)
        return text if self.is_terminal else FILLING.sub("", text)


class CommandOutput:
    """One command's output. With `--json -` the report is silent and JSON alone is printed.

    In a `with` block the report is held back until the command ends, whichever way, so that it can
    begin with the verdict line that it ends with; then the other `formats` are written from what it
    was told, unless the command is refused before anything was found. One that is interrupted
    before it has concluded anything says that, as text or page and as JSON. `streams` says that
    nothing is held back: the verdict line stands at the end alone. `is_page` says that the report
    is a page to be kept, in which nothing else belongs: the verdict goes to standard error.

    Raises:
        InputError: the JSON cannot go there. Said now, not after a long search.
    """

    def __init__(
        self,
        json_to: str | None,
        *,
        verbose: bool = False,
        command: str = "",
        formats: Formats | None = None,
        is_page: bool = False,
        streams: bool = False,
    ) -> None:
        self._json_to = json_to
        self._command = command
        self._formats = formats
        self._is_page = is_page
        self._holds = not is_page and not streams
        self._concluded: Conclusion | None = None
        self._annotates = not is_page and json_to != TO_STDOUT
        self._found: list[Result] = []
        self._live: Live | None = None
        self.verbose = verbose
        self.report = VisibleConsole(quiet=json_to == TO_STDOUT, highlight=False, markup=False)
        self.progress = VisibleConsole(stderr=True, highlight=False, markup=False)
        if json_to not in (None, TO_STDOUT):
            require_writable("--json", json_to, OR_STDOUT)

    def found(self, result: Result) -> None:
        """Take the result for a target before the command concludes, lest an error that ends it
        lose that: where targets are searched one after another."""
        self._found.append(result)

    def tell(self, conclusion: Conclusion) -> int:
        """Take what the command concludes, and write its JSON where the user asked for it; all else
        is written when the command ends. Returns the exit code.

        Raises:
            InputError: the file of the JSON cannot be written.
        """
        self._concluded = conclusion
        self._found += conclusion.results
        if self._json_to is not None:
            text = document.written(self._reported(conclusion.code))
            if self._json_to == TO_STDOUT:
                sys.stdout.write(text)
            else:
                write_file("--json", self._json_to, text.encode(), OR_STDOUT)
        return conclusion.code

    def __enter__(self) -> Self:
        if self._holds:
            self.report.begin_capture()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt) and self._command and self._concluded is None:
            self._conclude_nothing()
        self._print_report(self.report.end_capture() if self._holds else "")
        match error:
            case None:
                self._write_formats(0)
            case Exit(exit_code=code):
                self._write_formats(code)
            case CacheproofError(exit_code=code) if self._found or code == VOID:
                self._write_formats(code, str(error))
            case KeyboardInterrupt():
                is_told = any(one.is_interrupted for one in self._found)
                trouble = "" if is_told else NOTHING_YET
                self._write_formats(INTERRUPTED, trouble)

    def _conclude_nothing(self) -> None:
        """What an interruption leaves of a command that had not come to a verdict."""
        sentence = of_trouble(self._command, INTERRUPTED, NOTHING_YET)
        if self._is_page:
            self.line(sentence)
        line = VerdictLine(sentence, "run the command again")
        facts = {"interrupted": True, "exit_code": INTERRUPTED}
        self.tell(Conclusion(INTERRUPTED, line, facts))

    def _write_formats(self, code: int, trouble: str = "") -> None:
        if self._formats is not None:
            report = self._reported(code, trouble)
            self._formats.write(report, annotates=self._annotates, say=self.say)

    def _reported(self, code: int, trouble: str = "") -> Report:
        """All that the command was told to say, as every format has it."""
        found, concluded = tuple(self._found), self._concluded
        if concluded is None:
            said = of_trouble(self._command, code, trouble)
            return Report(self._command, found, trouble, code, said)
        line, facts = concluded.line, concluded.facts
        return Report(self._command, found, trouble, code, line.sentence, line.next, facts)

    def _print_report(self, held: str) -> None:
        """The verdict, what was held back, and the verdict again with what to do next."""
        if self._concluded is None:
            self._print_held(held)
            return
        verdict = self._concluded.line
        if self._is_page:
            self.say(verdict.sentence)
            return
        if held:
            self.line(verdict.sentence, style="bold")
            self.line("")
            self._print_held(held)
            self.line("")
        self.line(verdict.sentence, style="bold")
        if verdict.step:
            self.line(f"Next: {verdict.step}{':' if verdict.command else ''}")
        if verdict.command:
            self.command(f"  {verdict.command}")

    def _print_held(self, held: str) -> None:
        try:
            self.report.file.write(held)
        except BrokenPipeError:
            self.report.on_broken_pipe()

    def line(self, text: str, *, style: str | None = None) -> None:
        """One sentence of the report: in one line where it is no terminal that it goes to."""
        self.report.print(text, style=style, soft_wrap=not self.report.is_terminal)

    def command(self, text: str) -> None:
        """A command to be copied: in one line however wide the terminal is."""
        self.report.print(text, soft_wrap=True)

    def say(self, line: str) -> None:
        """One line of progress."""
        self.progress.print(visible_line(line), style="dim", soft_wrap=True)

    @contextmanager
    def live(self, what: str) -> Iterator[Live]:
        """Show the progress of a long work, which reports it to what this yields. Within another it
        takes the place of that one until it ends."""
        if self._live is not None:
            with self._live.phase(what):
                yield self._live
            return
        self._live = Live(self.progress)
        self._live.start()
        try:
            with self._live.phase(what):
                yield self._live
        finally:
            self._live.close()
            self._live = None


def require_writable(option: str, file: str, otherwise: str = "") -> None:
    """See whether what an option names can be written; `otherwise` is what it could be instead.

    Raises:
        InputError: it cannot. Said now, not after a long search.
    """
    try:
        files.require_writable(Path(file))
    except OSError as error:
        raise _unwritable(option, file, error, otherwise) from None


def write_file(option: str, file: str, content: bytes, otherwise: str = "") -> None:
    """Write what an option names, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    try:
        files.write(Path(file), content)
    except OSError as error:
        raise _unwritable(option, file, error, otherwise) from None


def _unwritable(option: str, file: str, error: OSError, otherwise: str) -> InputError:
    return InputError(
        f"{option} {file}: cannot be written: {error.strerror}; expected a file in a folder that "
        f"exists{otherwise}"
    )
