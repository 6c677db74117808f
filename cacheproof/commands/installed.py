"""The commands that provision and list releases and connectors."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cacheproof.commands.completing import releases_installed, releases_modelled
from cacheproof.commands.helping import add, example, group
from cacheproof.commands.options import JsonOption
from cacheproof.differential.errors import InputError
from cacheproof.reference.releases import NEWEST

if TYPE_CHECKING:
    from cacheproof.console import Output

vllm_app = group("Install, list and remove vLLM releases in the cache folder.")
connector_app = group("Install and list encoder cache connectors that are not vLLM's own.")


@example("cacheproof vllm install 0.32.0 0.33.0")
def vllm_install(
    versions: Annotated[
        list[str],
        typer.Argument(
            metavar="VERSION...",
            help=f"Releases of vLLM, such as {NEWEST}.",
            autocompletion=releases_modelled,
        ),
    ],
) -> None:
    """Fetch releases from the package index into the cache folder."""
    from cacheproof.console import Output
    from cacheproof.differential.targets import releases

    output = Output(None)
    for release in releases.install_all(versions, report=output.say):
        output.line(f"vllm {release.version} ({release.source}): {release.tree}")


@example("cacheproof vllm list")
def vllm_list(json: JsonOption = None) -> None:
    """List the releases that are installed."""
    from cacheproof.console import Output
    from cacheproof.differential.targets import releases

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


@example("cacheproof vllm texts")
def vllm_texts(
    toml: Annotated[
        Path | None,
        typer.Option("--toml", metavar="FILE", help="Write the table of texts."),
    ] = None,
    json: JsonOption = None,
) -> None:
    """List which releases read the same in all that is modelled, and check the installed ones."""
    from cacheproof import text_table
    from cacheproof.console import Output

    raise typer.Exit(text_table.texts(Output(json), toml))


@example("cacheproof vllm remove 0.32.0")
def vllm_remove(
    versions: Annotated[
        list[str],
        typer.Argument(
            metavar="VERSION...",
            help="Releases to remove.",
            autocompletion=releases_installed,
        ),
    ],
) -> None:
    """Remove releases from the cache folder; the libraries that they share stay."""
    from cacheproof.differential.targets import releases

    for version in versions:
        releases.require_installed(version)
    for version in dict.fromkeys(versions):
        releases.remove(version)


@example("cacheproof connector install lmcache@0.5.6")
def connector_install(
    names: Annotated[
        list[str],
        typer.Argument(metavar="lmcache@VERSION...", help="Connectors, such as lmcache@0.5.6."),
    ],
) -> None:
    """Fetch connectors into the cache folder, each beside the newest vLLM release."""
    from cacheproof.console import Output
    from cacheproof.differential.targets import connectors

    output = Output(None)
    for name in names:
        kind, _, version = name.partition("@")
        if kind != connectors.LMCACHE:
            raise InputError(f"connector {name!r}: expected lmcache@VERSION")
        connectors.require_played(version)
    for version in (name.partition("@")[2] for name in names):
        found = connectors.install(version, report=output.say)
        output.line(f"lmcache {version} beside vllm {found.version}: {found.overlays[0]}")


@example("cacheproof connector list")
def connector_list(json: JsonOption = None) -> None:
    """List the connectors that are installed."""
    from cacheproof.console import Output
    from cacheproof.differential.targets import connectors

    output = Output(json)
    names = [f"{connectors.LMCACHE}@{version}" for version in connectors.list_installed()]
    _print_installed(output, names, f"connector install {connectors.LMCACHE}@{connectors.FIRST}")
    output.write_json("connector list", {"connectors": names})


def _print_installed(output: "Output", lines: list[str], command: str) -> None:
    """What is there, a line each; where nothing is, the command that changes that."""
    for line in lines or [f"none; provision one with: cacheproof {command}"]:
        output.line(line)


add(vllm_app, vllm_install, name="install")
add(vllm_app, vllm_list, name="list")
add(vllm_app, vllm_texts, name="texts")
add(vllm_app, vllm_remove, name="remove")
add(connector_app, connector_install, name="install")
add(connector_app, connector_list, name="list")
