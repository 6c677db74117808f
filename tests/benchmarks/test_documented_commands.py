"""What pages say that commands print is what they print."""

from pathlib import Path

import pytest

from benchmarks.documented_commands import PAGES, commands, rewritten, runner, settled

README, *OTHERS = PAGES


@pytest.mark.full
@pytest.mark.parametrize(
    "page", [README, *(pytest.param(one, marks=pytest.mark.full) for one in OTHERS)]
)
def test_a_page_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    assert list(commands(text))
    assert settled(rewritten(text, runner(tmp_path))) == settled(text)


PAGE = """
```console
$ echo one; touch mark
one
$ ls
mark
```

```
$ not run
```
"""


def test_commands_of_a_page_run_one_after_the_other_in_one_folder(tmp_path: Path) -> None:
    assert list(commands(PAGE)) == [("echo one; touch mark", "one\n"), ("ls", "mark\n")]
    assert rewritten(PAGE, runner(tmp_path)) == PAGE


def test_a_page_that_says_otherwise_is_noticed(tmp_path: Path) -> None:
    page = PAGE.replace("one\n$", "two\n$")
    assert settled(rewritten(page, runner(tmp_path))) != settled(page)


def test_times_are_no_difference_and_other_numbers_are() -> None:
    assert settled("5 calls in 3 s, after 1.5 s") == settled("5 calls in 20 s, after 0.2 s")
    assert settled("5 calls in 3 s") != settled("6 calls in 3 s")


def test_a_command_that_is_refused_ends_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exit status 2"):
        runner(tmp_path)("cacheproof replay nothing.json")
