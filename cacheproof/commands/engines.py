"""The commands about engines that run: record, audit, http."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from cacheproof.commands.completing import one_of, targets
from cacheproof.commands.helping import example
from cacheproof.commands.options import (
    OUTPUT,
    FormatOptions,
    HtmlOption,
    JsonOption,
    KnownOption,
    PerfettoOption,
    with_shared,
)
from cacheproof.differential.errors import InputError
from cacheproof.differential.serving.traffic import SERVED_MODELS

EVENTS_DRAWN = 200
RecordArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECORD",
        help="Folder or file that cacheproof record has written; - for standard input.",
    ),
]


@example("cacheproof record records -- vllm serve MODEL", "cacheproof audit records --follow")
def record(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the records.")],
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="Command that starts vLLM, after --."),
    ],
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Write identifiers and request ids as they are, not their digests."
        ),
    ] = False,
    mib: Annotated[
        int, typer.Option(min=8, metavar="N", help="MiB that each process writes at most.")
    ] = 1024,
    kv: Annotated[
        bool, typer.Option("--kv", help="Record every call of the KV cache manager too.")
    ] = False,
) -> None:
    """Run a command that starts vLLM, and record what its caches do."""
    from cacheproof.differential.recording import plugin
    from cacheproof.output.folders import folder_of

    program = shutil.which(command[0])
    if program is None:
        raise InputError(f"{command[0]}: not found; expected a command, e.g. vllm serve MODEL")
    folder_of(folder, "DIR")
    record = f"cacheproof audit {shlex.quote(str(folder))}"
    print(f"recording {command[0]} into {folder}; when it has run: {record}", file=sys.stderr)
    sys.stderr.flush()
    os.environ |= {
        plugin.FOLDER: str(folder.absolute()),
        plugin.PLAIN: str(int(plain)),
        plugin.LIMITS: str(mib),
        plugin.KV: str(int(kv)),
    }
    os.execv(program, command)


@example("cacheproof audit records", "cacheproof audit records --html page.html")
@with_shared
def audit(
    where: RecordArgument,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Judge what the engine goes on to write, until it ends."),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="With --follow: serve metrics for Prometheus at this port.",
        ),
    ] = None,
    until_finding: Annotated[
        bool, typer.Option("--until-finding", help="With --follow: end at the first finding.")
    ] = False,
    window: Annotated[
        int,
        typer.Option(
            min=1,
            max=100_000,
            metavar="N",
            help="Number of events that --html and --perfetto draw.",
            rich_help_panel=OUTPUT,
        ),
    ] = EVENTS_DRAWN,
    known: KnownOption = None,
    html: HtmlOption = None,
    perfetto: PerfettoOption = None,
    *,
    writing: FormatOptions,
) -> None:
    """Judge what an engine recorded, by every contract that speaks of it."""
    from cacheproof.audit import auditing
    from cacheproof.output.drawing import Drawings

    for option, is_given in (("--until-finding", until_finding), ("--metrics-port", metrics_port)):
        if is_given not in (None, False) and not follow:
            raise InputError(f"{option} goes with --follow; expected both")
    drawings = Drawings(html, perfetto)
    if drawings.are_asked_for and where == "-":
        raise InputError("what is drawn is read twice; expected a file or a folder, not -")
    with writing.output("audit", streams=follow) as output:
        code = auditing.audit(
            output,
            where,
            known,
            drawings,
            window=window,
            follow=follow,
            metrics_port=metrics_port,
            until_finding=until_finding,
        )
        raise typer.Exit(code)


@example(
    "cacheproof http --target engine@0.33.0",
    "cacheproof http --target engine@0.33.0 --model llava",
)
def http(
    target: Annotated[
        str,
        typer.Option(
            metavar="engine@VERSION",
            help="The release whose server is asked.",
            autocompletion=targets,
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help=f"Kind of model: {', '.join(SERVED_MODELS)}; may be given several times. All by "
            "default.",
            autocompletion=one_of(*SERVED_MODELS),
        ),
    ] = None,
    seeds: Annotated[
        str,
        typer.Option(
            metavar="A:B", help="Start one server for each seed, with settings drawn from it."
        ),
    ] = "0:2",
    requests: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="N", help="Requests sent to each server.")
    ] = 100,
    clients: Annotated[
        int, typer.Option(min=1, max=256, metavar="N", help="Clients that ask at the same time.")
    ] = 12,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator",
            help="Have an operator reset each server's caches, pause it, put it to sleep and load "
            "other weights, while clients ask.",
        ),
    ] = False,
    task: Annotated[
        str,
        typer.Option(
            metavar="TASK",
            help="What clients ask for: tokens (generate), or of a prompt its embedding (embed), "
            "the class that it is of (classify), or how like another one it is (score).",
            autocompletion=one_of("generate", "embed", "classify", "score"),
        ),
    ] = "generate",
    api_servers: Annotated[
        int, typer.Option(min=1, max=16, metavar="N", help="Processes of a server that are asked.")
    ] = 1,
    engines: Annotated[
        int,
        typer.Option(
            min=1, max=16, metavar="N", help="Engines of a server, each with all of the model."
        ),
    ] = 1,
    known: KnownOption = None,
    records: Annotated[
        Path | None,
        typer.Option(
            "--records",
            metavar="DIR",
            help="Keep there what each server recorded.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Ask a release's OpenAI server as many clients at once, and compare every token."""
    from cacheproof.output.console import CommandOutput
    from cacheproof.serving import serving

    with CommandOutput(json, command="http") as output:
        code = serving.http(
            output,
            target,
            model or (),
            seeds,
            requests,
            clients,
            known,
            records,
            has_operator=operator,
            task=task,
            api_servers=api_servers,
            engines=engines,
        )
        raise typer.Exit(code)
