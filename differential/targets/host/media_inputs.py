"""The media of requests whose model is executed: what an identifier stands for.

An identifier alone decides the content, so that equal identifiers are equal media, on every side:
`picture 3 of 2x4` is an image of two by four squares, `film 1 of 3x2x2` a video of three times two
frames; what is called otherwise is an image of two by two. All are noise. `sound 5` is a second of
some tones, `sound 5 of 12` as long as twelve rows are. `embeddings 2 of 7` are seven rows that a
user gives in the place of tokens, and `embeddings zero of 3` three of nothing but zeros.
"""

import re
import zlib
from typing import TYPE_CHECKING, NamedTuple

from .protocol import Event, Illegal, Json
from .scheduler.session import PLACEHOLDER_TOKEN_ID, prompt_token_ids

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from PIL.Image import Image
    from torch import Tensor

SQUARE = 28
"""Pixels of a side of the square that makes one row, in models of any resolution."""
FRAMES_PER_SECOND = 2.0
FRAMES_TOGETHER = 2
SAMPLES_PER_SECOND = 16_000
SAMPLES_OF_A_ROW = 640
"""Samples that make one row, in a model that hears sounds of any length."""
VIDEO_TOKEN_ID = 6
GIVEN_TOKEN_ID = 9
"""The token in a prompt where embeddings are given."""
GIVEN = "prompt_embeds"
"""The release's name of given embeddings, as of a modality."""
ZEROS = "zeros"
"""Name of a row of zeros."""
GIVEN_SPREAD = 0.25
"""Standard deviation of embeddings, as a tiny model's own have."""
VISION_START_TOKEN_ID, VISION_END_TOKEN_ID = 7, 8
UNKNOWN_TOKEN_ID = 0
TIME_TOKEN_IDS = range(1019, 1023)
SECONDS_TOKEN_ID = 1023
"""The token of the unit, after that of the number, in which a tiny model writes the times of a
film's frames."""
_MARKED = {"qwen2_5_vl", "qwen2_audio", "qwen3_vl"}
"""Models that want a token before each item and one after it."""
_TIMED = {"qwen3_vl"}
"""Models that want the time before each frame of a film, and marks around each."""
_TILED = {"cohere2_vision"}
"""Models whose pictures are cut into square tiles, with a token after each tile, and marks that are
part of the item."""
_ROWS_OF_A_TILE = 4
LINE_BREAK_TOKEN_ID = VIDEO_TOKEN_ID
_MODALITIES = {
    "cohere2_vision": {"image", GIVEN},
    "llava": {"image", GIVEN},
    "qwen2_5_vl": {"image", "video", GIVEN},
    "qwen2_audio": {"audio", GIVEN},
    "qwen3_vl": {"image", "video", GIVEN},
    "whisper": {"audio"},
}
_IMAGE = re.compile(r".* of (\d{1,2})x(\d{1,2})")
_SOUND = re.compile(r"sound .* of (\d{1,2})")
_GIVEN = re.compile(r"embeddings .* of (\d{1,2})")
_VIDEO = re.compile(r"film .* of (\d{1,2})x(\d{1,2})x(\d{1,2})")


class ItemMedium(NamedTuple):
    """The pixels of a picture or film: bytes, [frames, height, width, 3]."""

    modality: str
    pixels: "NDArray[numpy.uint8]"

    @property
    def given(self) -> "Image | tuple[NDArray[numpy.uint8], dict[str, Json]]":
        """The medium as a user gives it to an engine: a picture, or frames and what is known of
        them."""
        from PIL.Image import fromarray

        if self.modality == "image":
            return fromarray(self.pixels[0])
        frames = len(self.pixels)
        return self.pixels, {
            "fps": FRAMES_PER_SECOND,
            "duration": frames / FRAMES_PER_SECOND,
            "total_num_frames": frames,
            "frames_indices": list(range(frames)),
            "video_backend": "opencv",
            "do_sample_frames": False,
        }


class ItemSound(NamedTuple):
    """The samples of a sound, from -1 to 1."""

    samples: "NDArray[numpy.float32]"
    modality: str = "audio"

    @property
    def given(self) -> tuple["NDArray[numpy.float32]", int]:
        """The sound as a user gives it to an engine: samples, and how many make a second."""
        return self.samples, SAMPLES_PER_SECOND


def medium_of(identifier: str) -> ItemMedium | ItemSound:
    """The medium for which an identifier stands."""
    import numpy

    noise = numpy.random.RandomState(zlib.crc32(identifier.encode()))
    if identifier.startswith("sound "):
        match = _SOUND.fullmatch(identifier)
        return ItemSound(_tones(noise, SAMPLES_OF_A_ROW * int(match[1]) if match else None))
    modality, frames, height, width = _shape_of(identifier)
    shape = (frames, SQUARE * height, SQUARE * width, 3)
    return ItemMedium(modality, noise.randint(0, 256, shape, dtype=numpy.uint8))


def name_of(item: Event) -> str:
    """An item's name as its user gives it: the identifier without an adapter's name before it."""
    return str(item["mm_hash"] or item["identifier"])


def embeddings_of(identifier: str, hidden_size: int) -> "Tensor":
    """The rows for which an identifier stands, [rows, hidden size], where embeddings are given."""
    import torch

    match = _GIVEN.fullmatch(identifier)
    assert match is not None
    if _are_zeros(identifier):
        return torch.zeros(int(match[1]), hidden_size)
    random = torch.Generator().manual_seed(zlib.crc32(identifier.encode()))
    return torch.randn((int(match[1]), hidden_size), generator=random) * GIVEN_SPREAD


def _are_zeros(identifier: str) -> bool:
    return identifier.startswith("embeddings zero ")


def prompt_embeds_of(event: Event, hidden_size: int) -> "Tensor":
    """The rows of a prompt of embeddings, [tokens, hidden size], and zeros where a token counts.
    Raises Illegal as `row_names_of` does."""
    import torch

    row_names_of(event)
    rows = torch.zeros(event["prompt"], hidden_size)
    for one in event["embeds"]:
        start, end = one["offset"], one["offset"] + one["length"]
        rows[start:end] = embeddings_of(one["identifier"], hidden_size)
    return rows


def row_names_of(event: Event) -> list[str | None]:
    """Name of each row of a prompt of embeddings, equal for equal rows; None where a token counts.
    Raises Illegal where a name stands for another number of rows."""
    names: list[str | None] = [None] * event["prompt"]
    for one in event["embeds"]:
        name, start, length = one["identifier"], one["offset"], one["length"]
        match = _GIVEN.fullmatch(name)
        if match is None or int(match[1]) != length:
            raise Illegal(f"{name} in the place of {length} tokens")
        names[start : start + length] = [
            ZEROS if _are_zeros(name) else f"{name}, {number}" for number in range(length)
        ]
    return names


def is_given(item: Event) -> bool:
    """Whether an item stands for embeddings that a user gives."""
    return _modality_of(name_of(item)) == GIVEN


def _modality_of(identifier: str) -> str:
    """Modality of the medium for which an identifier stands."""
    if _GIVEN.fullmatch(identifier):
        return GIVEN
    return "audio" if identifier.startswith("sound ") else _shape_of(identifier)[0]


def _tones(
    random: "numpy.random.RandomState", num_samples: int | None = None
) -> "NDArray[numpy.float32]":
    """Samples of tones that last a tenth of a second each, so that no two parts of a sound are
    equal; one second, or `num_samples`."""
    import numpy

    count, each = num_samples or SAMPLES_PER_SECOND, SAMPLES_PER_SECOND // 10
    hertz = random.uniform(100, 4000, (-(-count // each), 3, 1))
    waves = numpy.sin(2 * numpy.pi * hertz * numpy.arange(each) / SAMPLES_PER_SECOND)
    return waves.mean(axis=1).reshape(-1).astype(numpy.float32)[:count]


def token_ids_of(event: Event, model: str | None, *, has_placeholders: bool = True) -> list[int]:
    """The tokens of an added request's prompt, every placeholder in full, as the model writes them.
    Raises Illegal for a medium that the model cannot take, and where there is no room for the marks
    that the model puts around items."""
    if model is not None:
        _check_modalities(event["items"], model)
    token_ids = prompt_token_ids(event, has_placeholders=has_placeholders)
    for given in (*filter(is_given, event["items"]), *(event["embeds"] or ())):
        start, end = given["offset"], given["offset"] + given["length"]
        token_ids[start:end] = [GIVEN_TOKEN_ID] * given["length"]
    if model in _TILED:
        for item in event["items"]:
            if not is_given(item):
                token_ids[item["offset"] : item["offset"] + item["length"]] = _tiles_of(item)
        return token_ids
    if model not in _MARKED:
        return token_ids
    free = 0
    for item in event["items"]:
        start, end = item["offset"], item["offset"] + item["length"]
        if start - 1 < free or end >= len(token_ids):
            raise Illegal(f"{item['identifier']} has no room for a mark before it and one behind")
        token_ids[start - 1 : end + 1] = [
            VISION_START_TOKEN_ID,
            *_tokens_of(item, model),
            VISION_END_TOKEN_ID,
        ]
        free = end + 1
    return token_ids


def _tokens_of(item: Event, model: str) -> list[int]:
    """The tokens of an item between its marks. Raises Illegal where the trace has others."""
    if model not in _TIMED or _modality_of(name_of(item)) != "video":
        return [_placeholder(name_of(item))] * item["length"]
    _, frames, height, width = _shape_of(name_of(item))
    token_ids: list[int] = []
    for number in range(frames // FRAMES_TOGETHER):
        time = TIME_TOKEN_IDS[number] if number < len(TIME_TOKEN_IDS) else UNKNOWN_TOKEN_ID
        rows = [VIDEO_TOKEN_ID] * (height * width)
        token_ids += [time, SECONDS_TOKEN_ID, VISION_START_TOKEN_ID, *rows, VISION_END_TOKEN_ID]
    if list(item["is_embed"] or ()) != [one == VIDEO_TOKEN_ID for one in token_ids]:
        raise Illegal(f"{item['identifier']} stands otherwise in a prompt of {model}")
    return token_ids


def _tiles_of(item: Event) -> list[int]:
    """The tokens of a picture in tiles: one tile for each square, and one of the whole beside
    several. Raises Illegal where the trace has others."""
    _, _, height, width = _shape_of(name_of(item))
    squares = height * width
    tile = [PLACEHOLDER_TOKEN_ID] * _ROWS_OF_A_TILE + [LINE_BREAK_TOKEN_ID]
    tiles = tile * (squares + (squares > 1))
    token_ids = [VISION_START_TOKEN_ID, *tiles, VISION_END_TOKEN_ID]
    if list(item["is_embed"] or ()) != [one == PLACEHOLDER_TOKEN_ID for one in token_ids]:
        raise Illegal(f"{item['identifier']} stands otherwise in a prompt in tiles")
    return token_ids


def _check_modalities(items: list[Event], model: str) -> None:
    for item in items:
        modality = _modality_of(name_of(item))
        if modality not in _MODALITIES[model]:
            raise Illegal(f"{item['identifier']} is of kind {modality}, which {model} cannot take")


def collapsed(token_ids: list[int], items: list[Event]) -> list[int]:
    """A prompt's tokens as a user writes them: one placeholder for each item."""
    for item in reversed(items):
        start, end = item["offset"], item["offset"] + item["length"]
        token_ids[start:end] = [_placeholder(name_of(item))]
    return token_ids


def _placeholder(identifier: str) -> int:
    of_modality = {"video": VIDEO_TOKEN_ID, GIVEN: GIVEN_TOKEN_ID}
    return of_modality.get(_modality_of(identifier), PLACEHOLDER_TOKEN_ID)


def _shape_of(identifier: str) -> tuple[str, int, int, int]:
    """Modality, frames, and squares down and across, of an identifier."""
    if match := _VIDEO.fullmatch(identifier):
        together, height, width = map(int, match.groups())
        return "video", FRAMES_TOGETHER * together, height, width
    if match := _IMAGE.fullmatch(identifier):
        height, width = map(int, match.groups())
        return "image", 1, height, width
    return "image", 1, 2, 2
