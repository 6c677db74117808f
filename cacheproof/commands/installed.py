"""The commands that provision and list releases and connectors."""

from pathlib import Path
from typing import Annotated

import typer

from cacheproof.commands.completing import releases_installed, releases_modelled
from cacheproof.commands.helping import add, example, group
from cacheproof.commands.options import JsonOption
from cacheproof.differential.errors import InputError
from cacheproof.reference.releases import NEWEST

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
    from cacheproof.differential.provision import releases
    from cacheproof.differential.search.verdict import HOLDS
    from cacheproof.output.conclusion import Conclusion
    from cacheproof.output.console import CommandOutput
    from cacheproof.tables import places

    with CommandOutput(None, command="vllm install") as output:
        found = releases.install_all(versions, report=output.say)
        for release in found:
            output.line(f"vllm {release.version} ({release.source}): {release.tree}")
        line = places.of_installed([f"vllm@{one.version}" for one in found])
        output.tell(Conclusion(HOLDS, line))


@example("cacheproof vllm list")
def vllm_list(json: JsonOption = None) -> None:
    """List the releases that are installed."""
    from cacheproof.differential.provision import releases
    from cacheproof.differential.search.verdict import HOLDS
    from cacheproof.output.conclusion import Conclusion
    from cacheproof.output.console import CommandOutput
    from cacheproof.tables import places

    with CommandOutput(json, command="vllm list") as output:
        installed = releases.list_installed()
        for one in installed:
            output.line(f"{one.version:10} {one.source:28} {one.tree}")
        names = [f"vllm@{one.version}" for one in installed]
        facts = {
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
        }
        line = places.of_list(names, "release of vLLM", f"vllm install {NEWEST}")
        output.tell(Conclusion(HOLDS, line, facts))


@example("cacheproof vllm texts")
def vllm_texts(
    toml: Annotated[
        Path | None,
        typer.Option("--toml", metavar="FILE", help="Write the table of texts."),
    ] = None,
    json: JsonOption = None,
) -> None:
    """List which releases read the same in all that is modelled, and check the installed ones."""
    from cacheproof.output.console import CommandOutput
    from cacheproof.tables import text_table

    with CommandOutput(json, command="vllm texts") as output:
        raise typer.Exit(text_table.texts(output, toml))


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
    from cacheproof.differential.provision import releases

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
    from cacheproof.differential.provision import connectors
    from cacheproof.differential.search.verdict import HOLDS
    from cacheproof.output.conclusion import Conclusion
    from cacheproof.output.console import CommandOutput
    from cacheproof.tables import places

    with CommandOutput(None, command="connector install") as output:
        for name in names:
            kind, _, version = name.partition("@")
            if kind != connectors.LMCACHE:
                raise InputError(f"connector {name!r}: expected lmcache@VERSION")
            connectors.require_played(version)
        for version in (name.partition("@")[2] for name in names):
            found = connectors.install(version, report=output.say)
            output.line(f"lmcache {version} beside vllm {found.version}: {found.overlays[0]}")
        output.tell(Conclusion(HOLDS, places.of_installed(names)))


@example("cacheproof connector list")
def connector_list(json: JsonOption = None) -> None:
    """List the connectors that are installed."""
    from cacheproof.differential.provision import connectors
    from cacheproof.differential.search.verdict import HOLDS
    from cacheproof.output.conclusion import Conclusion
    from cacheproof.output.console import CommandOutput
    from cacheproof.tables import places

    with CommandOutput(json, command="connector list") as output:
        names = [f"{connectors.LMCACHE}@{version}" for version in connectors.list_installed()]
        for name in names:
            output.line(name)
        newest = f"connector install {connectors.LMCACHE}@{connectors.FIRST}"
        line = places.of_list(names, "connector", newest)
        output.tell(Conclusion(HOLDS, line, {"connectors": names}))


add(vllm_app, vllm_install, name="install")
add(vllm_app, vllm_list, name="list")
add(vllm_app, vllm_texts, name="texts")
add(vllm_app, vllm_remove, name="remove")
add(connector_app, connector_install, name="install")
add(connector_app, connector_list, name="list")
