"""The commands about the rules and the evidence for them, and about known faults: assess, prove,
contracts, explain, report, gallery."""

from typing import Annotated

import typer

from cacheproof.commands.completing import (
    components,
    contract_ids,
    faults,
    one_of,
    releases_modelled,
    targets,
)
from cacheproof.commands.helping import example
from cacheproof.commands.options import (
    OUTPUT,
    FindingsOption,
    JsonOption,
    KnownOption,
    ReportOptions,
    WorkOptions,
    with_shared,
)


@example("cacheproof assess 0.33.0", "cacheproof assess 0.33.0 --for isolation")
def assess(
    release: Annotated[
        str,
        typer.Argument(
            metavar="RELEASE",
            help="A modelled release of vLLM, such as 0.33.0.",
            autocompletion=releases_modelled,
        ),
    ],
    purpose: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="PURPOSE",
            help="One of isolation, availability, memory; by default all.",
            autocompletion=one_of("isolation", "availability", "memory"),
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Answer an auditor's questions about a release from kept evidence; nothing is run."""
    from cacheproof.assessing import report
    from cacheproof.output.console import CommandOutput

    with CommandOutput(json, command="assess") as output:
        raise typer.Exit(report.assess(output, release, purpose))


@example(
    "cacheproof prove --target reference --target vllm@0.33.0",
    "cacheproof prove --target path:vllm --fresh",
)
@with_shared
def prove(
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="T",
            help="reference, vllm@VERSION, path:DIR or MODULE:CLASS[@VERSION]; may be given "
            "several times. By default the reference and all installed releases.",
            autocompletion=targets,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=2**31 - 1, metavar="N", help="Random seed of the solver (Z3)."),
    ] = 0,
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown",
            help="Print docs/evidence/evidence.md instead of a table.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Prove everything again, also what was proved before.")
    ] = False,
    known: KnownOption = None,
    *,
    work: WorkOptions,
    writing: ReportOptions,
) -> None:
    """Prove contracts from the text of the reference, of releases, forks and plug-ins."""
    from cacheproof.differential.search import fault_folders
    from cacheproof.proving import proving

    with writing.output("prove", is_page=markdown) as output:
        faults = fault_folders.load(known)
        with work.place.joined():
            code = proving.prove(
                output,
                target or None,
                faults,
                seed=seed,
                markdown=markdown,
                fresh=fresh,
                place=work.place,
            )
        raise typer.Exit(code)


@example("cacheproof contracts", "cacheproof contracts EC-6", "cacheproof contracts --json -")
def contracts(
    contract: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="One contract, to be told in full; by default all of them are listed.",
            autocompletion=contract_ids,
        ),
    ] = None,
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown",
            help="Print docs/reference/contracts.md instead of a table.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    json: JsonOption = None,
) -> None:
    """List the contracts, the rules that every call is judged by; or tell one of them in full."""
    from cacheproof.output.console import CommandOutput
    from cacheproof.tables import contract_table

    if contract is not None:
        from cacheproof.tables.one_contract import show_contract

        with CommandOutput(json, command="contracts") as told:
            show_contract(told, contract)
            raise typer.Exit
    with CommandOutput(json, command="contracts", is_page=markdown) as output:
        if markdown:
            output.line(contract_table.markdown())
        else:
            output.report.print(contract_table.table())
        output.tell(contract_table.conclusion())


@example("cacheproof explain uncomputed-hit", "cacheproof explain")
def explain(
    fault: Annotated[
        str | None,
        typer.Argument(
            metavar="FAULT",
            help="The name of a known fault; without one all of them are listed.",
            autocompletion=faults,
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Explain a known fault: what happens, where, what it needs, how to avoid and to see it."""
    from cacheproof.listed import explaining
    from cacheproof.output.console import CommandOutput

    with CommandOutput(json, command="explain") as output:
        if fault is None:
            explaining.list_faults(output)
        else:
            explaining.explain_fault(output, fault)


@example(
    "cacheproof report phantom-entry",
    "cacheproof report stripped-item --no-review",
)
@with_shared
def report(
    fault: Annotated[
        str,
        typer.Argument(metavar="FAULT", help="The name of a known fault.", autocompletion=faults),
    ],
    release: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="Release of vLLM to report it on; by default the newest that has it.",
            autocompletion=releases_modelled,
        ),
    ] = None,
    reviews: Annotated[
        bool,
        typer.Option(
            "--review/--no-review", help="Review the mend: what it does beside mending the fault."
        ),
    ] = True,
    seeds: Annotated[
        str,
        typer.Option(metavar="A:B", help="Seeds A to B - 1 of every lane, for the review."),
    ] = "0:2",
    findings: FindingsOption = None,
    json: JsonOption = None,
    *,
    work: WorkOptions,
) -> None:
    """Write what one would post upstream about a known fault, with a script and a patch.

    The script is run: it must fail on the release, and pass with the patch.
    """
    from cacheproof.output.console import CommandOutput
    from cacheproof.output.folders import folder_of
    from cacheproof.reporting import command

    with CommandOutput(json, command="report", is_page=True) as output:
        with work.place.joined():
            code = command.report(
                output,
                fault,
                release,
                reviews=reviews,
                seeds=seeds,
                findings=folder_of(findings),
                place=work.place,
            )
        raise typer.Exit(code)


@example("cacheproof gallery", "cacheproof gallery --component block_pool")
@with_shared
def gallery(
    component: Annotated[
        str | None,
        typer.Option(
            "--component",
            metavar="NAME",
            help="Run only the variants of what the contracts of this component judge; by default "
            "all.",
            autocompletion=components,
        ),
    ] = None,
    json: JsonOption = None,
    *,
    work: WorkOptions,
) -> None:
    """Run every faulty variant of the reference, and print which contract catches it."""
    from cacheproof.output.console import CommandOutput
    from cacheproof.search import main_job

    with CommandOutput(json, command="gallery", is_page=True) as output:
        raise typer.Exit(main_job.gallery(output, work.place, component))
