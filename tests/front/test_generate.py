"""`cacheproof generate`, as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from PIL import Image

PROMPTS = ("--prompt", "w1 w2 <image> w3", "--prompt", "w4 <image> <image> w5")
TIGHT = ("--max-tokens", "4", "--encoder-cache", "16", "--tokens-per-step", "20")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cacheproof", "generate", *words], capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """--image for three pictures, the last of which is the first again."""
    folder = tmp_path_factory.mktemp("pictures")
    words = []
    for name in "aba":
        noise = numpy.random.RandomState(ord(name)).randint(0, 256, (80, 60, 3))
        Image.fromarray(noise.astype(numpy.uint8)).save(folder / f"{name}.png")
        words += ["--image", str(folder / f"{name}.png")]
    return words


def test_answers_do_not_depend_on_how_much_is_kept(pictures: list[str], tmp_path: Path) -> None:
    answers, met = [], []
    for sizes in (TIGHT, ("--max-tokens", "4", "--encoder-cache", "64")):
        told = run(*PROMPTS, *pictures, *sizes, "--json", str(tmp_path / "report.json"))
        assert told.returncode == 0, told.stderr
        assert "prompt 2 (length): w" in told.stdout
        report = json.loads((tmp_path / "report.json").read_text())
        answers.append([answer["token_ids"] for answer in report["answers"]])
        met.append(
            {
                what: sum(step[what] for step in report["steps"])
                for what in ("encoded", "hits", "evicted")
            }
        )
    assert answers[0] == answers[1]
    assert [len(tokens) for tokens in answers[0]] == [4, 4]
    tight, wide = met
    assert tight["evicted"] > 0
    assert wide == {"encoded": 2, "hits": 1, "evicted": 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--prompt", "w1 <image>"), "1 of <image> in the prompts and 0 of --image"),
        (("--prompt", "w1", "--model", "/nowhere"), "there is no /nowhere/config.json"),
        (("--prompt", "w1", "--device", "abacus"), "expected cpu or cuda"),
        (("--prompt", "w1 " * 600), "prompt 1 has 600 tokens; expected fewer than 512"),
        (("--prompt", "w1 <image>", "--image", "/nowhere.png"), "picture /nowhere.png"),
    ],
)
def test_what_cannot_be_generated_is_said_in_one_line(words: tuple[str, ...], said: str) -> None:
    told = run(*words)
    assert told.returncode == 2
    assert said in told.stderr
    assert "Traceback" not in told.stderr
    assert not told.stdout


def test_a_picture_larger_than_the_cache_is_refused(pictures: list[str]) -> None:
    told = run("--prompt", "<image>", *pictures[:2], "--encoder-cache", "15")
    assert told.returncode == 2
    assert "a picture of prompt 1 makes 16 rows" in told.stderr
