"""The stream of a release's media hash with what no release hashes: types, frames, whole values,
and mappings in the order of their keys. Each is a flag of `MediaSemantics`."""

from collections.abc import Iterator
from typing import Any

from cacheproof.reference.media_content import MEDIA_WRAPPER, is_of
from cacheproof.reference.media_hash_of_vllm import _MAPPING, _SEQUENCE, Chunk, ReleaseStream


class MendedStream(ReleaseStream):
    """The chunks that a release feeds its digest once it has these changes; without any of them,
    the release's own."""

    def _item(self, key: str, value: object) -> Iterator[Chunk]:
        value = self._as_hashed(value)
        if self._semantics.tags_types and not self._semantics.frames_media_chunks:
            if isinstance(value, list | tuple):
                yield key.encode() + _SEQUENCE
            elif isinstance(value, dict):
                yield key.encode() + _MAPPING
                value = {f"{_kind(name)}:{name}": value[name] for name in value}
        yield from super()._item(key, value)

    def _framed(self, value: object) -> Iterator[Chunk]:
        value = self._as_hashed(value)
        if not (self._semantics.tags_types and isinstance(value, dict)):
            yield from super()._framed(value)
            return
        yield _MAPPING + len(value).to_bytes(8, "little")
        for name, element in value.items():
            yield from self._framed(name)
            yield from self._framed(element)

    def _leaf(self, value: object) -> Iterator[Chunk]:
        if not self._semantics.tags_types:
            return super()._leaf(value)
        return self._tagged(value)

    def _tagged(self, value: object) -> Iterator[Chunk]:
        yield from self._chunk(_kind(value).encode())
        if isinstance(value, int):
            size = (value.bit_length() + 8) // 8
            yield from self._chunk(value.to_bytes(size, "little", signed=True))
        else:
            yield from super()._leaf(value)

    def _described(self, image: Any) -> dict[str, object]:
        described = super()._described(image)
        if self._semantics.hashes_whole_values:
            described["transparency"] = image.info.get("transparency")
        return described

    def _dtype(self, array: Any) -> str:
        return str(array.dtype) if self._semantics.hashes_whole_values else super()._dtype(array)

    def _as_hashed(self, value: Any) -> object:
        """Media without the bytes that they came in, a mapping in the order of its keys."""
        if self._semantics.hashes_frames and type(value).__name__ == MEDIA_WRAPPER:
            value = value.media
        if self._semantics.sorts_mappings and isinstance(value, dict):
            names = sorted(value, key=lambda name: (str(name), _kind(name)))
            value = {name: value[name] for name in names}
        return value


def _kind(value: Any) -> str:
    """The name of the kind of value under which it is hashed; of media, with bytes or without."""
    if type(value).__name__ == MEDIA_WRAPPER:
        return _kind(value.media)
    if isinstance(value, bytes | memoryview):
        return "bytes"
    plain = (one.__name__ for one in (bool, int, float, str) if isinstance(value, one))
    libraries = {"Image": "PIL.Image", "Tensor": "torch", "ndarray": "numpy"}
    others = (name for name, module in libraries.items() if is_of(value, module, name))
    return next(plain, None) or next(others, type(value).__name__)
