"""What is counted of the structure is what is there, and the page says so."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explain" / "architecture.md").read_text()


def test_the_longest_is_found_and_a_link_is_not_followed(script, tmp_path):
    (tmp_path / "differential" / "inner").mkdir(parents=True)
    (tmp_path / "cacheproof").mkdir()
    (tmp_path / "cacheproof" / "differential").symlink_to("../differential")
    (tmp_path / "differential" / "inner" / "top.py").write_text("import ast\n\nlast = ast\n")
    (tmp_path / "differential" / "one.py").write_text("def one():\n    ...\n")
    assert script.longest_file(tmp_path) == (3, "differential/inner/top.py")
    assert script.longest(tmp_path, ast.FunctionDef) == (2, "one", "differential/one.py")


@pytest.fixture
def house(tmp_path):
    """A house of two rooms that git knows, and a file that it does not know."""
    files = {
        "spec/one.py": "# why\n# so\nclass Made: ...\n\n\nx: Any = Any  # noqa: F821\n# again\n",
        "differential/two.py": "class Made: ...\n\n\ndef f():\n    class Inner: ...\n",
        "differential/three.py": "class Inner: ...\nclass _Own: ...\n",
        "spec/four.py": "class _Own: ...\n",
        "docs/evidence/kill-matrix.md": "# A page\n",
        "docs/by-hand.md": "One that somebody wrote\n",
        "README.md": "Begin here\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "link.py").symlink_to("spec/one.py")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (tmp_path / "docs" / "draft.md").write_text("Not known yet\n")
    return tmp_path


def test_lines_and_words_are_those_of_files_that_git_knows(script, house):
    assert script.lines(house) == {"spec": 8, "differential": 7, "docs": 2, ".": 1}
    assert script.words(house) == (6, 3)


def test_a_block_of_comments_counts_once_and_what_a_tool_reads_not_at_all(script, house):
    assert script.comments(house) == 2


def test_a_line_that_says_any_twice_counts_once(script, house):
    assert script.untyped(house) == 1


def test_public_classes_of_one_name_are_found(script, house):
    assert script.named_twice(house) == {"Made": ["spec/one.py", "differential/two.py"]}


@pytest.mark.full
def test_no_code_is_copied_and_the_page_says_so(script):
    number, report = script.copied(ROOT)
    assert number == 0, report
    assert re.search(r"^\| copied lines, .*\| 0 \|$", PAGE, re.MULTILINE)


COPIED = """
    found = {}
    pairs = set(pairs)
    for one, other in sorted(pairs):
        found.setdefault(one, []).append(other)
    for name in found:
        found[name].sort()
    return found
"""


@pytest.mark.parametrize(("taken", "lines"), [(slice(None), 7), (slice(1, None), 0)])
def test_a_copy_counts_from_seven_lines_on(script, tmp_path, taken, lines):
    (tmp_path / "spec").mkdir()
    (tmp_path / "tests").mkdir()
    body = COPIED.strip("\n").splitlines()
    one, other = ("\n".join(["def f(pairs):", *rest]) for rest in (body, body[taken]))
    (tmp_path / "spec" / "one.py").write_text(f"{one}\n")
    (tmp_path / "tests" / "other.py").write_text(f"{other}\n")
    number, report = script.copied(tmp_path)
    assert number == lines
    assert ("found.setdefault" in report) == bool(lines)
