"""A command's report begins and ends with its verdict, and tells what to do next."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import typer

from cacheproof.differential.errors import HarnessError
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import NOTHING_YET, CommandOutput
from cacheproof.output.verdict_line import VerdictLine, amount, names, of_trouble

HOLDS = VerdictLine("a shows nothing new.", "look at b", "cacheproof replay b")


def printed(output: CommandOutput, *body: str, verdict: VerdictLine | None = HOLDS) -> list[str]:
    """The lines of a command that says a body and then concludes."""
    with redirect_stdout(io.StringIO()) as said, output:
        for line in body:
            output.line(line)
        if verdict is not None:
            output.tell(Conclusion(0, verdict))
    return said.getvalue().splitlines()


def broken_off(by: BaseException) -> None:
    """A command that says something and does not come to its end."""
    with CommandOutput(None) as output:
        output.line("found before")
        raise by


def test_a_report_begins_and_ends_with_the_verdict() -> None:
    assert printed(CommandOutput(None), "one", "two") == [
        HOLDS.sentence,
        "",
        "one",
        "two",
        "",
        HOLDS.sentence,
        "Next: look at b:",
        "  cacheproof replay b",
    ]


def test_a_report_without_a_body_says_its_verdict_once() -> None:
    assert printed(CommandOutput(None))[:2] == [HOLDS.sentence, "Next: look at b:"]


def test_a_report_that_streams_ends_with_the_verdict() -> None:
    assert printed(CommandOutput(None, streams=True), "one")[:2] == ["one", HOLDS.sentence]


def test_beside_a_page_the_verdict_goes_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert printed(CommandOutput(None, is_page=True), "# a page") == ["# a page"]
    assert capsys.readouterr().err == f"{HOLDS.sentence}\n"


@pytest.mark.parametrize("ending", [typer.Exit(1), KeyboardInterrupt(), HarnessError("it broke")])
def test_nothing_of_a_report_is_lost_however_a_command_ends(ending: BaseException) -> None:
    with redirect_stdout(io.StringIO()) as said, pytest.raises(type(ending)):
        broken_off(ending)
    assert said.getvalue() == "found before\n"


def stopped(output: CommandOutput, verdict: VerdictLine | None = None) -> None:
    """A command that is interrupted after it has said something."""
    with output:
        output.line("found before")
        if verdict is not None:
            output.tell(Conclusion(0, verdict))
        raise KeyboardInterrupt


def test_an_interruption_before_any_verdict_is_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    with pytest.raises(KeyboardInterrupt):
        stopped(CommandOutput(str(file), command="fuzz"))
    sentence = "cacheproof fuzz was interrupted before it concluded anything."
    said = [sentence, "", "found before", "", sentence, "Next: run the command again"]
    assert capsys.readouterr().out.splitlines() == said
    document = json.loads(file.read_text())
    assert (document["verdict"], document["exit_code"]) == (sentence, 130)


def test_a_page_that_is_interrupted_early_says_so_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyboardInterrupt):
        stopped(CommandOutput(None, command="review", is_page=True))
    sentence = "cacheproof review was interrupted before it concluded anything."
    assert capsys.readouterr() == (f"found before\n{sentence}\n", f"{sentence}\n")


def test_an_interruption_leaves_a_verdict_that_was_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyboardInterrupt):
        stopped(CommandOutput(None, command="fuzz"), HOLDS)
    assert capsys.readouterr().out.splitlines()[0] == HOLDS.sentence


def test_a_command_that_concludes_nothing_says_its_report_alone() -> None:
    assert printed(CommandOutput(None), "one", verdict=None) == ["one"]


def test_json_has_the_verdict(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    with CommandOutput(str(file)) as output:
        output.tell(Conclusion(0, HOLDS))
    document = json.loads(file.read_text())
    assert document["verdict"] == HOLDS.sentence
    assert document["next"] == "look at b: cacheproof replay b"


def test_with_json_on_standard_output_nothing_else_is_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with CommandOutput("-") as output:
        output.line("a body")
        output.tell(Conclusion(0, HOLDS))
    assert json.loads(capsys.readouterr().out)["verdict"] == HOLDS.sentence


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (2, "could not go on"),
        (3, "shows nothing, since it broke"),
        (130, "was interrupted before it concluded anything"),
    ],
)
def test_a_command_that_an_error_ends_says_which_kind_it_is(code: int, words: str) -> None:
    sentence = of_trouble("fuzz", code, NOTHING_YET)
    assert words in sentence
    assert sentence.endswith("anything.")


@pytest.mark.parametrize(
    ("number", "said"),
    [(9_999, "9,999"), (45_210, "45,000"), (4_123_000, "4.1 million"), (999_500, "1.0 million")],
)
def test_large_numbers_are_rounded(number: int, said: str) -> None:
    assert amount(number) == said


def test_many_names_are_cut_short() -> None:
    assert names(["a", "b", "a"]) == "a and b"
    assert names(list("abcdefgh")) == "a, b, c, d and 4 more"
    assert names([]) == ""
