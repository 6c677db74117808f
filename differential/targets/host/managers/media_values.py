"""Builds the real objects that a described value of a media hash stands for.

A description is plain JSON data: `{"is": kind, ...}`. The harness, whose
`differential/media/descriptions.py` lists the kinds, has checked that it is one. numpy, torch
and Pillow are imported only by the kinds that need them.
"""

import struct
import uuid
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any

from ..protocol import Plain

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from PIL.Image import Image
    from torch import Tensor

Description = Plain
Wrapper = Callable[[str, object, bytes, object | None], object]
"""(kind of media, media, original bytes, decode settings) -> media with their original bytes"""
EXIF_IMAGE_ID = 0x800D


class Unbuildable(Exception):
    """The target has no such object; the message names it."""


class Builder:
    """Makes objects anew for each call. `wrapper` makes media with their original bytes."""

    def __init__(self, wrapper: Wrapper | None) -> None:
        self._wrapper = wrapper
        self._makers: dict[str, Callable[[Description], object]] = {
            "none": lambda value: None,
            "bool": lambda value: value["value"],
            "int": lambda value: int(value["value"]),
            "float": lambda value: struct.unpack(">d", bytes.fromhex(value["bits"]))[0],
            "str": lambda value: value["text"],
            "bytes": lambda value: bytes.fromhex(value["hex"]),
            "list": lambda value: [self.build(item) for item in value["items"]],
            "tuple": lambda value: tuple(self.build(item) for item in value["items"]),
            "map": lambda value: {self.build(k): self.build(v) for k, v in value["entries"]},
            "array": _array,
            "tensor": _tensor,
            "image": _image,
            "media": self._media,
        }

    def arguments(self, value: Description) -> dict[str, object]:
        """The keyword arguments that a described call stands for."""
        return {name: self.build(argument) for name, argument in value["arguments"]}

    def build(self, value: Description) -> object:
        """The object that a description stands for. Raises Unbuildable where there is none."""
        try:
            return self._makers[value["is"]](value)
        except ModuleNotFoundError as missing:
            raise Unbuildable(f"{value['is']} without the library {missing.name}") from None

    def _media(self, value: Description) -> object:
        if self._wrapper is None:
            raise Unbuildable("media with their original bytes")
        settings = None if value["io_config"] is None else self.build(value["io_config"])
        media = value["media"]
        return self._wrapper(
            media["is"], self.build(media), bytes.fromhex(value["original"]), settings
        )


def limited(wrapper: Callable[..., object], kinds: Set[str], takes_settings: bool) -> Wrapper:
    """A `wrapper` for these kinds of media, with decode settings where it takes them. It raises
    Unbuildable for other kinds.
    """

    def wrap(kind: str, media: object, original: bytes, settings: object | None) -> object:
        if kind not in kinds or not (takes_settings or settings is None):
            raise Unbuildable(f"{kind} with original bytes and decode settings {settings}")
        return wrapper(media, original, *([settings] if takes_settings else []))

    return wrap


def _dtype(described: str | list[list[Any]]) -> "numpy.dtype[numpy.generic]":
    """A dtype from its string, or from [name, dtype] or [name, dtype, shape] per field."""
    import numpy

    if isinstance(described, str):
        return numpy.dtype(described)
    return numpy.dtype([(field[0], *field[1:2], *map(tuple, field[2:])) for field in described])


def _array(value: Description) -> "NDArray[numpy.generic]":
    import numpy

    dtype, shape = _dtype(value["dtype"]), tuple(value["shape"])
    if dtype.hasobject:
        return numpy.empty(shape, dtype)
    data = bytearray.fromhex(value["hex"])
    array: NDArray[numpy.generic] = (
        numpy.ndarray(shape, dtype, buffer=data) if data else numpy.empty(shape, dtype)
    )
    if not shape or not data:
        return array
    match value["layout"]:
        case "F":
            return numpy.asfortranarray(array)
        case "strided":
            return numpy.repeat(array, 2, axis=-1)[..., ::2]
        case _:
            return array


def _tensor(value: Description) -> "Tensor":
    import torch

    dtype, shape = getattr(torch, value["dtype"]), tuple(value["shape"])
    data = bytearray.fromhex(value["hex"])
    if not data:
        return torch.empty(shape, dtype=dtype)
    tensor = torch.frombuffer(data, dtype=dtype).reshape(shape)
    if not shape:
        return tensor
    match value["layout"]:
        case "F":
            axes = tuple(reversed(range(len(shape))))
            return tensor.permute(axes).contiguous().permute(axes)
        case "strided":
            return tensor.repeat_interleave(2, dim=-1)[..., ::2]
        case _:
            return tensor


def _image(value: Description) -> "Image":
    from PIL.Image import frombytes, new

    size = tuple(value["size"])
    if 0 in size:
        image = new(value["mode"], size)
    else:
        image = frombytes(value["mode"], size, bytes.fromhex(value["hex"]))
    if value["palette"] is not None:
        image.putpalette(bytes.fromhex(value["palette"]["hex"]), value["palette"]["mode"])
    transparency = value["transparency"]
    if transparency is not None:
        image.info["transparency"] = (
            bytes.fromhex(transparency) if isinstance(transparency, str) else transparency
        )
    identity = value["image_id"]
    if identity is not None:
        image.getexif()[EXIF_IMAGE_ID] = (
            uuid.UUID(identity["uuid"]) if "uuid" in identity else identity["text"]
        )
    return image
