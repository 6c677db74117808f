"""Pictures, films and sounds from files, as models' processors take them."""

import os
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy
from PIL import Image, ImageSequence

from cacheproof.gpu_runner.jobs import BadJob, opened_sound

SECONDS_OF_A_FRAME = 0.5
"""How long a frame is shown where the file does not say."""
PICTURE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
FILM_FORMATS = ("GIF", "PNG", "WEBP")
PIXELS_MAX = 1 << 26
"""Most pixels of a picture, or of all frames of a film: a small file can claim any number."""
FRAMES_MAX = 4096


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
        BadJob: there is none, or it is another than what models are given.
    """
    return _READERS[modality](file)


def _picture(file: str) -> Image.Image:
    try:
        with _opened(file, PICTURE_FORMATS) as image:
            return image.convert("RGB")
    except Exception as error:  # decoders of a damaged file raise whatever they stumble over
        raise BadJob(f"picture {file}: {_said(error)}; expected a file that Pillow reads") from None


def _film(file: str) -> Film:
    frames, milliseconds = [], []
    try:
        with _opened(file, FILM_FORMATS) as image:
            for frame in ImageSequence.Iterator(image):
                frames.append(numpy.asarray(frame.convert("RGB")))
                milliseconds.append(float(frame.info.get("duration", 0)))
                if (
                    len(frames) > FRAMES_MAX
                    or len(frames) * image.width * image.height > PIXELS_MAX
                ):
                    raise ValueError(
                        f"more than {FRAMES_MAX} frames, or {PIXELS_MAX} pixels in all of them"
                    )
            if len(frames) < 2:
                raise BadJob(f"film {file}: one picture; expected two frames at least, or --image")
            of_a_frame = sum(milliseconds) / len(frames) / 1000
            return Film(numpy.stack(frames), of_a_frame or SECONDS_OF_A_FRAME)
    except BadJob:
        raise
    except Exception as error:  # as above
        raise BadJob(
            f"film {file}: {_said(error)}; expected a GIF, APNG or WebP that Pillow reads"
        ) from None


def _opened(file: str, formats: tuple[str, ...]) -> Image.Image:
    """An image of which nothing is decoded yet. Raises ValueError for one that is too large."""
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    image = Image.open(file, formats=formats)
    if image.width * image.height > PIXELS_MAX:
        image.close()
        raise ValueError(f"{image.width} by {image.height} pixels, more than {PIXELS_MAX}")
    return image


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _sound(file: str) -> Sound:
    with opened_sound(file) as opened:
        data = opened.readframes(min(opened.getnframes(), os.path.getsize(file)))
    samples = numpy.frombuffer(data[: len(data) & ~1], dtype="<i2").astype(numpy.float32) / (
        1 << 15
    )
    if not len(samples):
        raise BadJob(f"sound {file}: no samples; expected some")
    return Sound(samples)


_READERS: Mapping[str, Callable[[str], Medium]] = {
    "image": _picture,
    "video": _film,
    "audio": _sound,
}
