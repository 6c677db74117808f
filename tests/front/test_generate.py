"""`cacheproof generate`, as a user runs it."""

import json
import os
import re
import resource
import struct
import subprocess
import sys
import wave
import zlib
from pathlib import Path
from typing import NamedTuple

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
        "cohere2_vision",
        ("w1 w2 <image> w3", "w4 <image> <image> w5"),
        ("--encoder-cache", "20", "--tokens-per-step", "20", "--blocks", "9"),
        WIDE,
    ),
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
    Asked(
        "qwen3_vl",
        ("w1 <image> <video> w3", "w4 <image> w5"),
        ("--encoder-cache", "12", "--tokens-per-step", "11", "--blocks", "6"),
        WIDE,
    ),
    Asked(
        "qwen2_audio",
        ("w1 <audio> w3", "w4 <audio> <audio> w5"),
        ("--encoder-cache", "12", "--tokens-per-step", "20"),
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


def noise(name: str, *shape: int) -> numpy.ndarray:
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
        "cohere2_vision": options("image", "a.png", "b.png", "a.png"),
        "llava": options("image", "a.png", "b.png", "a.png"),
        "qwen2_5_vl": [*options("image", "a.png", "a.png"), *options("video", "c.gif")],
        "qwen3_vl": [*options("image", "a.png", "a.png"), *options("video", "c.gif")],
        "qwen2_audio": options("audio", "a.wav", "b.wav", "a.wav"),
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
        assert re.search(r"prompt 2 \(length\): \S+ \S+ \S+ \S+\n", told.stdout)
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
def test_what_a_step_may_encode_and_what_is_kept_are_set_apart(
    media: dict[str, list[str]], tmp_path: Path
) -> None:
    """Three pictures of 16 rows in steps of 64 tokens, whatever of the two is small."""
    answers, encoded = [], {}
    for budget, kept in (("64", "64"), ("16", "64"), ("64", "16"), ("1", "64"), ("64", "1")):
        told = run(
            "--prompt", "<image> <image> w1 <image>", *media["llava"][:4], *media["llava"][4:],
            "--encoder-budget", budget, "--encoder-cache", kept, "--max-tokens", "4",
            "--json", str(tmp_path / "report.json"),
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        report = json.loads((tmp_path / "report.json").read_text())
        answers.append(report["answers"][0]["token_ids"])
        encoded[budget, kept] = [step["encoded"] for step in report["steps"] if step["encoded"]]
        assert (report["encoder_budget"], report["encoder_cache"]) == (
            max(16, int(budget)),
            max(16, int(kept)),
        )
        raised = [line for line in told.stdout.splitlines() if "is raised to 16 rows" in line]
        assert len(raised) == [budget, kept].count("1")
    assert answers == [answers[0]] * len(answers)
    assert encoded["64", "64"] == [2]  # the third is the first again
    assert encoded["16", "64"] == encoded["1", "64"] == [1, 1]
    assert encoded["64", "16"] == encoded["64", "1"] == [1, 1, 1]


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "prompt", "kind", "sizes", "said"),
    [
        ("llava", "<audio>", "whisper", (), "expected <image> for this model"),
        ("qwen2_5_vl", "<audio>", "whisper", (), "expected <image> and <video> for this model"),
        ("whisper", "<image>", "llava", (), "expected <audio> for this model"),
        ("whisper", "<audio> w1", "whisper", ("--tokens-per-step", "1"), "takes at once"),
        ("whisper", "<audio>", "whisper", ("--blocks", "5"), "take 7 KV blocks"),
        ("whisper", "<audio>", "whisper", ("--tokens-per-step", "49"), "item of 50 tokens exceeds"),
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


def riff(size: int, channels: int = 1) -> bytes:
    """A WAV file of three bytes that says it has `size`."""
    head = struct.pack("<HHIIHH", 1, channels, 16_000, 32_000, 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", size) + b"abc"
    return b"RIFF" + struct.pack("<I", len(body)) + body


def png(width: int, height: int) -> bytes:
    """A picture that says it has so many pixels, and holds none."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    end = b"IDAT" + zlib.compress(b"")
    chunks = (
        struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one))
        for one in (header, end, b"IEND")
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder of files that are none."""
    os.mkfifo(tmp_path / "fifo")
    for kind in ("list", "deep", "gpt"):
        (tmp_path / kind).mkdir()
    (tmp_path / "list" / "config.json").write_text("[]")
    (tmp_path / "deep" / "config.json").write_text("[" * 100_000)
    (tmp_path / "gpt" / "config.json").write_text('{"model_type": "\\u001b[2J\\n"}')
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "config.json")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "two.wav").write_bytes(riff(3, channels=2))
    return tmp_path


@pytest.mark.sample(11)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("<image>", "--image", "fifo"), "picture fifo: no regular file"),
        (("<video>", "--video", "fifo", "--model", "qwen2_5_vl"), "film fifo: no regular file"),
        (("<audio>", "--audio", "fifo", "--model", "whisper"), "sound fifo: no regular file"),
        (("<image>", "--image", "/dev/zero"), "picture /dev/zero: no regular file"),
        (("<image>", "--image", "huge"), "picture huge: 1099511627776 bytes, more than"),
        (("<audio>", "--audio", "two.wav", "--model", "whisper"), "2 channels of 16 bits"),
        (("w1", "--model", "list"), "config.json is no model's configuration"),
        (("w1", "--model", "deep"), "config.json is no model's configuration"),
        (("w1", "--model", "pipe"), "pipe/config.json: no regular file"),
        (("w1", "--model", "gpt"), r"is of the type '\x1b[2J\n'"),
        (("w1", "--device", "cuda:x"), "expected cpu or cuda"),
        (("w1", "--blocks", "1048576"), "expected blocks of 1048576 tokens in all at most"),
        (("w1", "--blocks", "9" * 20), "'--blocks'"),
        (("w1", "<image>"), "unexpected extra argument"),
    ],
)
def test_nothing_is_installed_before_all_arguments_were_looked_at(
    odd: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(odd)
    monkeypatch.setenv("CACHEPROOF_HOME", str(odd / "home"))
    told = run("--prompt", *words)
    assert told.returncode == 2
    (line,) = told.stderr.splitlines()
    assert said in line
    assert not (odd / "home").exists()


@pytest.mark.full
def test_a_small_file_stands_for_no_more_than_there_is_room_for(tmp_path: Path) -> None:
    first, *rest = (Image.new("RGB", (9, 9), (number, 0, 0)) for number in range(3))
    first.save(tmp_path / "film.gif", save_all=True, append_images=rest)
    film = (tmp_path / "film.gif").read_bytes()
    sizes = struct.pack("<HH", 9, 9), struct.pack("<HH", 12_000, 12_000)
    for content, kind, model, said in (
        (png(2**31 - 1, 2**31 - 1), "image", "llava", "could be decompression bomb"),
        (png(9000, 9000), "image", "llava", "9000 by 9000 pixels, more than"),
        (film.replace(*sizes, 1), "video", "qwen2_5_vl", "12000 by 12000 pixels, more than"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "image", "llava", "cannot identify"),
        (riff(2**32 - 1)[:-3], "audio", "whisper", "no samples"),
    ):
        (file := tmp_path / "medium").write_bytes(content)
        told = run("--model", model, "--prompt", f"<{kind}>", f"--{kind}", str(file))
        assert told.returncode == 2, told
        (line,) = told.stderr.splitlines()
        assert said in line
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 3 << 20


@pytest.mark.full
def test_a_model_that_lies_is_refused_in_a_line_and_runs_nothing(tmp_path: Path) -> None:
    (model := tmp_path / "model").mkdir()
    config = {"model_type": "llava", "auto_map": {"AutoProcessor": "evil.Processor"}}
    (model / "config.json").write_text(json.dumps(config))
    (model / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    told = run("--model", str(model), "--prompt", "w1")
    assert told.returncode == 2
    (line,) = told.stderr.splitlines()
    assert line.endswith("expected a directory as transformers saves it")
    assert not (tmp_path / "ran").exists()
