"""What vLLM feeds its digest, release by release: faults included, wherever that is deterministic.

Until 0.30 the stream is keys and values end to end, so that a value may read as the next key. From
0.31 on each chunk has its length in front and each container its kind; types are not in it.
"""

import pickle
import struct
from collections.abc import Iterator
from typing import Any

from cacheproof.reference.media_content import MEDIA_WRAPPER, image_id, is_of
from cacheproof.reference.semantics.media import MediaSemantics

Chunk = bytes | memoryview
_NONE, _SEQUENCE, _MAPPING, _LEAF = b"\0", b"\1", b"\2", b"\3"


class Indeterminate(ValueError):
    """The releases hash the value by something that changes from call to call."""


class ReleaseStream:
    """The chunks that a release with these semantics feeds its digest."""

    def __init__(self, semantics: MediaSemantics) -> None:
        self._semantics = semantics

    def arguments(self, arguments: dict[str, object]) -> Iterator[Chunk]:
        """Chunks of one call.

        Raises:
            Indeterminate: an int beyond 64 bits, an array of objects in 0.10.2.
            Exception: whatever the release raises of such a value, of the same type.
        """
        names = sorted(arguments) if self._semantics.sorts_keywords else list(arguments)
        for name in names:
            yield from self._item(name, arguments[name])

    def _item(self, key: str, value: object) -> Iterator[Chunk]:
        if self._semantics.frames_media_chunks:
            yield from self._chunk(key.encode())
            yield from self._framed(value)
        elif value is None and self._semantics.hashes_none_by_key:
            yield key.encode()
        elif isinstance(value, list | tuple):
            for place, element in enumerate(value):
                yield from self._item(f"{key}.{place}", element)
        elif isinstance(value, dict):
            for name, element in value.items():
                yield from self._item(f"{key}.{name}", element)
        else:
            yield key.encode()
            yield from self._leaf(value)

    def _framed(self, value: object) -> Iterator[Chunk]:
        if value is None:
            yield _NONE
        elif isinstance(value, list | tuple):
            yield _SEQUENCE + len(value).to_bytes(8, "little")
            for element in value:
                yield from self._framed(element)
        elif isinstance(value, dict):
            yield _MAPPING + len(value).to_bytes(8, "little")
            for name, element in value.items():
                yield from self._chunk(str(name).encode())
                yield from self._framed(element)
        else:
            yield _LEAF
            yield from self._leaf(value)

    def _chunk(self, chunk: Chunk) -> Iterator[Chunk]:
        if self._semantics.frames_media_chunks:
            size = chunk.nbytes if isinstance(chunk, memoryview) else len(chunk)
            yield size.to_bytes(8, "little")
        yield chunk

    def _leaf(self, value: Any) -> Iterator[Chunk]:
        match value:
            case bytes() | memoryview():
                return self._chunk(value)
            case str():
                return self._chunk(value.encode())
            case int() | float():
                return self._chunk(_number(value))
        if is_of(value, "PIL.Image", "Image"):
            return self._image(value)
        if type(value).__name__ == MEDIA_WRAPPER:
            media = self._media(value)
            if media is not None:
                return media
        if is_of(value, "torch", "Tensor"):
            return self._tensor(value)
        if is_of(value, "numpy", "ndarray"):
            return self._array(value)
        return self._chunk(pickle.dumps(value))

    def _image(self, image: Any) -> Iterator[Chunk]:
        import numpy

        identity = image_id(image)
        if identity is not None:
            return self._chunk(identity)
        if not self._semantics.hashes_image_modes:
            return self._item("image", numpy.asarray(image.convert("RGBA")))
        return self._item("image", self._described(image))

    def _described(self, image: Any) -> dict[str, object]:
        import numpy

        described = {"mode": image.mode, "data": numpy.asarray(image)}
        if image.palette is not None:
            described["palette"] = image.palette.palette
            if image.palette.rawmode is not None:
                described["palette_rawmode"] = image.palette.rawmode
        return described

    def _media(self, wrapped: Any) -> Iterator[Chunk] | None:
        """Chunks of media with their original bytes; None where the release knows no such media."""
        media, original = wrapped.media, wrapped.original_bytes
        if is_of(media, "PIL.Image", "Image"):
            if not self._semantics.hashes_original_bytes:
                return None
            identity = image_id(media)
            if identity is not None:
                return self._chunk(identity)
            if self._semantics.hashes_decode_settings and wrapped.io_config:
                return self._item("image", {"io_config": wrapped.io_config, "data": original})
            return self._item("image", original)
        is_frames = (self._semantics.hashes_video_bytes and is_of(media, "numpy", "ndarray")) or (
            self._semantics.hashes_video_tensors and is_of(media, "torch", "Tensor")
        )
        if not is_frames:
            return None
        return self._item("video", media if media.nbytes < len(original) else original)

    def _tensor(self, tensor: Any) -> Iterator[Chunk]:
        import torch

        if tensor.dtype != torch.bfloat16:
            return self._item("tensor", tensor.cpu().numpy())
        data = tensor.cpu().contiguous().view((tensor.numel(),)).view(torch.uint8).numpy()
        described = {
            "original_dtype": "torch.bfloat16",
            "original_shape": tuple(tensor.shape),
            "data": data,
        }
        return self._item("tensor", described)

    def _array(self, array: Any) -> Iterator[Chunk]:
        semantics = self._semantics
        data: object
        if semantics.hashes_array_scalars and array.ndim == 0:
            data = array.item()
        elif not array.flags.c_contiguous:
            data = array.tobytes()
        elif semantics.hashes_array_views:
            data = array.view("u1").data
        elif array.dtype.hasobject:
            raise Indeterminate("array of objects: its bytes are addresses")
        else:
            data = b"".join((array.data,))  # raises what the release does of dates
        described = {"dtype": self._dtype(array), "shape": array.shape, "data": data}
        return self._item("ndarray", described)

    def _dtype(self, array: Any) -> str:
        name: str = array.dtype.str
        return name


def _number(value: int | float) -> bytes:
    """The bytes that numpy keeps the number in."""
    match value:
        case bool():
            return b"\1" if value else b"\0"
        case float():
            return struct.pack("<d", value)
        case _ if -(2**63) <= value < 2**64:
            return struct.pack("<q" if value < 2**63 else "<Q", value)
    raise Indeterminate(f"{value}: numpy keeps an int beyond 64 bits by its address")
