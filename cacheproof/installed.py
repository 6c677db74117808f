"""The commands that provision and list releases and connectors."""

from pathlib import Path
from typing import Annotated

import typer

from cacheproof import text_table
from cacheproof.console import Output
from cacheproof.differential.errors import InputError
from cacheproof.differential.targets import connectors, releases
from cacheproof.options import JsonOption
from cacheproof.reference.releases import NEWEST

vllm_app = typer.Typer(help="Real vLLM releases to check.", no_args_is_help=True)
connector_app = typer.Typer(
    help="Connectors of encoder caches that are not vLLM's own.", no_args_is_help=True
)


@vllm_app.command("install")
def vllm_install(versions: Annotated[list[str], typer.Argument(metavar="VERSION...")]) -> None:
    """Provision releases in the cache folder."""
    output = Output(None)
    for release in releases.install_all(versions, report=output.say):
        output.line(f"vllm {release.version} ({release.source}): {release.tree}")


@vllm_app.command("list")
def vllm_list(json: JsonOption = None) -> None:
    """Releases that are there and usable."""
    output = Output(json)
    installed = releases.list_installed()
    lines = [f"{one.version:10} {one.source:28} {one.tree}" for one in installed]
    _print_installed(output, lines, f"vllm install {NEWEST}")
    output.write_json(
        "vllm list",
        {
            "releases": [
                {
                    "version": release.version,
                    "source": release.source,
                    "archive": release.archive,
                    "sha256": release.sha256,
                    "tree": str(release.tree),
                }
                for release in installed
            ]
        },
    )


@vllm_app.command("texts")
def vllm_texts(
    toml: Annotated[
        Path | None, typer.Option("--toml", metavar="FILE", help="Write the table there anew.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Which releases read the same in all that is modelled, and whether those here read so."""
    raise typer.Exit(text_table.texts(Output(json), toml))


@vllm_app.command("remove")
def vllm_remove(versions: Annotated[list[str], typer.Argument(metavar="VERSION...")]) -> None:
    """Remove releases from the cache folder; the shared libraries stay."""
    for version in versions:
        releases.remove(version)


@connector_app.command("install")
def connector_install(
    names: Annotated[list[str], typer.Argument(metavar="lmcache@VERSION...")],
) -> None:
    """Provision connectors in the cache folder, each beside the newest release."""
    output = Output(None)
    for name in names:
        kind, _, version = name.partition("@")
        if kind != connectors.LMCACHE:
            raise InputError(f"connector {name!r}: expected lmcache@VERSION")
        found = connectors.install(version, report=output.say)
        output.line(f"lmcache {version} beside vllm {found.version}: {found.overlays[0]}")


@connector_app.command("list")
def connector_list(json: JsonOption = None) -> None:
    """Connectors that are there and usable."""
    output = Output(json)
    names = [f"{connectors.LMCACHE}@{version}" for version in connectors.list_installed()]
    _print_installed(output, names, f"connector install {connectors.LMCACHE}@{connectors.FIRST}")
    output.write_json("connector list", {"connectors": names})


def _print_installed(output: Output, lines: list[str], command: str) -> None:
    """What is there, a line each; where nothing is, the command that changes that."""
    for line in lines or [f"none; provision one with: cacheproof {command}"]:
        output.line(line)
