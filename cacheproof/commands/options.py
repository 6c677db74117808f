"""Options and arguments that several commands have."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cacheproof.commands.completing import (
    one_of,
    releases_modelled,
    targets,
    what_to_replay,
)
from cacheproof.differential.depths import DEPTHS

if TYPE_CHECKING:
    from cacheproof.output.console import CommandOutput
    from cacheproof.work.workplace import Workplace

SEARCH, OUTPUT, WORK = "What is searched", "What is written", "Where the work is done"

JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the result as JSON; with - JSON alone goes to standard output.",
        rich_help_panel=OUTPUT,
    ),
]
HtmlOption = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Draw the run as a page that needs no network.",
        rich_help_panel=OUTPUT,
    ),
]
PerfettoOption = Annotated[
    str | None,
    typer.Option(
        "--perfetto",
        metavar="FILE",
        help="Write the run as a trace for ui.perfetto.dev.",
        rich_help_panel=OUTPUT,
    ),
]
JunitOption = Annotated[
    Path | None,
    typer.Option(
        "--junit", metavar="FILE", help="Write the result as JUnit XML.", rich_help_panel=OUTPUT
    ),
]
SarifOption = Annotated[
    Path | None,
    typer.Option(
        "--sarif", metavar="FILE", help="Write the result as SARIF 2.1.0.", rich_help_panel=OUTPUT
    ),
]
KnownOption = Annotated[
    Path | None,
    typer.Option(
        "--known",
        metavar="FOLDER",
        help="Folder of known faults to use in place of those that come with cacheproof.",
    ),
]
FindingsOption = Annotated[
    Path | None,
    typer.Option(
        "--findings",
        metavar="DIR",
        help="Folder of findings; by default one in the cache folder.",
        rich_help_panel=OUTPUT,
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Work on a Ray cluster, named as auto or HOST:PORT; needs the extra cluster.",
        rich_help_panel=WORK,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        metavar="N",
        help="Number of worker processes; by default one per core, fewer where memory is short.",
        rich_help_panel=WORK,
    ),
]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose",
        help="Print every lane, every finding and all evidence.",
        rich_help_panel=OUTPUT,
    ),
]
RegisterOption = Annotated[
    Path | None,
    typer.Option(
        "--register",
        metavar="FILE",
        help="Run the traces of this register first, and keep in it what is found, listed or not.",
    ),
]
ShrinkListedOption = Annotated[
    bool,
    typer.Option("--shrink-listed", help="Shrink traces of known faults too."),
]
DepthOption = Annotated[
    str | None,
    typer.Option(
        "--depth",
        metavar="DEPTH",
        help=f"One of {', '.join(DEPTHS)}; by default all that the target has.",
        autocompletion=one_of(*DEPTHS),
    ),
]
RUNNERS = ("first", "second")
A_WEEK = 7 * 24 * 3600
TARGET_HELP = (
    "vllm@VERSION, engine@VERSION, lmcache@VERSION, path:DIR, MODULE:CLASS[@VERSION] or "
    "reference[@VERSION]; with +mended behind a release or an engine, the same with known faults "
    "mended"
)
TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="T",
        help=f"What is searched: {TARGET_HELP}.",
        autocompletion=targets,
    ),
]
WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="FINDING",
        help="A finding (.json), a trace (.jsonl), or FAULT@RELEASE: the newest finding of that "
        "known fault.",
        autocompletion=what_to_replay,
    ),
]
ReleaseOption = Annotated[
    str,
    typer.Option(
        metavar="VERSION",
        help="Release of vLLM whose decisions are taken.",
        autocompletion=releases_modelled,
    ),
]


@dataclass(frozen=True)
class WorkOptions:
    """What commands are told whose work is shared by processes."""

    workers: WorkersOption = None
    cluster: ClusterOption = None

    @property
    def place(self) -> "Workplace":
        """Where the work is done."""
        from cacheproof.work.workplace import Workplace

        return Workplace(self.workers, self.cluster)


@dataclass(frozen=True)
class FormatOptions:
    """What commands are told that write for pipelines too."""

    json: JsonOption = None
    junit: JunitOption = None
    sarif: SarifOption = None

    def output(self, command: str, **settings: bool) -> "CommandOutput":
        """Where the command of that name writes; `settings` are those of `CommandOutput`."""
        from cacheproof.formats.writing import Formats
        from cacheproof.output.console import CommandOutput

        return CommandOutput(
            self.json, command=command, formats=Formats(self.junit, self.sarif), **settings
        )


@dataclass(frozen=True)
class ReportOptions(FormatOptions):
    """The shared options of a command whose report can be long."""

    verbose: VerboseOption = False

    def output(self, command: str, **settings: bool) -> "CommandOutput":
        """Where the command of that name writes."""
        return super().output(command, verbose=self.verbose, **settings)


def with_shared(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer is to read it: in the place of each parameter that is a dataclass the
    fields of that class, which several commands share."""
    own = inspect.signature(command, eval_str=True).parameters
    shared: dict[str, type[Any]] = {
        name: one.annotation
        for name, one in own.items()
        if isinstance(one.annotation, type) and is_dataclass(one.annotation)
    }
    fields = {
        name: inspect.signature(kind, eval_str=True).parameters for name, kind in shared.items()
    }

    @wraps(command)
    def call(**given: object) -> None:
        for name, kind in shared.items():
            given[name] = kind(**{field: given.pop(field) for field in fields[name]})
        command(**given)

    together = [one for name, one in own.items() if name not in shared]
    together += [
        one.replace(kind=one.KEYWORD_ONLY) for some in fields.values() for one in some.values()
    ]
    call.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in together}
    return call
