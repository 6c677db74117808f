"""The command that runs an engine with the recorder on."""

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from cacheproof.differential.errors import InputError
from cacheproof.differential.recording import plugin
from cacheproof.options import folder_of


def record(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where records go.")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="After --.")],
    plain: Annotated[
        bool, typer.Option("--plain", help="Keep identifiers and names of requests as they are.")
    ] = False,
    mib: Annotated[
        int, typer.Option(min=8, metavar="N", help="MiB that a process keeps at most.")
    ] = 1024,
    kv: Annotated[
        bool, typer.Option("--kv", help="Record every call of the KV cache manager as well.")
    ] = False,
) -> None:
    """Run a command that starts vLLM, with the recorder on."""
    program = shutil.which(command[0])
    if program is None:
        raise InputError(f"{command[0]}: not found; expected a command, e.g. vllm serve MODEL")
    folder_of(folder)
    os.environ |= {
        plugin.FOLDER: str(folder.absolute()),
        plugin.PLAIN: str(int(plain)),
        plugin.LIMITS: str(mib),
        plugin.KV: str(int(kv)),
    }
    os.execv(program, command)
