"""What is asked of `generate`, and what is seen to be wrong with it without torch and Pillow."""

import json
import os
import re
import stat
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

KINDS = ("cohere2_vision", "llava", "qwen2_5_vl", "qwen2_audio", "qwen3_vl", "whisper")
SAMPLES_PER_SECOND = 16_000
FILE_BYTES_MAX = 64 << 20
CONFIG_BYTES_MAX = 1 << 20
COUNT_MAX = 1 << 20
"""Most tokens, rows, requests or blocks of a job, and most tokens that all its blocks hold."""
_DEVICE = re.compile(r"cpu|cuda(:\d{1,2})?", re.ASCII)
_WAV = "a WAV file of plain samples"


class BadJob(ValueError):
    """A job that cannot be done; one line says why."""


@dataclass(frozen=True)
class Sizes:
    """What the engine is made with, in tokens, rows of encoder outputs and KV blocks.

    Attributes:
        max_num_encoder_input_tokens: most rows that one step may encode.
        encoder_cache_size: rows that are kept. Both are raised to the largest item of the prompts.
    """

    max_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    max_num_encoder_input_tokens: int
    encoder_cache_size: int
    num_blocks: int
    block_size: int
    enable_prefix_caching: bool


@dataclass(frozen=True)
class GenerateJob(Sizes):
    """What to generate: prompts, each a text, and modality and file of each of its media.

    `model` is a directory, or one of KINDS: the tiny model of that name, to be made in `models`.
    Of a tiny model, `version` says which weights (gpu_runner/tiny_weights.py). Films are taken to
    show each frame for `seconds_of_a_frame`, where that is not 0, whatever they say.
    `pools` asks for what is made of the hidden state behind each prompt's last token, as well: the
    prompt's embedding (`embed`), which is it, brought to length 1; or the probability of each class
    (`classify`), by a head that is added to the model's weights.
    """

    model: str
    models: str
    prompts: list[tuple[str, list[tuple[str, str]]]]
    device: str
    pools: Literal["", "embed", "classify"] = ""
    version: int = 0
    seconds_of_a_frame: float = 0.0

    def check(self) -> None:
        """Look at the arguments, and at the beginnings of files.

        Raises:
            BadJob: one cannot be used.
        """
        if self.num_blocks * self.block_size > COUNT_MAX:
            raise BadJob(
                f"{self.num_blocks} blocks of {self.block_size} tokens; expected blocks of "
                f"{COUNT_MAX} tokens in all at most"
            )
        if _DEVICE.fullmatch(self.device) is None:
            raise BadJob(f"device {self.device!r}; expected cpu or cuda")
        kind_of(self.model)
        for number, (text, media) in enumerate(self.prompts, start=1):
            if not text.strip():
                raise BadJob(f"prompt {number} has no tokens; expected a text or a mark")
            for modality, file in media:
                _LOOKS[modality](file)


def kind_of(model: str) -> str:
    """The kind of a model, given as one of KINDS or as its directory.

    Raises:
        BadJob: of none of KINDS.
    """
    if model in KINDS:
        return model
    config = Path(model) / "config.json"
    try:
        _require_file(config, CONFIG_BYTES_MAX)
    except FileNotFoundError:
        raise BadJob(
            f"model {model!r}: there is no {config}; expected a model's directory, or one of "
            f"{', '.join(KINDS)}, which is made"
        ) from None
    except OSError as error:
        raise BadJob(
            f"model {model!r}: {config}: {error.strerror}; expected a model's configuration"
        ) from None
    try:
        kind = json.loads(config.read_text()).get("model_type")
    except (OSError, ValueError, AttributeError, RecursionError):
        raise BadJob(f"model {model!r}: {config} is no model's configuration") from None
    if kind not in KINDS:
        raise BadJob(
            f"model {model!r} is of the type {str(kind)[:60]!r}; expected one of {', '.join(KINDS)}"
        )
    return str(kind)


def look_at(what: str, file: str, expected: str) -> None:
    """Raises BadJob unless it is a regular file that can be read, and small enough."""
    try:
        _require_file(Path(file), FILE_BYTES_MAX)
    except OSError as error:
        raise BadJob(f"{what} {file}: {error.strerror}; expected {expected}") from None


def opened_sound(file: str) -> wave.Wave_read:
    """A sound whose header is right. Raises BadJob where it is not."""
    look_at("sound", file, _WAV)
    try:
        opened = wave.open(file)  # noqa: SIM115  (closed by whoever asked)
    except (OSError, EOFError, RuntimeError, wave.Error) as error:
        reason = str(error) or "its parts are not as long as they say"
        raise BadJob(f"sound {file}: {reason}; expected {_WAV}") from None
    shape = (opened.getnchannels(), 8 * opened.getsampwidth(), opened.getframerate())
    if shape == (1, 16, SAMPLES_PER_SECOND):
        return opened
    opened.close()
    channels, bits, rate = shape
    raise BadJob(
        f"sound {file}: {channels} channels of {bits} bits, {rate} samples a second; expected "
        f"1 of 16 bits, {SAMPLES_PER_SECOND}"
    )


def _require_file(path: Path, bytes_max: int) -> None:
    """Raises OSError with a `strerror` unless it is a regular file that is not larger: a pipe would
    have its reader wait for a writer."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "no regular file")
    if found.st_size > bytes_max:
        raise OSError(0, f"{found.st_size} bytes, more than {bytes_max}")
    if not os.access(path, os.R_OK):
        raise OSError(0, "cannot be read")


def _look_at_picture(file: str) -> None:
    look_at("picture", file, "a file that Pillow reads")


def _look_at_film(file: str) -> None:
    look_at("film", file, "a GIF, APNG or WebP that Pillow reads")


def _look_at_sound(file: str) -> None:
    opened_sound(file).close()


_LOOKS: Mapping[str, Callable[[str], None]] = {
    "image": _look_at_picture,
    "video": _look_at_film,
    "audio": _look_at_sound,
}
