"""The commands of campaigns that outlive their process: start, resume, status, merge, report,
serve."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cacheproof.console import Output
from cacheproof.differential.errors import InputError
from cacheproof.options import (
    FindingsOption,
    JsonOption,
    KnownOption,
    VerboseOption,
    WorkersOption,
)

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
BoardOption = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write it as a page, see docs/board.md."),
]
STORE = "campaign"
LOOPBACK, PORT = "127.0.0.1", 8723


@campaign_app.callback()
def campaign() -> None:
    """Searches that are kept in a store, stopped, resumed, shared and merged."""
    if missing := [name for name in ("sqlalchemy", "psycopg") if find_spec(name) is None]:
        raise InputError(
            f"campaigns need {' and '.join(missing)}; expected what the extra brings: pip install "
            "'cacheproof[campaign]'"
        )


@campaign_app.command()
def start(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml")],
    store: StoreOption = STORE,
    known: KnownOption = None,
    findings: FindingsOption = None,
    workers: WorkersOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = None,
) -> None:
    """Begin the campaign of a plan, and run it to its end."""
    from cacheproof import campaign_run

    output = Output(json, verbose=verbose)
    raise typer.Exit(campaign_run.start(output, plan, store, known, findings, workers))


@campaign_app.command()
def resume(
    store: StoreOption = STORE,
    findings: FindingsOption = None,
    workers: WorkersOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = None,
) -> None:
    """Go on with a campaign that was stopped, or beside those who run it."""
    from cacheproof import campaign_run

    output = Output(json, verbose=verbose)
    raise typer.Exit(campaign_run.resume(output, store, findings, workers))


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
def report(
    store: StoreOption = STORE,
    findings: FindingsOption = None,
    html: BoardOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = None,
) -> None:
    """What a campaign has run, what it never met, and what it found."""
    from cacheproof import campaign_report

    output = Output(json, verbose=verbose)
    raise typer.Exit(campaign_report.report(output, store, findings, html))


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
