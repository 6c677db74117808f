"""The command line. Reports go to standard output, progress and errors to standard error.

Exit codes: 0 all holds, apart from listed faults; 1 an unlisted safety or liveness finding, or
targets part, or head of a review breaks what base keeps; 2 usage, input or environment; 3 void; 4 a
target whose text is no release's parts from the model, or decisions of a review differ.
"""

import io
import os
import sys
import warnings
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from cacheproof.commands import bash_words, engines, evidence, findings, models, searches
from cacheproof.commands.campaign import campaign_app
from cacheproof.commands.helping import SETTINGS, CommandGroup, add
from cacheproof.commands.installed import connector_app, vllm_app
from cacheproof.differential.errors import CacheproofError, InputError
from cacheproof.work.interruptions import heed

COMMANDS = {
    "Search": (
        searches.check,
        searches.fuzz,
        searches.diff,
        searches.review,
        searches.explore,
    ),
    "Look at a finding": (findings.replay, findings.bisect, findings.minimise),
    "Rules and evidence": (
        evidence.assess,
        evidence.contracts,
        evidence.explain,
        evidence.report,
        evidence.prove,
        evidence.gallery,
    ),
    "Engines that run": (engines.record, engines.audit, engines.http),
    "Sizes and models": (models.simulate, models.generate),
}
"""The commands, in the groups and the order in which `--help` lists them. Their modules import what
a command runs when it is run, so that `--help` and completion answer at once."""
APPS = {"campaign": campaign_app, "vllm": vllm_app, "connector": connector_app}
SUMMARY = "Checks the caches behind multimodal requests in vLLM V1."
EXAMPLES = (
    "cacheproof check",
    "cacheproof fuzz --target vllm@0.33.0 --seconds 60",
    "cacheproof replay repeated-item@0.28.0",
)

EXIT_CODES = {
    "0": "No safety or liveness finding except the known faults of that release.",
    "1": "An unlisted finding, or two targets differ; of a review, head breaks what base keeps; of "
    "a report, the mend does.",
    "2": "Usage, input or environment: one line says what was wrong and what to do.",
    "3": "Void: the run proves nothing.",
    "4": "A target whose text is no known release's differs from the model and breaks no contract; "
    "of a review, decisions differ.",
    "130": "Interrupted, by Ctrl-C or SIGTERM: what was found until then is printed.",
}


class Root(CommandGroup):
    """The command itself, whose help says what its exit codes mean."""

    exit_codes = EXIT_CODES


app = typer.Typer(
    cls=Root,
    epilog="\n".join(EXAMPLES),
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)
for panel, functions in COMMANDS.items():
    for function in functions:
        add(app, function, panel)
for name, commands in APPS.items():
    app.add_typer(commands, name=name, rich_help_panel="Campaigns, releases, connectors")


@app.callback(invoke_without_command=True, help=SUMMARY)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Print the version; or calm what every command needs calm."""
    if version:
        from cacheproof import __version__

        typer.echo(f"cacheproof {__version__}")
        raise typer.Exit
    from cacheproof.differential.targets.host.session import calm_collector
    from cacheproof.reference.semantics import UnknownRelease

    calm_collector()
    warnings.simplefilter("ignore", UnknownRelease)  # announced, where it matters


INTERRUPTED = 130


def _give_up_output() -> int:
    """Nothing more can be said: what is left in buffers goes nowhere. Returns the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return InputError.exit_code


def _complain(words: str) -> None:
    """Print a complaint as one line, whatever characters are in it."""
    from cacheproof.differential.traces.wording import visible_line

    print(f"cacheproof: {visible_line(words)}", file=sys.stderr)


def _command_of(error: TyperException) -> str:
    """The command whose words were wrong, as it is called."""
    context: typer.Context | None = getattr(error, "ctx", None)
    return context.command_path if context is not None else "cacheproof"


def _check_encoding() -> None:
    """Let any stdout take any text, and refuse words that are none.

    Raises:
        InputError: a word of the command line is no text.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for word in sys.argv[1:]:
        if any("\ud800" <= one <= "\udfff" for one in word):
            raise InputError(
                f"{word}: no text in {sys.getfilesystemencoding()}, the locale's encoding; "
                "expected words and names of files that are, or another locale"
            )


def _run() -> int | None:
    """What was typed, or its completion. Returns the exit code."""

    def run() -> int | None:
        code: int | None = app(standalone_mode=False, prog_name="cacheproof")
        return code

    if os.environ.get(bash_words.COMPLETE) == "complete_bash":
        bash_words.complete(run)
    return run()


def main() -> None:
    """Entry point: errors that are no finding end in one line and their own exit code."""
    heed()
    try:
        _check_encoding()
        code = _run()
        if code == INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            raise KeyboardInterrupt
        sys.stdout.flush()
    except CacheproofError as error:
        _complain(str(error))
        code = error.exit_code
    except TyperException as error:
        message = error.format_message()
        link = " See" if message.endswith("?") else "; see"
        _complain(f"{message.rstrip('.')}{link} {_command_of(error)} --help")
        code = InputError.exit_code
    except (KeyboardInterrupt, Abort):
        _complain("interrupted")
        code = INTERRUPTED
    except SystemExit as ended:  # typer and rich make 1 of a reader that left; no verdict of ours
        code = _give_up_output() if ended.code else 0
    except OSError as error:
        where = error.filename or "standard output"
        _complain(f"{where}: {error.strerror}")
        code = _give_up_output()
    sys.exit(code)
