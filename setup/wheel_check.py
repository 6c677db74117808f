"""Builds the wheel, installs it into an empty environment and looks at what arrived.

An install may add one name to site-packages, `cacheproof`, and its dist-info, and must bring every
file of the linked folders as a real file. Prints one line; exits 1 with what is wrong.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("spec", "reference", "gpu_runner", "proofs", "differential")
PAGES = {"faults": "faults"}
"""Folders without code, and what they are called in the package."""


def copy_sources(root: Path, destination: Path) -> None:
    """A clean copy to build from: a leftover of an earlier build could reach the wheel."""
    destination.mkdir()
    for name in (*FOLDERS, *PAGES, "cacheproof", "docs", "pyproject.toml", "LICENSE", "README.md"):
        source = root / name
        if source.is_dir():
            shutil.copytree(
                source,
                destination / source.name,
                symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        else:
            shutil.copy2(source, destination)


def package_files(root: Path) -> set[str]:
    """Every file that the package must bring, as paths below site-packages."""
    folders = {root / "cacheproof": "cacheproof"}
    folders |= {root / name: f"cacheproof/{name}" for name in FOLDERS}
    folders |= {root / name: f"cacheproof/{called}" for name, called in PAGES.items()}
    return {
        f"{prefix}/{path.relative_to(folder).as_posix()}"
        for folder, prefix in folders.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def install(wheel: Path, environment: Path) -> Path:
    """Installs the wheel alone into a new environment; returns its site-packages."""
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    return next((environment / "lib").glob("python*/site-packages"))


def faults(site_packages: Path, expected_files: set[str]) -> list[str]:
    """What is wrong with an installed wheel, one sentence each."""
    gained = {path.name for path in site_packages.iterdir()}
    dist_infos = {
        name for name in gained if name.startswith("cacheproof-") and name.endswith(".dist-info")
    }
    stray = sorted(gained - dist_infos - {"cacheproof"})
    found = [f"site-packages gained {name}, which is not cacheproof's" for name in stray]
    if len(dist_infos) != 1:
        found.append(f"expected one cacheproof dist-info, found {sorted(dist_infos)}")
    package = site_packages / "cacheproof"
    present = {p.relative_to(site_packages).as_posix() for p in package.rglob("*") if p.is_file()}
    found += [f"the wheel lacks {name}" for name in sorted(expected_files - present)]
    found += [
        f"the wheel brings {name}, which no folder has" for name in sorted(present - expected_files)
    ]
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        copy, dist = Path(scratch, "source"), Path(scratch, "dist")
        copy_sources(ROOT, copy)
        try:
            run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", dist, copy)
            (wheel,) = dist.glob("*.whl")
            site_packages = install(wheel, Path(scratch, "environment"))
        except subprocess.CalledProcessError as failure:
            print(
                f"error: {' '.join(map(str, failure.cmd))} failed:\n{failure.output}",
                file=sys.stderr,
            )
            return 2
        found = faults(site_packages, package_files(copy))
        for fault in found:
            print(f"error: {fault}", file=sys.stderr)
        if not found:
            print(f"{wheel.name}: site-packages gained cacheproof and its dist-info, nothing else")
        return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
