"""The libraries that every release shares: one environment from a lock, made once.

An environment cannot be moved, so it is made where it stays, under a lock, and a stamp is written
last: without its stamp it is deleted and made anew. Some get a second folder in front, an overlay:
releases before 0.24.0 the older libraries that they were written for, engines what it takes to
execute a model.
"""

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from cacheproof.differential.errors import SetupError
from cacheproof.differential.provision.cache import Cache, Report
from cacheproof.differential.provision.child import last_line, run_logged
from cacheproof.differential.provision.installing import Install, Installer
from cacheproof.differential.provision.versions import (
    FIRST_ENGINE_WITH_NEWER_LIBRARIES,
    FIRST_ENGINE_WITH_NEWER_TORCH,
    needs_older_libraries,
    order,
)

ENVIRONMENT_MIB = 2300
_PROBE = "import torch, transformers, msgspec"


@dataclass(frozen=True)
class Overlay:
    """Libraries in front of the shared ones: their lock, and their purpose. `also` is a further
    requirement, which is not in the lock. `modules` must import before the overlay counts as
    installed: where a library has files for any platform and others for this one, an installer may
    take files that do not work here. uv does so where several indexes have parts of a version,
    since it looks at the first of them alone; pip looks at all."""

    name: str
    lock: str
    mib: int
    purpose: str
    also: str = ""
    modules: tuple[str, ...] = ()

    @property
    def requirements(self) -> str:
        """The text that is installed."""
        return f"{_lock(self.lock)}{self.also}\n" if self.also else _lock(self.lock)


OLDER = Overlay("older", "older_releases.lock", 350, "older libraries for releases before 0.24.0")
ENGINE = Overlay("engine", "engine.lock", 350, "the libraries of an engine")
ENGINE_BEFORE_0_31 = Overlay(
    "engine-before-0.31", "engine_before_0_31.lock", 460, "the libraries of engines before 0.31.0"
)
ENGINE_BEFORE_0_27 = Overlay(
    "engine-before-0.27",
    "engine_before_0_27.lock",
    4500,
    "the libraries of engines before 0.27.0 (4 GB: their torch is there as a CUDA build alone)",
)
TRITON = Overlay(
    "triton",
    "triton.lock",
    1300,
    "Triton, whose interpreter runs an engine's second model runner (286 MB)",
    modules=("triton",),
)
SERVER = Overlay(
    "server",
    "server.lock",
    40,
    "the libraries of OpenAI servers",
    modules=("fastapi", "httptools", "soundfile", "uvicorn", "uvloop", "watchfiles", "websockets"),
)


def lmcache(version: str) -> Overlay:
    """The overlay of an LMCache version, with what it needs."""
    name = f"lmcache-{version}"
    return Overlay(name, "lmcache.lock", 350, f"LMCache {version}", f"lmcache=={version}")


def overlay_of(version: str) -> Overlay | None:
    """The overlay that a release needs; None where the shared libraries do."""
    return OLDER if needs_older_libraries(version) else None


def engine_overlay_of(version: str, *, is_compiled: bool = True) -> Overlay:
    """The overlay that an engine needs; one that `is_compiled` needs the torch that it was compiled
    for."""
    if is_compiled and order(version) < order(FIRST_ENGINE_WITH_NEWER_TORCH):
        return ENGINE_BEFORE_0_27
    is_older = order(version) < order(FIRST_ENGINE_WITH_NEWER_LIBRARIES)
    return ENGINE_BEFORE_0_31 if is_older else ENGINE


@dataclass(frozen=True)
class Libraries:
    """One set of libraries: the shared environment, and an overlay in front where needed."""

    python: Path
    overlays: tuple[Path, ...]

    @property
    def key(self) -> str:
        """Name of the set: two sets of one name hold the same packages for the same Python."""
        return "+".join((self.python.parent.parent.name, *(path.name for path in self.overlays)))


def locate(cache: Cache, overlay: Overlay | None = None) -> Libraries | None:
    """The libraries; None where they are not there, or not whole. Changes nothing."""
    environment = _environment_folder(cache)
    overlays = () if overlay is None else (_overlay_folder(cache, overlay),)
    if not all(_is_complete(folder) for folder in (environment, *overlays)):
        return None
    python = environment / "bin" / "python"
    return Libraries(python, overlays) if python.exists() else None


def missing_mib(cache: Cache, overlays: Iterable[Overlay | None]) -> int:
    """Disk space in MiB that `ensure` needs for what is not there yet."""
    missing = 0 if _is_complete(_environment_folder(cache)) else ENVIRONMENT_MIB
    for overlay in overlays:
        if overlay is not None and not _is_complete(_overlay_folder(cache, overlay)):
            missing += overlay.mib
    return missing


def ensure(cache: Cache, overlay: Overlay | None = None, *, report: Report) -> Libraries:
    """The libraries; made first where they are missing or incomplete.

    Raises:
        SetupError: no network, disk full, no pip, or an environment that does not work.
    """
    found = locate(cache, overlay)
    if found is not None:
        return found
    environment = _environment_folder(cache)
    python = environment / "bin" / "python"
    with cache.alone(environment.name, report) as guard:
        # Looked at again: another process may have made it while this one waited for the lock.
        if not (_is_complete(environment) and python.exists()):
            _make_environment(cache, environment, report, guard)
    if overlay is None:
        return Libraries(python, ())
    folder = _overlay_folder(cache, overlay)
    # After the environment, whose Python installs the overlay.
    with cache.alone(folder.name, report) as guard:
        if not _is_complete(folder):
            _make_overlay(cache, overlay, folder, python, report, guard)
    return Libraries(python, (folder,))


def _make_environment(cache: Cache, folder: Path, report: Report, guard: int) -> None:
    cache.discard(folder)
    cache.require(ENVIRONMENT_MIB, "the environment that vLLM releases share")
    with cache.workspace() as workspace:
        lock = _lock("environment.lock")
        requirements = workspace.path / "environment.lock"
        requirements.write_text(lock)
        # Builds of torch differ in what they need (a CUDA build brings its own libraries), so
        # torch alone is asked for its dependencies; those of the lock count as installed.
        torch = next(line for line in lock.splitlines() if line.startswith("torch=="))

        def make_venv() -> None:
            _make_venv(cache, folder, report, (guard, workspace.guard))

        def install_libraries(install: Install) -> None:
            install(
                "installing the libraries that vLLM imports", ["--no-deps", "-r", str(requirements)]
            )
            install("completing torch", [torch])

        make_venv()
        installer = Installer(folder / "bin" / "python", cache, workspace, report, guard)
        installer.fill(install_libraries, anew=make_venv)
        # Before the probe, which would compile what it imports one by one.
        _compile(installer)
        _probe(installer, _PROBE, "the libraries")
    _stamp(folder)


def _make_venv(cache: Cache, folder: Path, report: Report, inherit: tuple[int, ...]) -> None:
    log = cache.logs / f"venv-{folder.name}.log"
    status = run_logged(
        [sys.executable, "-P", "-m", "venv", "--clear", str(folder)],
        log=log,
        env=_quiet(os.environ),
        title="making an environment",
        report=report,
        inherit=inherit,
    )
    if status != 0:
        raise SetupError(
            f"{sys.executable} cannot make an environment with pip: {last_line(log)}; install "
            f"Python's venv and ensurepip modules (log: {log})"
        )
    log.unlink()


def compiled_folders() -> list[str]:
    """Folders, below site-packages, of modules that are compiled once an environment is filled."""
    lines = _lock("compiled_folders.txt").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _compile(installer: Installer) -> None:
    """Compile on all cores what every import of vLLM needs. A file that fails to compile does not
    matter: an import compiles what is missing."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = installer.python.parent.parent / "lib" / version / "site-packages"
    folders = [str(packages / name) for name in compiled_folders()]
    log = installer.cache.logs / f"compile-{installer.workspace.path.name}.log"
    run_logged(
        [str(installer.python), "-P", "-m", "compileall", "-q", "-l", "-j", "0", *folders],
        log=log,
        env=_quiet(os.environ),
        title="compiling the libraries",
        report=installer.report,
        inherit=(installer.guard, installer.workspace.guard),
    )
    log.unlink()


def _probe(installer: Installer, statement: str, what: str, overlay: Path | None = None) -> None:
    """Import libraries, those of an overlay in front of the others.

    Raises:
        SetupError: one does not import.
    """
    log = installer.cache.logs / f"probe-{installer.workspace.path.name}.log"
    status = run_logged(
        [str(installer.python), "-P", "-c", statement],
        log=log,
        env=_quiet(os.environ) | ({} if overlay is None else {"PYTHONPATH": str(overlay)}),
        title=f"importing {what}",
        report=installer.report,
        inherit=(installer.guard, installer.workspace.guard),
    )
    if status != 0:
        raise SetupError(f"{what} do not import: {last_line(log)} (log: {log})")
    log.unlink()


def _make_overlay(
    cache: Cache, overlay: Overlay, folder: Path, python: Path, report: Report, guard: int
) -> None:
    cache.discard(folder)
    cache.require(overlay.mib, overlay.purpose)
    with cache.workspace() as workspace:
        requirements = workspace.path / overlay.lock
        requirements.write_text(overlay.requirements)
        draft = workspace.path / overlay.name
        installer = Installer(python, cache, workspace, report, guard)

        def install_overlay(install: Install) -> None:
            install(
                f"installing {overlay.purpose}",
                ["--no-deps", "--target", str(draft), "-r", str(requirements)],
            )
            if overlay.modules:
                _probe(installer, f"import {', '.join(overlay.modules)}", overlay.purpose, draft)

        def discard_draft() -> None:
            cache.discard(draft)

        installer.fill(install_overlay, anew=discard_draft)
        if (extension := draft / "torchvision" / "extension.py").exists():
            _declare_operators(extension)
        _stamp(draft)
        os.sync()
        draft.rename(folder)


def _declare_operators(extension: Path) -> None:
    """Let torchvision import beside a torch that its compiled part was not built for.

    The index has it for one CUDA alone. Its Python then registers shapes for operators that do not
    exist; nothing here calls them, so it is enough that they are declared.
    """
    text = extension.read_text()
    extension.unlink()  # uv links it from its cache, where it is to stay as it is
    extension.write_text(
        f"{text}\n\nif not _has_ops():\n"
        '    _declared = torch.library.Library("torchvision", "DEF")\n'
        '    for _name in ("nms", "qnms"):\n'
        "        _declared.define(\n"
        '            f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"\n'
        "        )\n"
    )


def _environment_folder(cache: Cache) -> Path:
    return cache.environments / f"{_digest(_lock('environment.lock'))}-{_python_tag()}"


def _overlay_folder(cache: Cache, overlay: Overlay) -> Path:
    digest = _digest(overlay.requirements)
    return cache.environments / f"{overlay.name}-{digest}-{_python_tag()}"


def _python_tag() -> str:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"cp{sys.version_info.major}{sys.version_info.minor}-{platform}"


def _lock(name: str) -> str:
    return resources.files("cacheproof.differential.provision").joinpath(name).read_text()


def _digest(lock: str) -> str:
    return hashlib.sha256(lock.encode()).hexdigest()[:12]


def _is_complete(folder: Path) -> bool:
    return (folder / ".complete").exists()


def _stamp(folder: Path) -> None:
    os.sync()  # the stamp must not outlive, in a crash, what it vouches for
    draft = folder / ".complete.draft"
    draft.write_text(json.dumps({"python": sys.version}))
    draft.replace(folder / ".complete")


def _quiet(environ: Mapping[str, str]) -> dict[str, str]:
    # PYTHONPATH and its like would bring packages of the user into the environment.
    return {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
