"""A story that is wrong, says nothing or cannot be read is red."""

from pathlib import Path

import pytest

from cacheproof.differential.errors import InputError
from tests.stories import stories_of
from tests.telling import accept, difference

HEAD = """\
# of an encoder cache
config depth="scheduler", capacity=8, compute_budget=8, max_num_batched_tokens=16, max_num_seqs=4
config max_model_len=64, block_size=16, num_blocks=9

== two items
Add("a", 20, (Item("x", 4, 5), Item("y", 9, 5)))
(Schedule(), Update()) * 2
"""
RIGHT = """\
ideal shows scheduled, encode: breaks nothing
    event 2, schedule: scheduled={"a": 9}, encode={"a": [0]}
    event 4, schedule: scheduled={"a": 11}, encode={"a": [1]}
# which is why it is planted
ideal planted computes_into_items:
    event 2, schedule: breaks WM-2, SC-2, SC-11, SC-3
    event 4, schedule: breaks SC-14
ideal: breaks nothing
"""

pytest_plugins = ["pytester"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "items.txt"


def differs(file: Path) -> list[str]:
    """The lines of the one story that are wrong, and those that are right."""
    (story,) = stories_of(file)
    return [line for line in difference(story)[3:] if not line.startswith(" ")]


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ('"a": 11', '"a": 12', ["-", "+"]),
        ("SC-2, ", "", ["-", "+"]),
        ("    event 4, schedule: breaks SC-14\n", "", ["+    event 4, schedule: breaks SC-14"]),
        ("ideal: breaks nothing", "ideal:", ["-ideal:", "+ideal: breaks nothing"]),
    ],
)
def test_another_outcome_is_told_until_it_is_accepted(
    file: Path, right: str, wrong: str, expected: list[str]
) -> None:
    file.write_text(HEAD + RIGHT)
    assert differs(file) == []
    file.write_text(HEAD + RIGHT.replace(right, wrong, 1))
    found = differs(file)
    assert len(found) == len(expected)
    assert all(map(str.startswith, found, expected))
    accept(file, "two items")
    assert file.read_text() == HEAD + RIGHT


def test_of_another_trace_another_outcome_comes(file: Path) -> None:
    file.write_text(HEAD.replace('"y", 9, 5', '"y", 10, 5') + RIGHT)
    assert differs(file)


@pytest.mark.parametrize(
    ("lines", "number", "why"),
    [
        ("", 5, "asks no target"),
        ("    breaks nothing", 7, "SyntaxError: invalid syntax"),
        ("Scheduel()\nideal:", 8, "KeyError: 'Scheduel'"),
        ('Add("b")\nideal:', 8, "Missing required argument 'prompt'"),
        ('Add("b", 0)\nideal:', 8, "Expected `int` >= 1"),
        ('Schedule()\nAdd("a", 3)\nideal:', 9, "request 'a' is added twice"),
        ('Walk("a", 2)\nideal:', 8, "event 'walk' at scheduler depth"),
        ("open('x')\nideal:", 8, "KeyError: 'open'"),
        ("Schedule(\nideal:", 8, "was never closed"),
        ("ideal:\nconfig capacity=None", 5, "Expected `int`, got `null`"),
        ("ideal:\nconfig capcity=2", 5, "unknown field `capcity`"),
        ("config capacity", 8, "expected: config NAME=VALUE, ..."),
        ("ideal", 8, "expected ':' after a target"),
        ("ideal and more:", 8, "'and'; expected one of without, with, planted, shows"),
        ("ideal without scheduler.pads_daft:", 8, "no flag of the semantics: scheduler.pads_daft"),
        ("9.9.9:", 8, "the reference does not model 9.9.9"),
        ("trace faults/none.jsonl\nideal:", 8, "FileNotFoundError"),
        ("seed 1 of nothing\nideal:", 8, "KeyError: 'nothing'"),
        ("ideal:\n== two items\nideal:", 5, "two stories of one title"),
    ],
)
def test_what_cannot_be_read_is_refused_by_file_and_line(
    file: Path, lines: str, number: int, why: str
) -> None:
    file.write_text(HEAD + lines)
    with pytest.raises(InputError, match=f"items.txt:{number}: ") as refused:
        stories_of(file)
    assert why in str(refused.value)


def test_what_is_planted_must_be_there(file: Path) -> None:
    file.write_text(HEAD + "ideal planted daftness: breaks nothing")
    with pytest.raises(InputError, match=r"items.txt:8: .*KeyError: 'daftness'"):
        differs(file)


def test_what_no_event_has_is_told(file: Path) -> None:
    file.write_text(HEAD + "ideal shows daftness: breaks nothing")
    assert differs(file)[1] == "+ideal shows daftness: no event has daftness; breaks nothing"


def test_pytest_collects_the_files_of_such_folders(pytester: pytest.Pytester) -> None:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    folder = pytester.mkdir("stories")
    (folder / "right.txt").write_text(HEAD + RIGHT)
    (folder / "wrong.txt").write_text(HEAD + "ideal: event 2, schedule: breaks SC-2\n")
    (pytester.mkdir("other") / "unread.txt").write_text("no story")
    ran = pytester.runpytest_inprocess("--verbose")
    ran.stdout.fnmatch_lines_random(
        [
            "stories/right.txt::two items PASSED*",
            "stories/wrong.txt::two items FAILED*",
            "--- *wrong.txt:8",
            "-ideal: event 2, schedule: breaks SC-2",
        ]
    )
    pytester.runpytest_inprocess("--accept").assert_outcomes(passed=2)
    pytester.runpytest_inprocess().assert_outcomes(passed=2)
    (folder / "wrong.txt").write_text(HEAD)
    ran = pytester.runpytest_inprocess()
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["*wrong.txt:5: *asks no target*"])
