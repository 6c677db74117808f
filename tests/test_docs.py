"""Every page is listed, and every link leads somewhere."""

import re
from pathlib import Path

import pytest

import cacheproof.differential.judges.rules  # noqa: F401  (it imports every component)
from cacheproof.spec.registry import contracts

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("faults/**/*.md")])
RECIPES = [
    ROOT / "CONTRIBUTING.md",
    *(DOCS / "contribute").glob("add-*.md"),
    DOCS / "contribute" / "false-alarm.md",
]
MADE_ON_THE_WAY = {"gpu_runner/models/vipllava.py"}
"""Files that a recipe adds."""
FAULTS = ROOT / "faults"
LISTS = (DOCS / "README.md", FAULTS / "README.md")


def links(page: Path) -> list[tuple[Path, str]]:
    """The files that a page links to, each with the anchor in it."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    local = (one.partition("#") for one in found if "://" not in one)
    return [((page.parent / file).resolve() if file else page, at) for file, _, at in local]


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in titles}


def dead(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    return [
        f"{file.name}#{at}" if at else file.name
        for file, at in links(page)
        if not file.exists() or (at and file.suffix == ".md" and at not in anchors(file))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda one: one.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert dead(page) == []


def test_every_page_is_listed() -> None:
    listed = {file for page in LISTS for file, _ in links(page)}
    pages = [*DOCS.rglob("*.md"), *FAULTS.rglob("*.md")]
    assert [page.name for page in pages if page not in {*listed, *LISTS}] == []


BY_HAND = [page for page in PAGES if not {"evidence", "contracts.md", "audit.md"} & {*page.parts}]
"""Pages that no command writes, or that say what was run."""


def ranges(text: str) -> list[str]:
    """Where a text names all rules of two letters by the first and the last: there will be more."""
    numbers: dict[str, int] = {}
    for rule in contracts():
        number = int(re.sub(r"\D", "", rule.id))
        numbers[rule.id[:2]] = max(number, numbers.get(rule.id[:2], 0))
    found = re.findall(r"\b([A-Z]{2})-1 to \1-(\d+)", text)
    return [f"{letters}-{last}" for letters, last in found if numbers[letters] == int(last)]


def test_no_page_names_all_rules_by_a_range() -> None:
    found = {page.name: ranges(page.read_text()) for page in BY_HAND}
    assert {name: rules for name, rules in found.items() if rules} == {}
    last = max(int(re.sub(r"\D", "", rule.id)) for rule in contracts() if rule.id[:3] == "EC-")
    assert ranges(f"EC-1 to EC-{last}, EC-1 to EC-7, SC-3 to SC-7") == [f"EC-{last}"]


def gone(text: str) -> list[str]:
    """The files, folders and tests that a recipe names and that are not there."""
    paths = re.findall(r"`((?:\w+/)+[\w.-]*)`", text)
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    names = re.findall(r"`(test_\w+)`", text)
    return [one for one in paths if not (ROOT / one).exists() and one not in MADE_ON_THE_WAY] + [
        one for one in names if f"def {one}(" not in tests
    ]


@pytest.mark.parametrize("page", RECIPES, ids=lambda one: one.name)
def test_a_recipe_names_what_is_there(page: Path) -> None:
    assert gone(page.read_text()) == []


def test_a_file_and_a_test_that_are_gone_are_found() -> None:
    assert gone("`spec/gone.py`, `test_that_was`") == ["spec/gone.py", "test_that_was"]


def without_a_test(text: str) -> list[str]:
    """The tests, as `file.py::test_name`, that a text names and that are not there."""
    files = [*(ROOT / "tests").rglob("test_*.py")]
    return [
        f"{file}::{name}"
        for file, name in re.findall(r"`(?:tests/)?((?:\w+/)*test_\w+\.py)::(test_\w+)", text)
        if not any(
            one.as_posix().endswith(f"/{file}") and f"def {name}(" in one.read_text()
            for one in files
        )
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda one: one.relative_to(ROOT).as_posix())
def test_a_page_names_tests_that_are_there(page: Path) -> None:
    assert without_a_test(page.read_text()) == []


def test_a_test_that_is_gone_or_lies_elsewhere_is_found() -> None:
    there = "test_a_test_that_is_gone_or_lies_elsewhere_is_found"
    named = f"`tests/test_docs.py::{there}`, `test_house.py::{there}`, `test_docs.py::test_gone[a]`"
    assert without_a_test(named) == [f"test_house.py::{there}", "test_docs.py::test_gone"]


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title: of two\n[a](gone.md) [b](#a-title-of-two) [c](page.md#other)\n")
    assert dead(page) == ["gone.md", "page.md#other"]
