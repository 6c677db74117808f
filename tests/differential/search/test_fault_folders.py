"""Folders of faults: what is read from them, and what is refused."""

from pathlib import Path

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.fault_folders import load, of_text, to_text

FAULT = """\
title = "An entry is lost"
harm = "safety: it is encoded again"
seen = "0.29.0 to 0.31.0"
again = ["encoder cache"]
seeds = { "encoder cache" = [3] }

[[cause]]
flags = ["encoder_cache.claims_duplicates"]
contracts = ["EC-6", "SC-8"]
kinds = { SC-8 = ["KeyError in update"] }

[[symptom]]
contract = "EC-6"
releases = "<0.10.2"
lanes = ["encoder cache"]
"""


def put(folder: Path, name: str = "a-fault", text: str = FAULT) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "fault.toml").write_text(text)
    return folder / name / "fault.toml"


def test_a_folder_is_a_list_of_the_faults_in_its_folders_by_name(tmp_path: Path) -> None:
    """Whatever else lies there is none."""
    for name in ("b", "a"):
        put(tmp_path, name)
    (tmp_path / "README.md").write_text("no fault")
    (tmp_path / ".git").mkdir()
    (tmp_path / "a" / "mend.toml").write_text("no fault")
    assert [one.name for one in load(tmp_path)] == ["a", "b"]


def test_one_fault_is_its_folder_or_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(tmp_path)
    monkeypatch.chdir(file.parent)
    of_file, of_folder, here = load(file), load(file.parent), load(Path("fault.toml"))
    assert of_file == of_folder == here
    assert [one.name for one in of_file] == ["a-fault"]


def test_what_describes_a_fault_lies_beside_it(tmp_path: Path) -> None:
    """Of those that are shipped it is named as a clone has it."""
    put(tmp_path)
    assert load(tmp_path)[0].page is None
    (tmp_path / "a-fault" / "page.md").write_text("# A fault")
    assert load(tmp_path)[0].page == str(tmp_path / "a-fault" / "page.md")
    assert {one.page for one in load()} == {f"faults/{one.name}/page.md" for one in load()}


def test_an_empty_folder_is_an_empty_list(tmp_path: Path) -> None:
    assert load(tmp_path) == []


def test_a_list_is_kept_as_one_text(tmp_path: Path) -> None:
    put(tmp_path)
    faults = load(tmp_path)
    assert of_text(to_text(faults), "it") == faults
    assert of_text(to_text([]), "it") == of_text("", "it") == []


@pytest.mark.parametrize("text", ["[[fault]]", '[{"name": "a"}]', "[3]"])
def test_a_kept_text_that_is_no_list_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="expected one that this cacheproof wrote") as caught:
        of_text(text, "kept.db")
    assert str(caught.value).splitlines() == [str(caught.value)]


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        (('"EC-6", "SC-8"', '"EC-66", "SC-8"'), "'EC-66' is no contract id"),
        (('contract = "EC-6"', 'contract = "EC-66"'), "'EC-66' is no contract id"),
        (("SC-8 = [", "EC-7 = ["), "kinds of EC-7, which that cause does not break"),
        (("SC-8 = [", "EC-77 = ["), "'EC-77' is no contract id"),
        (("claims_duplicates", "claims"), "'encoder_cache.claims' is no flag of the semantics"),
        (('flags = ["encoder_cache.claims_duplicates"]', "flags = []"), "length >= 1"),
        (('["EC-6", "SC-8"]', "[]"), "length >= 1"),
        (("<0.10.2", "newest"), "expected all, >=A, <B or >=A,<B"),
        (("<0.10.2", ">=x"), "'x' is not a release number"),
        (("0.29.0 to 0.31.0", "0.29"), "'0.29' is not a modelled release"),
        (("0.29.0 to 0.31.0", "0.31.0 to 0.29.0"), "expected spans of releases from old to new"),
        (("again =", 'again_since = "x"\nagain ='), "'x' is not a release number"),
        (('"safety: it', '"bad: it'), "matching regex"),
        (('harm = "safety: it is encoded again"', ""), "missing required field `harm`"),
        (("title =", "note ="), "unknown field `note`"),
        (("title =", 'name = "a"\ntitle ='), "name: unknown; expected none: the folder says it"),
        (("title =", 'page = "a"\ntitle ='), "page: unknown; expected none"),
        (('"An entry is lost"', "3"), "Expected `str`, got `int`"),
        (('again = ["encoder cache"]', 'again = ["none"]'), "'none' is no lane"),
        (('lanes = ["encoder cache"]', 'lanes = ["none"]'), "'none' is no lane"),
        (('"encoder cache" = [3]', "none = [3]"), "'none' is no lane"),
        (("= [3]", "= [-1]"), "`int` >= 0"),
        (("= [3]", f"= [{10**9}]"), "`int` <= 999999999"),
        (("= [3]", f"= [{10**30}]"), "`int`"),
        (("[[symptom]]", "[[symptom]"), "Expected ']]'"),
        (('lanes = ["enc', 'runner = "third"\nlanes = ["enc'), "Invalid enum value 'third'"),
        (("seeds =", 'only = { stop = "0.9" }\nseeds ='), "'0.9' is not a modelled release"),
        (("seeds =", 'questions = "stop"\nseeds ='), "Expected `array | null`"),
    ],
)
def test_a_spoiled_fault_is_refused_in_one_line(
    tmp_path: Path, spoiled: tuple[str, str], words: str
) -> None:
    assert spoiled[0] in FAULT
    path = put(tmp_path, text=FAULT.replace(*spoiled))
    assert_refused(tmp_path, f"{path}: ", words)


def assert_refused(what: Path, begins: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(what)
    said = str(caught.value)
    assert said.startswith(begins)
    assert words in said
    assert said.splitlines() == [said]


def test_of_several_spoiled_faults_the_first_is_told(tmp_path: Path) -> None:
    for name in ("b", "a"):
        put(tmp_path, name, FAULT.replace("EC-6", "EC-66").replace("0.29.0", "newest"))
    assert_refused(tmp_path, f"{tmp_path / 'a' / 'fault.toml'}: ", "'EC-66' is no contract id")


def test_a_list_of_all_faults_in_one_file_is_told_what_to_be(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text('[[fault]]\nname = "a-fault"\n')
    words = "a list of [[fault]] in one file; expected a folder with NAME/fault.toml for each fault"
    assert_refused(path, f"{path}: {words}", "see docs/reference/known-faults.md")


def test_a_folder_without_a_fault_is_refused(tmp_path: Path) -> None:
    put(tmp_path)
    (tmp_path / "empty").mkdir()
    words = "cannot be read: No such file or directory; expected a folder with NAME/fault.toml"
    assert_refused(tmp_path, f"{tmp_path / 'empty' / 'fault.toml'}: {words}", "")
    assert_refused(tmp_path / "none", f"{tmp_path / 'none'}: {words}", "")


def test_a_folder_whose_name_is_none_of_a_fault_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "A Fault")
    assert_refused(tmp_path, f"{path}: ", "matching regex")


def test_more_folders_than_a_list_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault_folders, "FAULTS_MAX", 1)
    for name in ("a", "b"):
        put(tmp_path, name)
    assert_refused(tmp_path, f"{tmp_path}: 2 folders; expected at most 1", "")
