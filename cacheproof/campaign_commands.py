"""The commands of campaigns that outlive their process: start, resume, status, merge, report."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cacheproof.console import Output
from cacheproof.differential.errors import InputError
from cacheproof.options import (
    ClusterOption,
    FindingsOption,
    JsonOption,
    KnownOption,
    VerboseOption,
    WorkersOption,
    with_shared,
)
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
STORE = "campaign"


@dataclass(frozen=True)
class Options:
    """What start and resume are both told."""

    store: StoreOption = STORE
    findings: FindingsOption = None
    workers: WorkersOption = None
    cluster: ClusterOption = None
    verbose: VerboseOption = False
    json: JsonOption = None

    @property
    def output(self) -> Output:
        return Output(self.json, verbose=self.verbose)

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
    *,
    shared: Options,
) -> None:
    """Begin the campaign of a plan, and run it to its end."""
    from cacheproof import campaign_run

    code = campaign_run.start(
        shared.output, plan, shared.store, known, shared.findings, shared.place
    )
    raise typer.Exit(code)


@campaign_app.command()
@with_shared
def resume(*, shared: Options) -> None:
    """Go on with a campaign that was stopped, or beside those who run it."""
    from cacheproof import campaign_run

    raise typer.Exit(
        campaign_run.resume(shared.output, shared.store, shared.findings, shared.place)
    )


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
    verbose: VerboseOption = False,
    json: JsonOption = None,
) -> None:
    """What a campaign has run, what it never met, and what it found."""
    from cacheproof import campaign_report

    output = Output(json, verbose=verbose)
    raise typer.Exit(campaign_report.report(output, store, findings))
