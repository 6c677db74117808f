"""No page and no message names cacheproof as something that a package index has."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cacheproof.work.extras import install_line

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PAGE = (ROOT / "docs" / "how-to" / "install.md").read_text()
INSTALLS = re.compile(r"\binstall(?:\s+-\S+)*\s+['\"]?cacheproof\b(?![/.-])")
EXTRA_OF_A_NAME = re.compile(r"(?<![\w./-])cacheproof\[[a-z]+\]")
PLACEHOLDER = re.compile(r"git clone REPOSITORY\b")
BARE = (INSTALLS, EXTRA_OF_A_NAME, PLACEHOLDER)


def bare(text: str) -> list[str]:
    """Where a text would have an index asked for cacheproof, or clones what nobody can."""
    return [found.group() for pattern in BARE for found in pattern.finditer(text)]


def tracked() -> list[Path]:
    """The texts of the repository, but this one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md", "*.py", "*.toml", "*.yml", "*.yaml", "*.sh", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [one for one in files if one.is_file() and one != Path(__file__)]


def test_every_install_line_is_of_a_clone_or_a_wheel() -> None:
    wrong = {one.relative_to(ROOT).as_posix(): bare(one.read_text()) for one in tracked()}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    "text",
    [
        "pip install cacheproof",
        "`pip install cacheproof[hypothesis]`",
        "uv pip install --quiet 'cacheproof'",
        "pipx install cacheproof beside vLLM",
        "expected cacheproof[cluster]",
        "git clone REPOSITORY cacheproof",
    ],
)
def test_a_line_that_asks_an_index_is_noticed(text: str) -> None:
    assert bare(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install './cacheproof[hypothesis]'",
        "pip install dist/cacheproof-0.1.0-py3-none-any.whl",
        "git clone /path/to/cacheproof cacheproof",
    ],
)
def test_a_line_that_names_a_path_is_none(text: str) -> None:
    assert bare(text) == []


def test_the_page_names_every_extra_and_the_wheel_of_this_version() -> None:
    assert set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE)) == EXTRAS.keys() - {"dev"}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert set(re.findall(r"cacheproof-([\d.]+)-py3", PAGE)) == {version}


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"dev"}))
def test_a_message_names_the_libraries_of_an_extra(extra: str) -> None:
    words = install_line(extra).replace("'", "").split()
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    named = [Requirement(one) for one in words[4:]]
    assert sorted(map(str, named)) == sorted(str(Requirement(one)) for one in EXTRAS[extra])


def test_make_setup_brings_every_extra_but_torch() -> None:
    brought = {Requirement(one).name for one in EXTRAS["dev"]}
    of_extras = {Requirement(one).name for extra in EXTRAS.values() for one in extra}
    assert of_extras - brought == {"torch"}
