"""What is counted of the structure is what is there, and the page says so."""

import ast
import re
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
