"""Every page is listed, and every link leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LISTS = (DOCS / "README.md", DOCS / "findings" / "README.md")


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
    assert [
        page.name for page in DOCS.rglob("*.md") if page not in {*listed, DOCS / "README.md"}
    ] == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title: of two\n[a](gone.md) [b](#a-title-of-two) [c](page.md#other)\n")
    assert dead(page) == ["gone.md", "page.md#other"]
