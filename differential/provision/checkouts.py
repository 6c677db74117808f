"""An uninstalled vLLM checkout or fork as a target. The user's folder is read, never written."""

import email
import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.provision import environment, sources
from cacheproof.differential.provision.cache import Cache, Report
from cacheproof.differential.provision.releases import (
    CHECKOUT,
    HASHER_MODULES,
    InstalledRelease,
    bytecode_of,
)
from cacheproof.differential.provision.versions import runs_hasher_alone

HOSTED_MODULES = (
    "vllm.config",
    "vllm.v1.core.encoder_cache_manager",
    "vllm.v1.core.kv_cache_manager",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.request",
)
"""What a host imports of any release that has a scheduler it can run."""
UNKNOWN = "0+unknown"
GIT_SECONDS_MAX = 30

_TAGGED = re.compile(r"v(\d[\w.]*)-(\d+)-(g[0-9a-f]+)")
_UNFIT = re.compile(r"[^A-Za-z0-9.]+")


def for_path(
    directory: Path,
    *,
    report: Report,
    cache: Cache | None = None,
    engine_like: str | None = None,
) -> InstalledRelease:
    """A checkout that can run; as an engine, with the libraries of release `engine_like`'s engine.
    Makes the shared libraries first if they are missing.

    Raises:
        InputError: the folder is no vLLM checkout.
        SetupError: the libraries cannot be set up.
    """
    tree = tree_of(directory)
    cache = cache or Cache.locate()
    version = version_of(tree)
    overlay = (
        environment.overlay_of(version)
        if engine_like is None
        else environment.engine_overlay_of(engine_like, is_compiled=False)
    )
    metadata = _metadata_folder(cache, tree, version)
    libraries = environment.locate(cache, overlay)
    if libraries is None or not metadata.is_dir():
        with cache.writing():
            libraries = environment.ensure(cache, overlay, report=report)
            _write_metadata(cache, metadata, version)
    return InstalledRelease(
        version=version,
        tree=tree,
        metadata=metadata,
        python=libraries.python,
        overlays=libraries.overlays,
        source=CHECKOUT,
        archive="",
        sha256="",
        pinned=False,
    )


def tree_of(directory: Path) -> Path:
    """The absolute folder of a checkout that has all modules that a host imports. Imports none.

    Raises:
        InputError: the folder is no vLLM checkout, or not a whole one.
    """
    try:
        tree = directory.expanduser().absolute()
        is_package = (tree / "vllm" / "__init__.py").is_file()
    except (OSError, RuntimeError) as error:  # a name that is too long, a user that is none
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"path:{str(directory)[:60]}: {why}; expected the folder of a vLLM checkout"
        ) from None
    if not is_package:
        inner = tree.name == "vllm" and (tree / "__init__.py").is_file()
        hint = f"; did you mean its parent, {tree.parent}?" if inner else ""
        raise InputError(
            f"{directory} is no vLLM checkout: {tree / 'vllm' / '__init__.py'} is missing{hint}"
        )
    missing = _missing(tree, HOSTED_MODULES)
    if missing and runs_hasher_alone(version_of(tree)):
        missing = _missing(tree, HASHER_MODULES)
    if missing:
        raise InputError(
            f"{directory} is no whole vLLM checkout: it lacks {', '.join(missing)}; expected "
            "the Python of vLLM 0.10.0 or later, as git or a source archive has it"
        )
    return tree


def _missing(tree: Path, modules: Sequence[str]) -> list[str]:
    """The modules that a folder holds neither as a file nor as a package."""
    places = {module: tree.joinpath(*module.split(".")) for module in modules}
    return [
        module
        for module, place in places.items()
        if not (place.with_suffix(".py").is_file() or (place / "__init__.py").is_file())
    ]


def forget(checkout: InstalledRelease, cache: Cache | None = None) -> None:
    """Remove what was made for a checkout whose files are about to change, or to go."""
    cache = cache or Cache.locate()
    bytecode = bytecode_of(cache) / checkout.tree.relative_to(checkout.tree.anchor)
    for folder in (checkout.metadata, cache.scratch / checkout.metadata.name, bytecode):
        shutil.rmtree(folder, ignore_errors=True)


def version_of(tree: Path) -> str:
    """The version of a checkout, by its generated version file, else its git tags, else its
    PKG-INFO; UNKNOWN where none says it."""
    return sources.stated_version(tree) or _tagged(tree) or _packaged(tree) or UNKNOWN


def _tagged(tree: Path) -> str | None:
    if not (tree / ".git").exists():
        return None  # a git repository around the folder says nothing about it
    try:
        said = subprocess.run(
            ["git", "-C", str(tree), "describe", "--tags", "--long", "--match", "v[0-9]*"],
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS_MAX,
            check=False,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    tag = _TAGGED.fullmatch(said)
    if tag is None:
        return None
    return tag[1] if tag[2] == "0" else f"{tag[1]}+{tag[2]}.{tag[3]}"


def _packaged(tree: Path) -> str | None:
    try:
        return email.message_from_bytes((tree / "PKG-INFO").read_bytes()).get("Version")
    except OSError:
        return None


def _metadata_folder(cache: Cache, tree: Path, version: str) -> Path:
    digest = hashlib.sha256(f"{tree}\0{version}".encode()).hexdigest()[:16]
    return cache.checkouts / digest


def _write_metadata(cache: Cache, folder: Path, version: str) -> None:
    public, _, local = version.partition("+")
    parts = [_UNFIT.sub(".", part) for part in (public, local)]
    with cache.workspace() as workspace:
        draft = workspace.path / "metadata"
        sources.write_metadata(draft, f"{parts[0]}+cpu" + (f".{parts[1]}" if parts[1] else ""))
        if not folder.is_dir():
            draft.rename(folder)
