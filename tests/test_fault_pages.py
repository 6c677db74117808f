"""The pages of findings say of each fault what a reader needs first; the table lists them all."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from cacheproof.assessing import page as page_table
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.releases import within

ROOT = Path(__file__).resolve().parent.parent
FAULTS = load()
PAGES = sorted((ROOT / "faults").glob("*/page.md"))
SOURCES = ("cacheproof", "differential", "benchmarks", "reference")
FIELDS = ["Contract", "Releases", "Runner", "Harm", "Public threads"]
FIELD = re.compile(r"^\* \*\*([^*]+)\*\* (.+(?:\n  .+)*)$", re.MULTILINE)
STATE = r" \((?:open|merged|closed)"
THREAD = re.compile(
    rf"#\d+{STATE}|none (?:was )?found|was not found|No public thread was found", re.I
)


def header_of(text: str) -> dict[str, str]:
    """The header of a page: field -> what it says.

    Raises:
        ValueError: it has none, lacks a field or has another.
    """
    found = FIELD.findall(text.split("\n\n")[1])
    if [name for name, _ in found] != FIELDS:
        raise ValueError(f"a header has {[name for name, _ in found]}, not {FIELDS}")
    return {name: " ".join(value.split()) for name, value in found}


def page_of(fault: KnownFault) -> str:
    """What its page says."""
    return (ROOT / str(fault.page)).read_text()


def unlike(fault: KnownFault, header: dict[str, str]) -> list[str]:
    """The releases of a fault of vLLM that the header of its page does not name."""
    seen = () if fault.product else within(fault.seen)
    ends = [*seen[:1], *seen[-1:]]
    return [one for one in ends if one not in header["Releases"]]


def test_every_fault_has_a_page_and_every_trace_is_named_by_its_own() -> None:
    """Each folder holds a fault, what describes it, and what shows it."""
    folders = [one.name for one in sorted((ROOT / "faults").iterdir()) if one.is_dir()]
    assert folders == [one.name for one in FAULTS] == [page.parent.name for page in PAGES]
    for fault in FAULTS:
        mine = {name for name, path in kept_traces().items() if path.parent.name == fault.name}
        assert mine <= {*fault.traces, *fault.engines}, fault.name
        assert {*fault.traces, *fault.engines} <= kept_traces().keys(), fault.name
    assert len(kept_traces()) == len(list((ROOT / "faults").glob("*/*.jsonl")))


def test_the_table_is_made_from_the_list_of_faults() -> None:
    text = (ROOT / "faults" / "README.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert table == page_table.findings(FAULTS)
    assert table != page_table.findings(FAULTS[1:])


def test_a_page_names_the_releases_in_which_its_fault_was_seen() -> None:
    found = {one.name: unlike(one, header_of(page_of(one))) for one in FAULTS}
    assert {name: releases for name, releases in found.items() if releases} == {}


def test_a_page_that_names_other_releases_is_seen() -> None:
    (fault,) = (one for one in FAULTS if one.name == "overtaken")
    assert unlike(replace(fault, seen="0.10.2 to 0.14.0"), header_of(page_of(fault))) == ["0.14.0"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name)
def test_a_page_names_the_contracts_that_its_fault_breaks(fault: KnownFault) -> None:
    said = header_of(page_of(fault))["Contract"]
    assert [one for one in fault.contracts if not re.search(rf"\b{one}\b", said)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_each_fault_names_a_thread_with_its_state_or_says_that_none_was_found(page: Path) -> None:
    assert THREAD.search(header_of(page.read_text())["Public threads"])


def test_a_row_claims_no_more_than_a_search() -> None:
    assert [one.name for one in FAULTS if not THREAD.search(one.upstream)] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "faults/README.md"], ids=str)
def test_no_page_says_that_no_thread_is_known(page: Path) -> None:
    assert not re.search(r"no public\s+thread (?:is |was )?known", page.read_text(), re.IGNORECASE)


@pytest.mark.parametrize("folder", SOURCES)
def test_no_source_says_that_there_is_no_thread(folder: str) -> None:
    files = [*(ROOT / folder).glob("*.py"), *(ROOT / folder).glob("*.toml")]
    assert files
    assert [file.name for file in files if "no public thread" in file.read_text().lower()] == []


@pytest.mark.parametrize("field", FIELDS)
def test_a_page_without_a_field_is_seen(field: str) -> None:
    text = (ROOT / "faults/overtaken/page.md").read_text()
    without = re.sub(rf"^\* \*\*{field}\*\* .+\n(?:  .+\n)*", "", text, flags=re.MULTILINE)
    assert without != text
    with pytest.raises(ValueError, match="header"):
        header_of(without)


@pytest.mark.parametrize("line", ["vLLM #55547", "PR #1, some time", "No public thread is known"])
def test_a_thread_without_a_state_and_a_claim_without_a_search_are_seen(line: str) -> None:
    assert not THREAD.search(line)
