"""The commands of campaigns that outlive their process: start, resume, status, merge, report."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cacheproof.console import Output
from cacheproof.differential.errors import InputError
from cacheproof.formats.writing import Formats
from cacheproof.options import (
    FindingsOption,
    JsonOption,
    JunitOption,
    KnownOption,
    RegisterOption,
    SarifOption,
    VerboseOption,
    WorkersOption,
)
from cacheproof.registering import Register

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
STORE = "campaign"


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
    register: RegisterOption = None,
    workers: WorkersOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
) -> None:
    """Begin the campaign of a plan, and run it to its end."""
    from cacheproof import campaign_run

    with _output(json, junit, sarif, verbose=verbose) as output:
        kept = Register(register)
        raise typer.Exit(campaign_run.start(output, plan, store, known, findings, workers, kept))


@campaign_app.command()
def resume(
    store: StoreOption = STORE,
    findings: FindingsOption = None,
    register: ToRegisterOption = None,
    workers: WorkersOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
) -> None:
    """Go on with a campaign that was stopped, or beside those who run it."""
    from cacheproof import campaign_run

    with _output(json, junit, sarif, verbose=verbose) as output:
        kept = Register(register)
        raise typer.Exit(campaign_run.resume(output, store, findings, workers, kept))


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
    register: ToRegisterOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
) -> None:
    """What a campaign has run, what it never met, and what it found."""
    from cacheproof import campaign_report

    with _output(json, junit, sarif, verbose=verbose) as output:
        kept = Register(register)
        raise typer.Exit(campaign_report.report(output, store, findings, kept))


def _output(json: str | None, junit: Path | None, sarif: Path | None, *, verbose: bool) -> Output:
    """Where a command that reports writes: the same, for pipelines, whichever it is."""
    return Output(json, verbose=verbose, command="campaign", formats=Formats(junit, sarif))
