"""`cacheproof generate`, as a user runs it."""

import json
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
from PIL import Image

WIDE = {"encoded": 2, "hits": 1, "evicted": 0}
"""Of three items, of which the last is the first again, where all are kept."""


class Asked(NamedTuple):
    """What a model is asked, the sizes that keep little of it, and what comes of keeping all."""

    model: str
    prompts: tuple[str, ...]
    tight: tuple[str, ...]
    wide: dict[str, int]


ASKED = (
    Asked(
        "llava",
        ("w1 w2 <image> w3", "w4 <image> <image> w5"),
        ("--encoder-cache", "16", "--tokens-per-step", "20"),
        WIDE,
    ),
    Asked(
        "qwen2_5_vl",
        ("w1 <image> <video> w3", "w4 <image> w5"),
        ("--encoder-cache", "12", "--tokens-per-step", "11", "--blocks", "5"),
        WIDE,
    ),
    # A decoder's entry is given back a step after it was made: nothing is there to be hit.
    Asked(
        "whisper",
        ("<audio> w1", "<audio>", "w2 <audio>"),
        ("--encoder-cache", "50", "--blocks", "6"),
        {"encoded": 3, "hits": 0, "evicted": 2},
    ),
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cacheproof", "generate", *words], capture_output=True, text=True
    )


def noise(name: str, *shape: int) -> Any:
    return numpy.random.RandomState(ord(name)).randint(0, 256, shape).astype(numpy.uint8)


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Options for three pictures, a film, and three sounds; the last is the first again."""
    folder = tmp_path_factory.mktemp("media")
    for name in "ab":
        Image.fromarray(noise(name, 80, 60, 3)).save(folder / f"{name}.png")
        with wave.open(str(folder / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", "not compressed"))
            file.writeframes(noise(name, 16_000).tobytes())
    first, *rest = (Image.fromarray(noise(name, 60, 90, 3)) for name in "cdef")
    first.save(folder / "c.gif", save_all=True, append_images=rest, duration=250)

    def options(kind: str, *files: str) -> list[str]:
        return [word for file in files for word in (f"--{kind}", str(folder / file))]

    return {
        "llava": options("image", "a.png", "b.png", "a.png"),
        "qwen2_5_vl": [*options("image", "a.png", "a.png"), *options("video", "c.gif")],
        "whisper": options("audio", "a.wav", "b.wav", "a.wav"),
    }


@pytest.mark.full
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.model)
def test_answers_do_not_depend_on_how_much_is_kept(
    media: dict[str, list[str]], tmp_path: Path, asked: Asked
) -> None:
    answers, met = [], []
    prompts = [word for text in asked.prompts for word in ("--prompt", text)]
    for sizes in (asked.tight, ("--encoder-cache", "150")):
        told = run(
            "--model", asked.model, *prompts, *media[asked.model], *sizes, "--max-tokens", "4",
            "--json", str(tmp_path / "report.json"),
        )  # fmt: skip
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
    assert [len(tokens) for tokens in answers[0]] == [4] * len(asked.prompts)
    tight, wide = met
    assert tight["evicted"] > 0
    assert wide == asked.wide


REFUSED_BY_A_MODEL = [
    (("--prompt", "w1", "--device", "abacus"), "expected cpu or cuda"),
    (("--prompt", ""), "prompt 1 has no tokens"),
    (("--prompt", "w1 " * 600), "prompt 1 has 600 tokens; expected fewer than 512"),
    (("--prompt", "w1", "--blocks", "2"), "prompt 1 and its answer take 3 KV blocks"),
    (("--prompt", "w1", "--model", "whisper"), "0 of <audio> in 'w1'; expected one"),
]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--prompt", "w1 <image>"), "1 of <image> in the prompts and 0 of --image"),
        (("--prompt", "w1", "--audio", "c.wav"), "0 of <audio> in the prompts and 1 of --audio"),
        (("--prompt", "w1", "--model", "/nowhere"), "there is no /nowhere/config.json"),
        (("--prompt", "w1 <image>", "--image", "/nowhere.png"), "picture /nowhere.png"),
        (("--prompt", "<audio>", "--audio", "/nowhere.wav"), "sound /nowhere.wav"),
        *(pytest.param(*one, marks=pytest.mark.full) for one in REFUSED_BY_A_MODEL),
    ],
)
def test_what_cannot_be_generated_is_said_in_one_line(words: tuple[str, ...], said: str) -> None:
    told = run(*words)
    assert told.returncode == 2
    assert said in told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert not told.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "prompt", "kind", "sizes", "said"),
    [
        ("llava", "<image>", "llava", ("--encoder-cache", "15"), "makes 16 rows"),
        ("llava", "<audio>", "whisper", (), "expected <image> for this model"),
        ("qwen2_5_vl", "<audio>", "whisper", (), "expected <image> and <video> for this model"),
        ("whisper", "<image>", "llava", (), "expected <audio> for this model"),
        ("whisper", "<audio> w1", "whisper", ("--tokens-per-step", "1"), "takes at once"),
        ("whisper", "<audio>", "whisper", ("--blocks", "5"), "take 7 KV blocks"),
    ],
)
def test_media_that_a_model_or_its_caches_cannot_take_are_refused(
    media: dict[str, list[str]], model: str, prompt: str, kind: str, sizes: tuple[str, ...],
    said: str,
) -> None:  # fmt: skip
    told = run("--model", model, "--prompt", prompt, *media[kind][:2], *sizes)
    assert told.returncode == 2
    assert said in told.stderr
    assert not told.stdout


@pytest.mark.full
def test_a_file_of_another_kind_is_refused(media: dict[str, list[str]]) -> None:
    picture, sound = media["llava"][1], media["whisper"][1]
    for model, mark, file, said in (
        ("qwen2_5_vl", "video", picture, "one picture; expected two frames at least"),
        ("qwen2_5_vl", "image", sound, "expected a file that Pillow reads"),
        ("whisper", "audio", picture, "expected a WAV file of plain samples"),
    ):
        told = run("--model", model, "--prompt", f"<{mark}>", f"--{mark}", file)
        assert told.returncode == 2
        assert said in told.stderr
