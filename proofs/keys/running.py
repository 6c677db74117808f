"""Texts as Python runs them: nothing here reads a text, or knows how it is read.

numpy and Pillow are there; what is asked of torch is answered by `StandIn`, so that what is seen
does not hang on whether torch is installed. A test holds it against torch.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import CodeType, SimpleNamespace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import PIL.Image

from cacheproof.proofs.keys.key_modules import (
    BLOCK_HASH,
    MEDIA_CONTENT,
    MEDIA_HASH_OF_VLLM,
    MEDIA_IDENTIFIER,
    MEDIA_STREAM,
    Language,
)
from cacheproof.proofs.keys.media import Texts
from cacheproof.reference.request import (
    LoRARequest,
    MultiModalFeature,
    PlaceholderRange,
    PromptEmbeds,
    TokenRequest,
)
from cacheproof.reference.semantics.block_keys import BlockKeySemantics
from cacheproof.reference.semantics.media import MediaSemantics

SEED = "seed"


def run_by_python(text: str, language: Language) -> dict[str, Any]:
    """What the module of a text defines."""
    names: dict[str, Any] = {"__name__": language.module}
    exec(_compiled(text, language.path), names)
    return names


@cache
def _compiled(text: str, path: str) -> CodeType:
    return compile(text, path, "exec")


class StandIn:
    """A tensor, as far as the texts ask: an array beside the name of its type."""

    layout, is_quantized = "strided", False

    def __init__(self, array: npt.NDArray[np.generic], dtype: str) -> None:
        self._array, self.dtype = array, f"torch.{dtype}"
        self.shape = array.shape

    def _same(self) -> "StandIn":
        return self

    detach = cpu = resolve_conj = resolve_neg = contiguous = _same

    def numel(self) -> int:
        return int(self._array.size)

    def reshape(self, *shape: int) -> "StandIn":
        return StandIn(self._array.reshape(*shape), self.dtype.removeprefix("torch."))

    def view(self, dtype: str) -> "StandIn":
        return StandIn(self._array.view(dtype), dtype)

    def numpy(self) -> npt.NDArray[np.generic]:
        return self._array


_TORCH = SimpleNamespace(Tensor=StandIn, strided="strided", uint8="uint8")
_LIBRARIES = {"numpy": np, "numpy.ma": np.ma, "PIL.Image": PIL.Image, "torch": _TORCH}


class MediaNode(Protocol):
    """A node, of the class that a text defines."""

    tag: int
    body: "bytes | tuple[MediaNode, ...]"


class MediaTexts:
    """The media hash of two texts."""

    def __init__(self, texts: Texts) -> None:
        self._stream = run_by_python(texts.stream, MEDIA_STREAM)
        self._content = run_by_python(texts.content, MEDIA_CONTENT)
        self.node = self._stream["Node"]
        self.leaves: frozenset[int] = self._stream["LEAVES"]
        self.lists: frozenset[int] = self._stream["LISTS"]
        for name in ("Node", "encode"):
            if name in self._content:
                self._content[name] = self._stream[name]
        if self._content.get("sys") is sys:
            self._content["sys"] = SimpleNamespace(modules=_LIBRARIES)

    def tree(self, arguments: Mapping[str, object]) -> MediaNode:
        """The node of a call."""
        return self._content["call"](arguments)

    def content(self, value: object) -> MediaNode:
        """The node of a value."""
        return self._content["content"](value)

    def stream(self, node: MediaNode) -> bytes:
        """What the digest of a node is fed."""
        return b"".join(self._stream["chunks"](node))

    def decoded(self, stream: bytes) -> MediaNode | str:
        """The node whose encoding a stream is; for a stream that is none, what was said of it."""
        try:
            return self._stream["decode"](stream)
        except self._stream["NotAStream"] as refusal:
            return str(refusal)

    def decoded_within(self, stream: bytes, start: int) -> tuple[MediaNode, int] | str:
        """The node that is decoded at a place of a stream, and its end."""
        try:
            return self._stream["_decode"](stream, start)
        except self._stream["NotAStream"] as refusal:
            return str(refusal)


class StreamOfRelease:
    """The media hash of a text under the semantics of a release."""

    def __init__(self, text: str, semantics: MediaSemantics) -> None:
        self._of = run_by_python(text, MEDIA_HASH_OF_VLLM)["ReleaseStream"](semantics)

    def stream(self, value: object) -> bytes:
        """What is fed to the digest of a value."""
        return b"".join(self._of._framed(value))

    def of_call(self, arguments: Mapping[str, object]) -> bytes:
        """What is fed to the digest of a call."""
        return b"".join(self._of.arguments(arguments))


def identifier_by(text: str) -> Callable[..., str]:
    """`identifier` of a text."""
    found: Callable[..., str] = run_by_python(text, MEDIA_IDENTIFIER)["identifier"]
    return found


class Requested(SimpleNamespace):
    """What a request brings.

    Attributes:
        tokens: its token ids.
        items: (identifier, offset, length) of each.
        adapter: (name, path), or None.
        salt: its cache salt, or None.
        rows: the bytes of the embedding of each position, None where none was given; or None.
    """

    def __init__(
        self,
        tokens: Iterable[int],
        items: Iterable[tuple[str, int, int]] = (),
        adapter: tuple[str, str] | None = None,
        salt: str | None = None,
        rows: tuple[bytes | None, ...] | None = None,
    ) -> None:
        super().__init__(
            tokens=tuple(tokens), items=tuple(items), adapter=adapter, salt=salt, rows=rows
        )

    def request(self) -> TokenRequest:
        """As the reference's, without keys; its tokens are what embeddings have left of them."""
        embeds = None
        if self.rows is not None:
            width = max((len(row) for row in self.rows if row), default=1)
            tensor = tuple(bytes(width) if row is None else row for row in self.rows)
            embeds = PromptEmbeds(tensor, tuple(row is not None for row in self.rows))
        request = TokenRequest(
            "r",
            self.tokens if embeds is None else self.tokens[: len(embeds.given)],
            [
                MultiModalFeature(name, PlaceholderRange(offset, length), name)
                for name, offset, length in self.items
            ],
            LoRARequest(self.adapter[0], 1, self.adapter[1]) if self.adapter else None,
            self.salt,
            embeds,
        )
        request.all_token_ids = list(self.tokens)
        return request


def ideal_hash(value: object) -> bytes:
    """Values have one hash where they are equal; so they say the same. Short, by its number."""
    return _NUMBERS.setdefault(repr(value), b"%d." % len(_NUMBERS))


_NUMBERS: dict[str, bytes] = {}


class BlockTexts:
    """Block keys by a text, under an ideal hash: the text of the value that is hashed."""

    def __init__(self, text: str, semantics: BlockKeySemantics) -> None:
        self._names = run_by_python(text, BLOCK_HASH)
        self._semantics = semantics

    def keys(
        self,
        requested: Requested,
        size: int,
        lookahead: int = 0,
        known: Iterable[bytes] = (),
        hash_of: Callable[[object], bytes] = ideal_hash,
        seed: str = SEED,
    ) -> list[bytes]:
        """The keys that are added after those that are known."""
        request = requested.request()
        request.block_hashes = list(known)
        hasher = self._names["get_request_block_hasher"](
            size, hash_of, lookahead, semantics=self._semantics, seed=seed
        )
        found: list[bytes] = hasher(request)
        return found

    def keys_one_by_one(self, requested: Requested, size: int, lookahead: int = 0) -> list[bytes]:
        """The keys of a request that grows token by token, by one hasher."""
        request = requested.request()
        tokens, request.all_token_ids = request.all_token_ids, []
        hasher = self._names["get_request_block_hasher"](
            size, ideal_hash, lookahead, semantics=self._semantics, seed=SEED
        )
        for token in tokens:
            request.all_token_ids.append(token)
            request.block_hashes += hasher(request)
        return request.block_hashes

    def named(
        self, requested: Requested, blocks: Iterable[tuple[int, int]], known: int
    ) -> list[list[object]]:
        """The keys of items that are named of each of these blocks, asked in order, of a request
        that had a number of keys, `known`."""
        request = requested.request()
        request.block_hashes = [b""] * known
        keys = self._names["_ExtraKeys"](request, self._semantics)
        return [list(keys._of_items(start, end)) for start, end in blocks]

    def item_key(self, name: str, offset: int, start: int) -> object:
        """How an item is named."""
        feature = MultiModalFeature(name, PlaceholderRange(offset, 1), name)
        return self._names["_item_key"](feature, start, self._semantics)

    def extras(self, requested: Requested, size: int, ahead: int) -> dict[tuple[int, int], object]:
        """The extra keys of all full blocks, asked in order."""
        keys = self._names["_ExtraKeys"](requested.request(), self._semantics)
        starts = range(0, len(requested.tokens) - ahead - size + 1, size)
        spans = [(start, start + size + ahead) for start in starts]
        return {span: keys.of(*span) for span in spans}

    def extra(self, requested: Requested, start: int, end: int) -> tuple[object, ...] | None:
        """The extra keys of a block, asked first."""
        return self._names["_ExtraKeys"](requested.request(), self._semantics).of(start, end)
