"""The repository keeps its shape: links, locked versions, what the command line is made from."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("spec", "reference", "gpu_runner", "proofs", "differential")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "setup" / "dev.lock").read_text()
LOCKED = dict(re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE))


@pytest.mark.parametrize("folder", [*FOLDERS, "faults"])
def test_each_folder_is_linked_into_the_package_by_a_relative_link(folder: str) -> None:
    assert (ROOT / "cacheproof" / folder).readlink() == Path("..") / folder


@pytest.mark.parametrize("folder", [*FOLDERS, "faults"])
def test_git_keeps_each_link_as_a_link(folder: str) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--stage", f"cacheproof/{folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert listed.startswith("120000 ")


@pytest.mark.parametrize(
    "line", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
)
def test_the_lock_holds_a_version_that_each_requirement_accepts(line: str) -> None:
    requirement = Requirement(line)
    assert requirement.specifier.contains(LOCKED[requirement.name])


def test_the_core_needs_neither_torch_nor_vllm() -> None:
    assert not {"torch", "vllm"} & {Requirement(line).name for line in PROJECT["dependencies"]}
    assert not {"torch", "vllm"} & LOCKED.keys()


def test_every_locked_version_carries_hashes() -> None:
    entries = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(LOCKED)
    assert all("--hash=sha256:" in entry for entry in entries)


def test_the_lock_names_no_place_to_download_from() -> None:
    assert "://" not in LOCK
    assert "index-url" not in LOCK
    assert "find-links" not in LOCK


def test_the_linked_folders_are_one_module_each_however_imported() -> None:
    import cacheproof.reference
    import cacheproof.spec

    assert Path(cacheproof.spec.__file__).resolve() == ROOT / "spec" / "__init__.py"
    assert Path(cacheproof.reference.__file__).resolve() == ROOT / "reference" / "__init__.py"
