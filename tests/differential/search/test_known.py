"""The list of known faults: what it covers, and what is refused as such a list."""

import re
from pathlib import Path

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.search.known import KnownFault, covering, load, showing_seeds
from cacheproof.differential.traces.trace import ModelRunner

ENTRY = """
[[fault]]
name = "a-fault"
page = "findings/README.md"
[[fault.face]]
contract = "EC-6"
releases = ">=0.10.2,<0.29.0"
harm = "safety"
thread = "vLLM PR #1"
note = "a note"
"""


@pytest.fixture
def faults(tmp_path: Path) -> list[KnownFault]:
    path = tmp_path / "known.toml"
    another = ENTRY.replace("EC-6", "EC-1").replace("a-fault", "another")
    path.write_text(ENTRY + another + 'lanes = ["scheduler"]\n')
    return load(path)


@pytest.mark.parametrize(
    ("contract", "release", "lane", "covered"),
    [
        ("EC-6", "0.28.0", "encoder cache", True),
        ("EC-6", "0.28.0", "scheduler", True),
        ("EC-6", "0.10.2", "scheduler", True),
        ("EC-6", "0.10.1.1", "scheduler", False),
        ("EC-6", "0.29.0", "scheduler", False),
        ("EC-6", "0.28.1.dev3+gabc", "scheduler", True),
        ("EC-6", None, "scheduler", False),
        ("EC-6a", "0.28.0", "scheduler", False),
        ("EC-1", "0.28.0", "scheduler", True),
        ("EC-1", "0.28.0", "encoder cache", False),
    ],
)
def test_an_entry_covers_its_contract_in_its_releases_and_its_lane(
    faults: list[KnownFault], contract: str, release: str | None, lane: str, covered: bool
) -> None:
    assert (covering(faults, contract, release, lane) is not None) is covered


def test_an_empty_file_is_an_empty_list(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text("")
    assert load(path) == []


def test_the_shipped_list_says_what_goes_wrong_in_one_line() -> None:
    for fault in load():
        assert fault.note == fault.note.strip()
        assert len(fault.note.splitlines()) == 1


@pytest.mark.parametrize(
    ("listed", "of_trace", "covered"),
    [
        (None, "first", True),
        (None, "second", True),
        ("first", "first", True),
        ("first", "second", False),
        ("second", "first", False),
        ("second", None, True),
    ],
)
def test_an_entry_of_one_model_runner_covers_no_trace_of_the_other(
    listed: ModelRunner | None, of_trace: ModelRunner | None, covered: bool
) -> None:
    fault = KnownFault("SC-9", "all", "safety", "a note", runner=listed)
    assert fault.covers("SC-9", "0.33.0", "scheduler", "", of_trace) is covered


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        (("EC-6", "EC-66"), "'EC-66' is no contract id"),
        ((">=0.10.2,<0.29.0", "newest"), "expected all, >=A, <B or >=A,<B"),
        ((">=0.10.2,<0.29.0", ">=x"), "'x' is not a release number"),
        (('"safety"', '"bad"'), "Invalid enum value 'bad'"),
        (("note =", "remark ="), "unknown field"),
        (('note = "a note"', ""), "missing required field `note`"),
        (('note = "a note"', "note = 3"), "Expected `str`, got `int`"),
        (('note = "a note"', 'note = "n"\nlanes = ["none"]'), "'none' is no lane"),
        (('note = "a note"', 'note = "n"\nrunner = "third"'), "Invalid enum value 'third'"),
        (('note = "a note"', 'note = "n"\nseeds = [1]'), "seeds of EC-6 (n) with 0 lanes"),
        (('note = "a note"', 'note = "n"\nlanes = ["scheduler"]\nseeds = [-1]'), "`int` >= 0"),
        (
            ('note = "a note"', f'note = "n"\nlanes = ["scheduler"]\nseeds = [{10**9}]'),
            "`int` <= 999999999",
        ),
        (('note = "a note"', f'note = "n"\nlanes = ["scheduler"]\nseeds = [{10**30}]'), "`int`"),
        (("[[fault]]", "[[fault]"), "Expected ']]'"),
        (("[[fault]]", "[[known]]"), "unknown field"),
        (('name = "a-fault"', ""), "missing required field `name`"),
        (('name = "a-fault"', 'name = "a fault"'), "matching regex"),
        (("[[fault.face]]", ENTRY + "[[fault.face]]"), "two faults are called a-fault"),
    ],
)
def test_a_spoiled_list_is_refused_in_one_line(
    tmp_path: Path, spoiled: tuple[str, str], words: str
) -> None:
    path = tmp_path / "known.toml"
    path.write_text(ENTRY.replace(*spoiled))
    with pytest.raises(InputError) as caught:
        load(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert words in said
    assert said.splitlines() == [said]


def test_seeds_are_those_of_the_faults_of_a_release() -> None:
    faults = [
        KnownFault("EC-6", "<0.28.0", "safety", "old", lanes=("scheduler",), seeds=(7,)),
        KnownFault("EC-7", "all", "safety", "any", lanes=("scheduler",), seeds=(9, 3)),
        KnownFault("EC-1", "all", "safety", "common"),
    ]
    assert showing_seeds(faults, "0.28.0") == {"scheduler": [3, 9]}
    assert showing_seeds(faults, "0.27.1") == {"scheduler": [3, 7, 9]}
    assert showing_seeds(faults, None) == {}


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made of them on the web."""
    headings = [line.lstrip("# ") for line in page.read_text().splitlines() if line[:1] == "#"]
    return {re.sub(r"[^\w\- ]", "", one.strip().lower()).replace(" ", "-") for one in headings}


def test_each_shipped_fault_has_a_page_that_is_there() -> None:
    docs = Path(__file__).parents[3] / "docs"
    for fault in load():
        page, _, anchor = (fault.page or "").partition("#")
        assert (docs / page).is_file(), fault.name
        assert not anchor or anchor in anchors(docs / page), fault.name
