"""The contracts as a list and as a page, each as the command prints it."""

from pathlib import Path

from tests.front.conftest import Run

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "contracts.md"


def test_the_page_in_docs_is_what_the_command_prints(run: Run) -> None:
    assert PAGE.read_text() == run("contracts", "--markdown").out


def test_the_list_begins_and_ends_with_how_many_there_are(run: Run) -> None:
    lines = run("contracts").out.splitlines()
    assert " are judged: " in lines[0]
    assert lines[-3] == lines[0]
    listed = [one for one in lines if " safety " in one]
    assert f" {len(listed)} of safety, " in lines[0]
