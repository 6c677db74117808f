"""What is counted of the structure is what is there, and the page says the same of the rooms."""

import ast
import re
from pathlib import Path

import pytest

from tests.test_import_direction import ROOMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.full
def test_the_page_has_the_rooms_the_arrows_and_the_floors_that_there_are(script):
    rooms, arrows = script.rooms_of(ROOT), script.arrows_of(ROOT)
    now = len(rooms), len(arrows), max(script.floors(arrows, room) for room in rooms)
    rows = re.findall(r"^\| (rooms|arrows|floors) .*\| (\d+) \|$", PAGE, re.MULTILINE)
    assert [(kind, int(number)) for kind, number in rows] == [
        *zip(("rooms", "arrows", "floors"), now, strict=True)
    ]
    assert arrows == {(room, other) for room, others in ROOMS.items() for other in others}


def test_an_arrow_more_is_counted_and_a_link_is_not_followed(script, tmp_path):
    for room in ("low", "middle", "high"):
        (tmp_path / "differential" / room / "inner").mkdir(parents=True)
        (tmp_path / "differential" / room / "__init__.py").write_text("")
    (tmp_path / "cacheproof").mkdir()
    (tmp_path / "cacheproof" / "differential").symlink_to("../differential")
    high = tmp_path / "differential" / "high" / "inner" / "top.py"
    high.write_text("from cacheproof.differential.middle import one\n\nlast = one\n")
    middle = tmp_path / "differential" / "middle" / "one.py"
    middle.write_text("def one(): ...\n")
    assert script.arrows_of(tmp_path) == {("high", "middle")}
    assert script.longest_file(tmp_path) == (3, "differential/high/inner/top.py")
    middle.write_text("from cacheproof.differential.low import two\n\ndef one():\n    return two\n")
    assert script.arrows_of(tmp_path) == {("high", "middle"), ("middle", "low")}
    assert script.floors(script.arrows_of(tmp_path), "high") == 3
    assert script.longest(tmp_path, ast.FunctionDef) == (2, "one", "differential/middle/one.py")


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
