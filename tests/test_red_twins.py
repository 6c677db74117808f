"""Of each kind of red twin `make test` runs one: the table of docs/contribute/benchmarks.md is
so."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "contribute" / "benchmarks.md"
TWINS = re.findall(r"^\| [^|]+ \| `([\w/]+\.py)::(\w+)` \|$", PAGE.read_text(), re.MULTILINE)


def is_run_by_default(file: Path, test: str) -> bool:
    """Whether a file has that test, and leaves it to `make test-all` neither alone nor whole."""
    tree = ast.parse(file.read_text())
    if any("mark.full" in ast.unparse(one) for one in tree.body if isinstance(one, ast.Assign)):
        return False
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef) and one.name == test:
            marks = {ast.unparse(mark) for mark in one.decorator_list}
            return "pytest.mark.full" not in marks
    return False


def test_there_are_twins() -> None:
    assert len(TWINS) == len(set(TWINS)) >= 19


@pytest.mark.parametrize(("file", "test"), TWINS)
def test_a_twin_is_run_by_default(file: str, test: str) -> None:
    assert is_run_by_default(TESTS / file, test)


@pytest.mark.parametrize(
    "text",
    [
        "def test_other(): ...",
        "@pytest.mark.full\ndef test_it(): ...",
        "pytestmark = pytest.mark.full\ndef test_it(): ...",
    ],
)
def test_one_that_is_gone_or_left_out_is_seen(text: str, tmp_path: Path) -> None:
    file = tmp_path / "test_file.py"
    file.write_text("@pytest.mark.sample(2)\ndef test_it(): ...")
    assert is_run_by_default(file, "test_it")
    file.write_text(text)
    assert not is_run_by_default(file, "test_it")
