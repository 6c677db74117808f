"""The commands of campaigns that outlive their process: start, resume, status, merge, report,
serve."""

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cacheproof.commands.helping import add, example, group
from cacheproof.commands.options import (
    OUTPUT,
    FindingsOption,
    JsonOption,
    KnownOption,
    RegisterOption,
    ReportOptions,
    WorkOptions,
    with_shared,
)
from cacheproof.differential.errors import InputError
from cacheproof.work.extras import install_line

SUMMARY = "Run searches that are kept in a store, and can be stopped, resumed, shared and merged."
campaign_app = group(SUMMARY)
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="DIR|URL",
        help="Where the campaign is kept: a folder, or a PostgreSQL database as postgresql://...",
    ),
]
ToRegisterOption = Annotated[
    Path | None,
    typer.Option("--register", metavar="FILE", help="Keep what was found in this register too."),
]
BoardOption = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write the report as a page that needs no network.",
        rich_help_panel=OUTPUT,
    ),
]
NAME = STORE = "campaign"
LOOPBACK, PORT = "127.0.0.1", 8723


def _with_database(command: Callable[..., None]) -> Callable[..., None]:
    """The command, refused when it is run where the libraries of a database are missing; its help
    needs none."""

    @wraps(command)
    def call(**given: object) -> None:
        if missing := [name for name in ("sqlalchemy", "psycopg") if find_spec(name) is None]:
            raise InputError(
                f"campaigns need {' and '.join(missing)}, which this Python has not; expected what "
                f"{install_line('campaign')} brings"
            )
        command(**given)

    return call


@example("cacheproof campaign start plan.toml --store nightly")
@with_shared
def start(
    plan: Annotated[
        Path,
        typer.Argument(metavar="PLAN.toml", help="What is searched; see docs/how-to/campaigns.md."),
    ],
    known: KnownOption = None,
    register: RegisterOption = None,
    store: StoreOption = STORE,
    findings: FindingsOption = None,
    *,
    work: WorkOptions,
    writing: ReportOptions,
) -> None:
    """Begin the campaign of a plan, and run it until it ends or is stopped."""
    from cacheproof.campaign import run as campaign_run
    from cacheproof.search.registering import Register

    with writing.output(NAME) as output:
        code = campaign_run.start(
            output, plan, store, known, findings, work.place, Register(register)
        )
        raise typer.Exit(code)


@example("cacheproof campaign resume --store nightly")
@with_shared
def resume(
    register: ToRegisterOption = None,
    store: StoreOption = STORE,
    findings: FindingsOption = None,
    *,
    work: WorkOptions,
    writing: ReportOptions,
) -> None:
    """Go on with a campaign that was stopped, or beside those who run it."""
    from cacheproof.campaign import run as campaign_run
    from cacheproof.search.registering import Register

    with writing.output(NAME) as output:
        code = campaign_run.resume(output, store, findings, work.place, Register(register))
        raise typer.Exit(code)


@example("cacheproof campaign status --store nightly")
def status(store: StoreOption = STORE, json: JsonOption = None) -> None:
    """Say how far a campaign is, and who runs it."""
    from cacheproof.campaign import report as campaign_report
    from cacheproof.output.console import CommandOutput

    with CommandOutput(json, command="campaign status") as output:
        campaign_report.status(output, store)


@example("cacheproof campaign merge nightly weekend --into all")
def merge(
    first: Annotated[
        str, typer.Argument(metavar="A", help="One store: a folder or postgresql://...")
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="The other store, of either kind.")],
    into: Annotated[
        str | None, typer.Option("--into", metavar="DIR|URL", help="Store to write; by default A.")
    ] = None,
) -> None:
    """Merge two stores: into the first, or into a third."""
    from cacheproof.campaign import report as campaign_report
    from cacheproof.output.console import CommandOutput

    with CommandOutput(None, command="campaign merge") as output:
        campaign_report.merge(output, first, second, into)


@example("cacheproof campaign report --store nightly --html p.html")
@with_shared
def report(
    register: ToRegisterOption = None,
    html: BoardOption = None,
    store: StoreOption = STORE,
    findings: FindingsOption = None,
    *,
    writing: ReportOptions,
) -> None:
    """Report what a campaign ran, what it never met and what it found."""
    from cacheproof.campaign import report as campaign_report
    from cacheproof.search.registering import Register

    with writing.output(NAME) as output:
        code = campaign_report.report(output, store, findings, Register(register), html)
        raise typer.Exit(code)


@example("cacheproof campaign serve --store nightly --port 8723")
def serve(
    store: StoreOption = STORE,
    findings: FindingsOption = None,
    port: Annotated[
        int,
        typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port; 0: any free one."),
    ] = PORT,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen at.")
    ] = LOOPBACK,
    expose: Annotated[
        bool, typer.Option("--expose", help="Allow an address that other machines reach.")
    ] = False,
) -> None:
    """Show a campaign in a browser while it runs; nothing in the store is changed."""
    from cacheproof.board import serving
    from cacheproof.output.console import CommandOutput

    serving.serve(
        CommandOutput(None), store, findings, serving.Listen(host, port, is_exposed=expose)
    )


for _command in (start, resume, status, report, merge, serve):
    add(campaign_app, _with_database(_command))
