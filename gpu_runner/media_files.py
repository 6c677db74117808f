"""Pictures, films and sounds from files, as models' processors take them."""

import wave
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy
from PIL import Image, ImageSequence

SAMPLES_PER_SECOND = 16_000
SECONDS_OF_A_FRAME = 0.5
"""Where a file does not say how long its frames are shown."""


class BadFile(ValueError):
    """A file that is not what it should be; one line says why."""


class Film(NamedTuple):
    """Frames of [frames, height, width, 3], bytes, and how long each is shown, on average."""

    frames: numpy.ndarray
    seconds_of_a_frame: float


class Sound(NamedTuple):
    """Samples from -1 to 1, SAMPLES_PER_SECOND of them in a second."""

    samples: numpy.ndarray


Medium = Image.Image | Film | Sound


def read(modality: str, file: str) -> Medium:
    """The medium in a file.

    Raises:
        BadFile: there is none, or it is another than what models are given.
    """
    return _READERS[modality](file)


def _picture(file: str) -> Image.Image:
    try:
        with Image.open(file) as image:
            return image.convert("RGB")
    except (OSError, ValueError) as error:
        raise BadFile(f"picture {file}: {error}; expected a file that Pillow reads") from None


def _film(file: str) -> Film:
    frames, milliseconds = [], []
    try:
        with Image.open(file) as image:
            for frame in ImageSequence.Iterator(image):
                frames.append(numpy.asarray(frame.convert("RGB")))
                milliseconds.append(frame.info.get("duration", 0))
    except (OSError, ValueError) as error:
        raise BadFile(
            f"film {file}: {error}; expected a GIF, APNG or WebP that Pillow reads"
        ) from None
    if len(frames) < 2:
        raise BadFile(f"film {file}: one picture; expected two frames at least, or --image")
    of_a_frame = sum(milliseconds) / len(frames) / 1000
    return Film(numpy.stack(frames), of_a_frame or SECONDS_OF_A_FRAME)


def _sound(file: str) -> Sound:
    try:
        with wave.open(file) as opened:
            shape = (opened.getnchannels(), 8 * opened.getsampwidth(), opened.getframerate())
            data = opened.readframes(opened.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise BadFile(f"sound {file}: {error}; expected a WAV file of plain samples") from None
    if shape != (1, 16, SAMPLES_PER_SECOND):
        channels, bits, rate = shape
        raise BadFile(
            f"sound {file}: {channels} channels of {bits} bits, {rate} samples a second; expected "
            f"1 of 16 bits, {SAMPLES_PER_SECOND}"
        )
    samples = numpy.frombuffer(data, dtype="<i2").astype(numpy.float32) / (1 << 15)
    if not len(samples):
        raise BadFile(f"sound {file}: no samples; expected some")
    return Sound(samples)


_READERS: Mapping[str, Callable[[str], Medium]] = {
    "image": _picture,
    "video": _film,
    "audio": _sound,
}
