"""The pages of findings say of each fault what a reader needs first; the table lists them all."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cacheproof.assessing import page as page_table
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault
from cacheproof.reference.releases import within

ROOT = Path(__file__).resolve().parent.parent
FINDINGS = ROOT / "docs" / "findings"
PAGES = sorted(page for page in FINDINGS.glob("*.md") if page.name != "README.md")
SOURCES = ("cacheproof", "differential", "benchmarks", "reference")
FIELDS = ["Contract", "Releases", "Runner", "Harm", "Public threads"]
FIELD = re.compile(r"^\* \*\*([^*]+)\*\* (.+(?:\n  .+)*)$", re.MULTILINE)
STATE = r" \((?:open|merged|closed)"
THREAD = re.compile(
    rf"#\d+{STATE}|none (?:was )?found|was not found|No public thread was found", re.I
)


def headers(text: str) -> Iterator[dict[str, str]]:
    """The header of each fault of a page, in the page's order: field -> what it says.

    Raises:
        ValueError: there is none, or one lacks a field or has another.
    """
    parts = re.split(r"\n(?=\* \*\*Contract\*\* )", text)[1:]
    if not parts:
        raise ValueError("no fault has a header")
    for part in parts:
        found = FIELD.findall(part.split("\n\n")[0])
        if [name for name, _ in found] != FIELDS:
            raise ValueError(f"a header has {[name for name, _ in found]}, not {FIELDS}")
        yield {name: " ".join(value.split()) for name, value in found}


def header_of(page: Path, anchor: str) -> dict[str, str]:
    """The header of the section that an anchor names: its own, else the last one above it."""
    text = page.read_text()
    found: dict[str, str] = {}
    for part in re.split(r"^(?=#+ )", text, flags=re.MULTILINE)[1:]:
        found = next(headers(part), found) if "* **Contract** " in part else found
        title = part.splitlines()[0].lstrip("# ").lower()
        if re.sub(r"[^\w\- ]", "", title).replace(" ", "-") == anchor or not anchor:
            break
    return found


def unlike(fault: KnownFault, header: dict[str, str]) -> list[str]:
    """The releases of a fault of vLLM that the header of its page does not name."""
    ends = [] if fault.product else [within(fault.seen)[0], within(fault.seen)[-1]]
    return [one for one in ends if one not in header["Releases"]]


def replayed(text: str) -> dict[tuple[str, str], str]:
    """The table of docs/findings-replayed.md: trace and contract -> where the first runner has it
    broken."""
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {(cells[0], cells[1]): cells[2] for cells in table if len(cells) == 5}


def disagreements(page: str, replays: dict[tuple[str, str], str]) -> list[str]:
    """The traces in a page's table of traces, contracts and releases that break elsewhere."""
    found = re.findall(r"^\| (`[^|]+`) \| ([A-Z]+-\d+) \| ([^|]+) \|", page, re.MULTILINE)
    assert found
    return [
        name
        for names, contract, releases in found
        for name in re.findall(r"`([^`]+)`", names)
        if replays[name, contract] != releases.strip()
    ]


DESCRIBED = page_table.described(load())


def place_of(fault: KnownFault) -> tuple[Path, str]:
    """The page and the anchor at which a fault is described."""
    name, _, anchor = (fault.page or "").partition("#")
    return ROOT / "docs" / name, anchor


def test_the_table_is_made_from_the_list_of_faults() -> None:
    text = (FINDINGS / "README.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert table == page_table.findings(load())
    assert table != page_table.findings(DESCRIBED[1:])


def test_a_page_names_the_releases_in_which_its_faults_were_seen() -> None:
    found = {one.name: unlike(one, header_of(*place_of(one))) for one in DESCRIBED}
    assert {name: releases for name, releases in found.items() if releases} == {}


def test_a_page_that_names_other_releases_is_seen() -> None:
    fault = KnownFault(
        "it", "a title", "safety", page="findings/overtaken.md", seen="0.10.2 to 0.14.0"
    )
    assert unlike(fault, header_of(*place_of(fault))) == ["0.14.0"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_fault_of_a_page_is_listed(page: Path) -> None:
    of_page = [header_of(*place_of(one)) for one in DESCRIBED if place_of(one)[0] == page]
    assert [header for header in headers(page.read_text()) if header not in of_page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_fault_names_a_thread_with_its_state_or_says_that_none_was_found(page: Path) -> None:
    for header in headers(page.read_text()):
        assert THREAD.search(header["Public threads"])


def test_a_row_claims_no_more_than_a_search() -> None:
    assert [one.name for one in DESCRIBED if not THREAD.search(one.upstream)] == []


@pytest.mark.parametrize("page", [*PAGES, FINDINGS / "README.md"], ids=lambda page: page.stem)
def test_no_page_says_that_no_thread_is_known(page: Path) -> None:
    assert not re.search(r"no public\s+thread (?:is |was )?known", page.read_text(), re.IGNORECASE)


@pytest.mark.parametrize("folder", SOURCES)
def test_no_source_says_that_there_is_no_thread(folder: str) -> None:
    files = [*(ROOT / folder).glob("*.py"), *(ROOT / folder).glob("*.toml")]
    assert files
    assert [file.name for file in files if "no public thread" in file.read_text().lower()] == []


@pytest.mark.parametrize("field", FIELDS)
def test_a_page_without_a_field_is_seen(field: str) -> None:
    text = (FINDINGS / "overtaken.md").read_text()
    without = re.sub(rf"^\* \*\*{field}\*\* .+\n(?:  .+\n)*", "", text, flags=re.MULTILINE)
    assert without != text
    with pytest.raises(ValueError, match="header"):
        list(headers(without))


@pytest.mark.parametrize("line", ["vLLM #55547", "PR #1, some time", "No public thread is known"])
def test_a_thread_without_a_state_and_a_claim_without_a_search_are_seen(line: str) -> None:
    assert not THREAD.search(line)


REPLAYED = replayed((ROOT / "docs" / "findings-replayed.md").read_text())
TRANSFERS = (FINDINGS / "kv-transfers.md").read_text()


def test_a_table_of_traces_names_the_releases_in_which_they_were_seen_to_break() -> None:
    assert disagreements(TRANSFERS, REPLAYED) == []


def test_a_table_that_names_another_release_is_seen() -> None:
    wrong = TRANSFERS.replace("| KT-1 | 0.10.2 to 0.23.0 |", "| KT-1 | 0.10.2 to 0.22.1 |")
    assert disagreements(wrong, REPLAYED) == ["kv-load-in-flight"]
