"""The commands of campaigns that outlive their process: start, resume, status, merge, report,
serve."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cacheproof.console import Output
from cacheproof.differential.errors import InputError
from cacheproof.formats.writing import Formats
from cacheproof.options import (
    ClusterOption,
    FindingsOption,
    JsonOption,
    JunitOption,
    KnownOption,
    RegisterOption,
    SarifOption,
    VerboseOption,
    WorkersOption,
    with_shared,
)
from cacheproof.registering import Register
from cacheproof.workplace import Workplace

campaign_app = typer.Typer(
    help="Searches that are kept in a store, stopped, resumed, shared and merged.",
    no_args_is_help=True,
)
StoreOption = Annotated[
    str,
    typer.Option(
        "--store", metavar="DIR|URL", help="A folder, or a PostgreSQL database: postgresql://..."
    ),
]
ToRegisterOption = Annotated[
    Path | None,
    typer.Option("--register", metavar="FILE", help="Keep in this register what was found."),
]
BoardOption = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write it as a page, see docs/board.md."),
]
STORE = "campaign"
LOOPBACK, PORT = "127.0.0.1", 8723


@dataclass(frozen=True)
class ReportOptions:
    """What commands that end with a report are told."""

    store: StoreOption = STORE
    findings: FindingsOption = None
    verbose: VerboseOption = False
    json: JsonOption = None
    junit: JunitOption = None
    sarif: SarifOption = None

    @property
    def output(self) -> Output:
        """Where they write: the same, for pipelines, whichever it is."""
        formats = Formats(self.junit, self.sarif)
        return Output(self.json, verbose=self.verbose, command="campaign", formats=formats)


@dataclass(frozen=True)
class RunOptions(ReportOptions):
    """What start and resume are both told."""

    workers: WorkersOption = None
    cluster: ClusterOption = None

    @property
    def place(self) -> Workplace:
        return Workplace(self.workers, self.cluster)


@campaign_app.callback()
def campaign() -> None:
    """Searches that are kept in a store, stopped, resumed, shared and merged."""
    if missing := [name for name in ("sqlalchemy", "psycopg") if find_spec(name) is None]:
        raise InputError(
            f"campaigns need {' and '.join(missing)}; expected what the extra brings: pip install "
            "'cacheproof[campaign]'"
        )


@campaign_app.command()
@with_shared
def start(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml")],
    known: KnownOption = None,
    register: RegisterOption = None,
    *,
    shared: RunOptions,
) -> None:
    """Begin the campaign of a plan, and run it to its end."""
    from cacheproof import campaign_run

    with shared.output as output:
        code = campaign_run.start(
            output, plan, shared.store, known, shared.findings, shared.place, Register(register)
        )
        raise typer.Exit(code)


@campaign_app.command()
@with_shared
def resume(register: ToRegisterOption = None, *, shared: RunOptions) -> None:
    """Go on with a campaign that was stopped, or beside those who run it."""
    from cacheproof import campaign_run

    with shared.output as output:
        code = campaign_run.resume(
            output, shared.store, shared.findings, shared.place, Register(register)
        )
        raise typer.Exit(code)


@campaign_app.command()
def status(store: StoreOption = STORE, json: JsonOption = None) -> None:
    """How far a campaign is, and who runs it."""
    from cacheproof import campaign_report

    campaign_report.status(Output(json), store)


@campaign_app.command()
def merge(
    first: Annotated[str, typer.Argument(metavar="A")],
    second: Annotated[str, typer.Argument(metavar="B")],
    into: Annotated[
        str | None, typer.Option("--into", metavar="DIR|URL", help="A new store; A by default.")
    ] = None,
) -> None:
    """Put what two stores hold into one: the first, or a third."""
    from cacheproof import campaign_report

    campaign_report.merge(Output(None), first, second, into)


@campaign_app.command()
@with_shared
def report(
    register: ToRegisterOption = None, html: BoardOption = None, *, shared: ReportOptions
) -> None:
    """What a campaign has run, what it never met, and what it found."""
    from cacheproof import campaign_report

    with shared.output as output:
        kept = Register(register)
        code = campaign_report.report(output, shared.store, shared.findings, kept, html)
        raise typer.Exit(code)


@campaign_app.command()
def serve(
    store: StoreOption = STORE,
    findings: FindingsOption = None,
    port: Annotated[
        int, typer.Option("--port", metavar="P", min=0, max=65535, help="0: one that is free.")
    ] = PORT,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where it listens.")
    ] = LOOPBACK,
    expose: Annotated[
        bool, typer.Option("--expose", help="Listen where other machines can ask.")
    ] = False,
) -> None:
    """Show a campaign in a browser while it runs; it changes nothing in the store."""
    from cacheproof.board import serving

    serving.serve(Output(None), store, findings, serving.Listen(host, port, is_exposed=expose))
