"""The commands that search: check, fuzz, explore, diff, review."""

from typing import Annotated

import typer

from cacheproof.commands.completing import one_of, releases_modelled, targets
from cacheproof.commands.helping import example
from cacheproof.commands.options import (
    A_WEEK,
    RUNNERS,
    TARGET_HELP,
    DepthOption,
    FindingsOption,
    FormatOptions,
    JsonOption,
    KnownOption,
    RegisterOption,
    ReportOptions,
    ShrinkListedOption,
    TargetOption,
    WorkOptions,
    with_shared,
)


@example(
    "cacheproof check",
    "cacheproof check --budget full --release 0.33.0",
)
@with_shared
def check(
    budget: Annotated[
        str,
        typer.Option(
            metavar="BUDGET",
            help="How much to search: short or full.",
            autocompletion=one_of("short", "full"),
        ),
    ] = "short",
    slice_: Annotated[
        str | None,
        typer.Option(
            "--slice",
            metavar="K/N",
            help="Search the K-th of N parts of the seeds; a part need not meet every known fault.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=A_WEEK,
            metavar="N",
            help="End the search after N seconds, shared by the releases; it need not meet every "
            "known fault, and says what it had no time for.",
        ),
    ] = None,
    release: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VERSION",
            help="Release to search; may be given several times. By default those of the README.",
            autocompletion=releases_modelled,
        ),
    ] = None,
    known: KnownOption = None,
    findings: FindingsOption = None,
    register: RegisterOption = None,
    *,
    work: WorkOptions,
    writing: ReportOptions,
) -> None:
    """Search two real releases over fixed seeds, and print which faults were met."""
    from cacheproof.differential.search import fault_folders
    from cacheproof.output.folders import folder_of
    from cacheproof.search import main_job
    from cacheproof.search.registering import Register

    with writing.output("check") as output:
        faults = fault_folders.load(known)
        folder = folder_of(findings)
        kept = Register(register)
        with work.place.joined():
            code = main_job.run(
                output, budget, release, faults, folder, kept, work.place, slice_, seconds
            )
        raise typer.Exit(code)


@example(
    "cacheproof fuzz --target vllm@0.33.0 --seconds 60",
    "cacheproof fuzz --target path:vllm --seeds 0:100 --json -",
    "cacheproof fuzz --target my_plugin:MyManager@0.33.0",
)
@with_shared
def fuzz(
    target: TargetOption,
    against: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What runs beside the target: reference; or none, to judge by contracts alone.",
            autocompletion=one_of("reference", "none"),
        ),
    ] = "reference",
    depth: DepthOption = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=A_WEEK,
            metavar="N",
            help="End the search after N seconds, 60 where no --seeds are given, minimising and "
            "planted faults included; what it had no time for is said.",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="Search seeds A to B - 1 of every lane; with --seconds as many as there is time "
            "for.",
        ),
    ] = None,
    shrink_listed: ShrinkListedOption = False,
    known: KnownOption = None,
    runner: Annotated[
        str | None,
        typer.Option(
            metavar="RUNNER",
            autocompletion=one_of(*RUNNERS),
            help="Run all traces under this model runner, first or second; by default some under "
            "each, engines from 0.26.0 on every second one.",
        ),
    ] = None,
    findings: FindingsOption = None,
    register: RegisterOption = None,
    *,
    work: WorkOptions,
    writing: ReportOptions,
) -> None:
    """Search one target: judge every call by every contract, in lockstep with the reference."""
    from cacheproof.differential.search import fault_folders
    from cacheproof.output.folders import folder_of
    from cacheproof.search import searching
    from cacheproof.search.registering import Register
    from cacheproof.work.plan import SearchPlan

    with writing.output("fuzz") as output:
        faults = fault_folders.load(known)
        kept = Register(register)
        plan = SearchPlan.parse(
            depth,
            against,
            seconds,
            seeds,
            shrinks_listed=shrink_listed or bool(kept),
            runner=runner,
            place=work.place,
        )
        folder = folder_of(findings)
        with plan.place.joined():
            code = searching.fuzz(output, target, plan, faults, folder, kept)
        raise typer.Exit(code)


@example("cacheproof diff vllm@0.28.0 vllm@0.33.0 --depth manager")
def diff(
    left: Annotated[
        str,
        typer.Argument(metavar="T1", help=f"One target: {TARGET_HELP}.", autocompletion=targets),
    ],
    right: Annotated[
        str, typer.Argument(metavar="T2", help="The other target.", autocompletion=targets)
    ],
    depth: DepthOption = None,
    seconds: Annotated[
        float,
        typer.Option(min=1, max=A_WEEK, metavar="N", help="Compare for about N seconds."),
    ] = 30,
    json: JsonOption = None,
) -> None:
    """Find where two targets differ, and the smallest trace that shows each difference."""
    from cacheproof.output.console import CommandOutput
    from cacheproof.search import searching

    with CommandOutput(json, command="diff") as output:
        raise typer.Exit(searching.diff(output, left, right, depth, seconds))


@example(
    "cacheproof review --base path:vllm --head path:vllm-fork \\",
    "  --seeds 0:20 > review.md",
)
@with_shared
def review(
    base: Annotated[
        str,
        typer.Option(
            "--base",
            metavar="T1",
            help=f"The target before the change: {TARGET_HELP}.",
            autocompletion=targets,
        ),
    ],
    head: Annotated[
        str,
        typer.Option(
            "--head", metavar="T2", help="The target after the change.", autocompletion=targets
        ),
    ],
    depth: DepthOption = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=A_WEEK,
            metavar="N",
            help="End after N seconds, proofs and minimising included.",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Seeds A to B - 1 of every lane.", show_default="0:20"),
    ] = None,
    known: KnownOption = None,
    *,
    work: WorkOptions,
    writing: FormatOptions,
) -> None:
    """Review a change: what it decides otherwise, what it mends and what it breaks."""
    from cacheproof.differential.search import fault_folders
    from cacheproof.review import reviewing

    faults = fault_folders.load(known)
    with writing.output("review", is_page=True) as output:
        with work.place.joined():
            code = reviewing.review(
                output,
                base,
                head,
                depth=depth,
                seeds=seeds,
                seconds=seconds,
                known=faults,
                place=work.place,
            )
        raise typer.Exit(code)


@example(
    "cacheproof explore",
    "cacheproof explore --target vllm@0.33.0 --scope full",
)
@with_shared
def explore(
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="T",
            help=f"{TARGET_HELP}; may be given several times. By default the reference and two "
            "releases.",
            autocompletion=targets,
        ),
    ] = None,
    scope: Annotated[
        str,
        typer.Option(
            metavar="SCOPE",
            help="How much to explore: small or full.",
            autocompletion=one_of("small", "full"),
        ),
    ] = "small",
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown",
            help="Print the scopes as tables in Markdown; explore nothing.",
        ),
    ] = False,
    known: KnownOption = None,
    findings: FindingsOption = None,
    json: JsonOption = None,
    *,
    work: WorkOptions,
) -> None:
    """Visit every state of small scopes, and judge every call from each."""
    from cacheproof.differential.search import fault_folders
    from cacheproof.explore import exploring
    from cacheproof.output.console import CommandOutput
    from cacheproof.output.folders import folder_of

    wanted = target or exploring.TARGETS
    with CommandOutput(json, command="explore", is_page=markdown) as output:
        if markdown:
            output.line(exploring.scopes_markdown())
            raise typer.Exit
        faults, folder = fault_folders.load(known), folder_of(findings)
        with work.place.joined():
            code = exploring.explore(output, wanted, scope, faults, folder, work.place)
        raise typer.Exit(code)
