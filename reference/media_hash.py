"""The media hash: one digest for one content, as the key under which caches hold it.

Under `Semantics.ideal()` the digest is of the content's tree (`media_content`) in a stream that can
be decoded (`media_stream`). Under a release's semantics it is that release's digest, byte for byte.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from cacheproof.reference.media_content import call
from cacheproof.reference.media_hash_mended import MendedStream
from cacheproof.reference.media_hash_of_vllm import Indeterminate
from cacheproof.reference.media_stream import chunks
from cacheproof.reference.semantics.media import MediaSemantics

__all__ = ["ALGORITHMS", "Indeterminate", "MediaWithBytes", "MultiModalHasher", "media_kinds"]

ALGORITHMS = ("blake3", "sha256", "sha512")


@dataclass
class MediaWithBytes:
    """Media and the bytes that they were decoded from.

    `io_config` is what altered the media beside the bytes, such as a conversion of colours.
    """

    media: Any
    original_bytes: bytes
    io_config: dict[str, object] | None = None


def media_kinds(semantics: MediaSemantics) -> frozenset[str]:
    """Kinds of media that are hashed with their original bytes, where the release has such."""
    kinds = {
        "image": semantics.hashes_original_bytes,
        "array": semantics.hashes_video_bytes,
        "tensor": semantics.hashes_video_tensors,
    }
    return frozenset(kind for kind, is_hashed in kinds.items() if is_hashed)


class MultiModalHasher:
    """Stands in for vLLM's class of the same name."""

    def __init__(self, semantics: MediaSemantics | None = None) -> None:
        self.semantics = semantics or MediaSemantics()
        self._of_release = MendedStream(self.semantics)

    def hash_kwargs(self, algorithm: str, /, **arguments: object) -> str:
        """The digest of keyword arguments, in hexadecimal.

        Raises:
            ValueError: no such algorithm, or one that the release does not offer.
            media_content.Refused: a value without a content of its own (ideal semantics).
            media_hash_of_vllm.Indeterminate: the release's digest is not determined.
        """
        digest = self._digest(algorithm)
        if self.semantics.hashes_nodes:
            pieces = chunks(call(arguments))
        else:
            pieces = self._of_release.arguments(arguments)
        for piece in pieces:
            digest.update(piece)
        text: str = digest.hexdigest()
        return text

    def _digest(self, algorithm: str) -> Any:
        if algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm {algorithm!r}; expected one of {', '.join(ALGORITHMS)}")
        if algorithm != "blake3":
            if not self.semantics.chooses_media_digest:
                raise ValueError(
                    f"algorithm {algorithm!r}; expected blake3, the release's only one"
                )
            return hashlib.new(algorithm)
        from blake3 import blake3

        return blake3()
