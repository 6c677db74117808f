"""What shells are offered after TAB."""

import os
import subprocess
from pathlib import Path

import pytest

from cacheproof.commands import completing
from cacheproof.commands.bash_words import COMPLETE, NUMBER, WORDS, whole_words
from cacheproof.reference.releases import MODELLED
from tests.front.conftest import COMMAND


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder with releases of which one is older by its number alone, and one engine."""
    for name in ("releases/0.9.0", "releases/0.33.0", "engines/0.32.0", "releases/tmp"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("CACHEPROOF_HOME", str(tmp_path))


def test_targets_are_releases_engines_and_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert completing.targets("vllm@0.33") == ["vllm@0.33.0"]
    assert set(completing.targets("vllm@")) == {f"vllm@{one}" for one in (*MODELLED, "0.9.0")}
    assert completing.targets("e") == ["engine@0.32.0"]
    assert completing.targets("p") == ["path:engines/", "path:releases/"]
    assert completing.targets("path:rel") == ["path:releases/"]
    assert completing.targets("path:releases/0.3") == ["path:releases/0.33.0/"]
    assert completing.targets("path:nowhere/") == []


def test_installed_releases_come_from_the_newest_to_the_oldest() -> None:
    assert completing.releases_installed("") == ["0.33.0", "0.9.0"]
    assert completing.releases_modelled("0.1")[0] == "0.19.1"


def test_a_known_fault_is_offered_at_the_releases_that_have_it() -> None:
    offered = completing.what_to_replay("repeated-item@")
    assert "repeated-item@0.28.0" in offered
    assert "repeated-item@0.29.0" not in offered
    assert "repeated-item" in completing.faults("repeated")
    assert completing.what_to_replay("found/some.json") == []


def test_contracts_are_offered_by_id() -> None:
    assert {"EC-6", "EC-6a"} <= {*completing.contract_ids("EC-6")}
    assert completing.contract_ids("ZZ") == []


@pytest.mark.parametrize(
    ("pieces", "words", "stands"),
    [
        ("fuzz --target vllm @ 0.3", "fuzz --target vllm@0.3", "vllm"),
        ("fuzz --target vllm @", "fuzz --target vllm@", "vllm"),
        ("fuzz --target = vllm @ 0.3", "fuzz --target=vllm@0.3", "vllm"),
        ("fuzz --target path : diff", "fuzz --target path:diff", "path:"),
        ("fuzz --target vllm@0.3", "fuzz --target vllm@0.3", ""),
        ("fuzz --target vl", "fuzz --target vl", ""),
    ],
)
def test_words_that_bash_has_split_are_whole_again(pieces: str, words: str, stands: str) -> None:
    split = pieces.split()
    changed, found = whole_words({WORDS: "\n".join(split), NUMBER: str(len(split) - 1)})
    assert changed == {WORDS: "\n".join(words.split()), NUMBER: str(len(words.split()) - 1)}
    assert found == stands


def test_a_word_that_is_not_begun_yet_is_a_word() -> None:
    changed, stands = whole_words({WORDS: "fuzz\n--depth\n", NUMBER: "2"})
    assert (changed[NUMBER], stands) == ("2", "")


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("cacheproof fuz", ["fuzz"]),
        ("cacheproof fuzz --target vllm @ 0.33", ["@0.33.0"]),
        ("cacheproof fuzz --depth man", ["manager"]),
        ("cacheproof fuzz --target path : rel", []),
        ("cacheproof vllm remove 0.3", ["0.33.0"]),
    ],
)
def test_bash_is_answered_what_it_is_to_put_in(line: str, answers: list[str]) -> None:
    words = line.split()
    asked = {COMPLETE: "complete_bash", WORDS: "\n".join(words), NUMBER: str(len(words) - 1)}
    ran = subprocess.run(
        COMMAND, env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout.splitlines(), ran.stderr) == (0, answers, "")
