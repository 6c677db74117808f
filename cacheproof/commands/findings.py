"""The commands about one finding: replay, bisect, minimise."""

from pathlib import Path
from typing import Annotated

import typer

from cacheproof.commands.completing import contract_ids, targets, what_to_replay
from cacheproof.commands.engines import RecordArgument
from cacheproof.commands.helping import example
from cacheproof.commands.options import (
    A_WEEK,
    TARGET_HELP,
    FindingsOption,
    HtmlOption,
    JsonOption,
    KnownOption,
    PerfettoOption,
    WhatArgument,
)


@example(
    "cacheproof replay repeated-item@0.28.0",
    "cacheproof replay found/same_step_ec_6.json --times 4",
    "cacheproof replay uncomputed-hit@0.33.0 --times 2",
    "cacheproof replay faults/discarded-token/page.md",
)
def replay(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FINDING",
            help="A finding (.json), a trace (.jsonl), FAULT@RELEASE (the newest finding of a "
            "known fault, else a trace that shows it), or a page (.md): its Python is run.",
            autocompletion=what_to_replay,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="T",
            help=f"Where to run it: {TARGET_HELP}. By default where it was found, or last seen.",
            autocompletion=targets,
        ),
    ] = None,
    times: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="How many times to run it.")
    ] = 10,
    known: KnownOption = None,
    findings: FindingsOption = None,
    html: HtmlOption = None,
    perfetto: PerfettoOption = None,
    json: JsonOption = None,
) -> None:
    """Run a finding or a trace again, and tell what breaks, where, and what to do.

    It ends with 1 where something breaks, be it known or not.
    """
    from cacheproof.differential.search import fault_folders
    from cacheproof.output.console import CommandOutput
    from cacheproof.output.drawing import Drawings
    from cacheproof.output.folders import findings_folder
    from cacheproof.replay import replaying

    folder = findings or findings_folder()
    drawings, faults = Drawings(html, perfetto), fault_folders.load(known)
    with CommandOutput(json, command="replay") as output:
        code = replaying.replay(output, file, target, times, folder, drawings, faults)
        raise typer.Exit(code)


@example(
    "cacheproof bisect repeated-item@0.28.0",
    "cacheproof bisect found/finding.json --checkout vllm \\",
    "  --good v0.32.0 --bad v0.33.0",
)
def bisect(
    what: WhatArgument,
    contract: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Contract to ask about; by default the finding's, or each that the trace breaks.",
            autocompletion=contract_ids,
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="Ask every modelled release, and install those missing."),
    ] = False,
    checkout: Annotated[
        Path | None,
        typer.Option(
            "--checkout",
            metavar="DIR",
            help="Git history of vLLM: name a commit of it. Nothing in the folder is changed.",
        ),
    ] = None,
    good: Annotated[
        str | None,
        typer.Option(metavar="REV", help="With --checkout: a commit where the contract holds."),
    ] = None,
    bad: Annotated[
        str | None,
        typer.Option(metavar="REV", help="With --checkout: a commit where it is broken."),
    ] = None,
    findings: FindingsOption = None,
    json: JsonOption = None,
) -> None:
    """Name the release, or the commit, that brought a fault and the one that mended it."""
    from cacheproof.output.console import CommandOutput
    from cacheproof.output.folders import findings_folder
    from cacheproof.replay import bisecting

    folder = findings or findings_folder()
    commits = (checkout, good, bad)
    with CommandOutput(json, command="bisect") as output:
        raise typer.Exit(bisecting.bisect(output, what, folder, contract, *commits, every=all_))


@example("cacheproof minimise records --contract SC-9")
def minimise(
    where: RecordArgument,
    contract: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Contract whose break to show; by default the one that audit shows first.",
            autocompletion=contract_ids,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="T",
            help="Target to break; by default the release that was recorded.",
            autocompletion=targets,
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(min=1, max=A_WEEK, metavar="N", help="Stop shrinking after N seconds."),
    ] = 600,
    known: KnownOption = None,
    findings: FindingsOption = None,
    json: JsonOption = None,
) -> None:
    """Make a small trace of a break in a record, one that breaks the release alone."""
    from cacheproof.output.console import CommandOutput
    from cacheproof.replay import minimising

    with CommandOutput(json, command="minimise") as output:
        code = minimising.minimise(output, where, contract, target, seconds, known, findings)
        raise typer.Exit(code)
