"""Options and arguments that several commands have."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.cache import Cache

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write JSON there; - for stdout.")
]
HtmlOption = Annotated[
    str | None,
    typer.Option(
        "--html", metavar="FILE", help="Draw the run there: a page that needs no network."
    ),
]
PerfettoOption = Annotated[
    str | None, typer.Option("--perfetto", metavar="FILE", help="Write the run there for Perfetto.")
]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML there.")
]
SarifOption = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="Write SARIF 2.1.0 there.")
]
KnownOption = Annotated[
    Path | None, typer.Option("--known", metavar="FILE", help="Replaces the shipped known faults.")
]
FindingsOption = Annotated[
    Path | None,
    typer.Option("--findings", metavar="DIR", help="Keep findings there, not in the cache folder."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Work on a Ray cluster: auto, or HOST:PORT; needs the extra cluster.",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        metavar="N",
        help="Processes, each with a host; one a core by default.",
    ),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="All lanes, findings and evidence too.")
]
RegisterOption = Annotated[
    Path | None,
    typer.Option(
        "--register",
        metavar="FILE",
        help="Run the traces of this register first, and keep in it what is found, listed or not.",
    ),
]
ShrinkListedOption = Annotated[
    bool, typer.Option("--shrink-listed", help="Make small what is listed, too.")
]
DEPTHS = dict.fromkeys(lane.depth for lane in LANES.values())
DepthOption = Annotated[
    str | None, typer.Option("--depth", help=f"{', '.join(DEPTHS)}; all by default.")
]
A_WEEK = 7 * 24 * 3600
TARGET_HELP = (
    "reference[@VERSION], vllm@VERSION, engine@VERSION, lmcache@VERSION, path:DIR or "
    "MODULE:CLASS[@VERSION]"
)
TargetOption = Annotated[str, typer.Option("--target", metavar="T", help=TARGET_HELP)]


def with_shared(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer is to read it: in the place of its parameter `shared` the fields of that
    parameter's class, which several commands share."""
    own = inspect.signature(command, eval_str=True).parameters
    kind = own["shared"].annotation
    fields = inspect.signature(kind, eval_str=True).parameters

    @wraps(command)
    def call(**given: Any) -> None:
        command(shared=kind(**{name: given.pop(name) for name in fields}), **given)

    together = [one for name, one in own.items() if name != "shared"]
    together += [one.replace(kind=one.KEYWORD_ONLY) for one in fields.values()]
    call.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in together}
    return call


def findings_folder() -> Path:
    """Where findings are kept by default."""
    return Cache.locate().root / "findings"


def folder_of(findings: Path | None) -> Path:
    """The folder for findings, made now: a search must not end in finding that it cannot be.

    Raises:
        InputError: it cannot be made.
    """
    folder = findings or findings_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--findings {folder}: cannot be made: {error.strerror}; expected a folder that can "
            "be written"
        ) from None
    return folder
