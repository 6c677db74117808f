"""The media hash of vLLM, release by release: what of it is told apart, and what is not.

The text is that of `media_hash_of_vllm`, which tests hold against the releases digest by digest.
Where its encoding is not injective, two calls are worked out that the digest is fed as the same
bytes.
"""

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import z3

from cacheproof.proofs.keys import key_modules, paths
from cacheproof.proofs.keys.ambiguity import Layout
from cacheproof.proofs.keys.collisions import witness
from cacheproof.proofs.keys.media import pieces
from cacheproof.proofs.keys.media_values import (
    Constructed,
    Float,
    Library,
    Mapping,
    Open,
    image_id,
    is_of,
)
from cacheproof.proofs.keys.paths import Unread
from cacheproof.proofs.keys.symbolic import (
    EMPTY,
    Data,
    Field,
    Many,
    Nested,
    Number,
    Piece,
    Symbol,
    SymbolicText,
    collect,
    content_of,
    data,
    fresh,
)
from cacheproof.proofs.keys.texts import run_text, text_of
from cacheproof.reference import media_hash_of_vllm
from cacheproof.reference.semantics.media import MediaSemantics

Maker = Callable[[], Symbol | bool]
SHOWN = 40
"""Characters of a value that are shown."""


def framed_kinds() -> dict[str, Callable[[], Constructed]]:
    """Values of JSON without numbers: what the frames of 0.31 tell apart."""

    def sequence() -> Constructed:
        element = Open("element")
        made = Many(element, element.content, ("list",))
        return "sequence", made.content, made

    def mapping() -> Constructed:
        made = Mapping(SymbolicText(content_of("key")))
        return "mapping", made.content, made

    def text() -> Constructed:
        made = SymbolicText(content_of("text"))
        return "str", made.content, made

    return {"None": lambda: ("none", (), None), "str": text, "list": sequence, "mapping": mapping}


def _array() -> Library:
    """One row of bytes."""
    elements = data("elements", "memoryview")
    array = Library(
        ("numpy", "ndarray"),
        ndim=1,
        shape=(elements.nbytes,),
        dtype=SimpleNamespace(str="|u1", hasobject=False),
        flags=SimpleNamespace(c_contiguous=True),
        content=elements.content,
    )
    array.view = lambda _: SimpleNamespace(data=elements)  # type: ignore[attr-defined]
    array.data = elements  # type: ignore[attr-defined]
    return array


class _Arguments(Symbol):
    """Keyword arguments, in the order of their names."""

    types = frozenset({"dict"})

    def __init__(self, named: Sequence[tuple[SymbolicText, object]]) -> None:
        self._named = named

    def __getitem__(self, name: object) -> object:
        for one, value in self._named:
            if one is name:
                return value
        raise Unread("an argument that is not that of a name")

    def as_list(self) -> list[SymbolicText]:
        return [name for name, _ in self._named]


def _names_in_order(arguments: object) -> list[SymbolicText]:
    if isinstance(arguments, _Arguments):
        return arguments.as_list()
    raise Unread("the order of what are no names")


MAKERS: dict[str, Maker] = {
    "True": lambda: True,
    "int": lambda: Number(z3.Int(fresh("int"))),
    "float": Float,
    "str": lambda: SymbolicText(content_of("text")),
    "bytes": lambda: data("bytes"),
    "array": _array,
}


def _pack(form: str, value: Float | Number) -> Data:
    if form not in ("<d", "<q", "<Q"):
        raise Unread(f"struct.pack of the format {form}")
    match value:
        case Float() if form == "<d":
            return Data(Field(value.bits, 8, "little"))
        case Number():
            return Data(Field(z3.simplify(value.term % 2**64), 8, "little"))
    raise Unread(f"a float in the format {form}")


class ReleaseEncoding:
    """The encoding that a text is under the semantics of a release."""

    def __init__(self, semantics: MediaSemantics, text: str | None = None) -> None:
        self._semantics = semantics
        names = run_text(
            text_of(media_hash_of_vllm) if text is None else text,
            key_modules.MEDIA_HASH_OF_VLLM,
            is_of=is_of,
            image_id=image_id,
            struct=SimpleNamespace(pack=_pack),
            sorted=_names_in_order,
        )
        self._refused = names["Indeterminate"]
        self._stream = names["ReleaseStream"](semantics)
        self._framed = self._stream._framed
        self._stream._framed = self._framed_or_open

    def frames(self) -> list[Layout]:
        """What values of JSON without numbers are encoded as, nested in each other."""
        return list(
            itertools.chain.from_iterable(
                self._layouts(kind, make) for kind, make in framed_kinds().items()
            )
        )

    def _layouts(self, kind: str, make: Callable[[], Constructed]) -> Iterator[Layout]:
        def run() -> tuple[Constructed, tuple[Piece, ...]]:
            made = make()
            return made, pieces(collect(self._framed_or_open(made[2])))

        for path in paths.paths(run):
            (constructor, terms, _), written = path.result
            yield Layout(kind, constructor, terms, written, path.conditions)

    def _framed_or_open(self, value: object) -> Iterator[object]:
        if isinstance(value, Open):
            yield Nested(value.value)
        else:
            yield from self._framed(value)

    def calls(self, kinds: Sequence[str]) -> list[Layout]:
        """Calls with arguments of these kinds; one layout for each way through the text. Their
        content is each name with the value's own. The first of two names is empty, so that their
        order is theirs."""

        def run() -> tuple[tuple[z3.ExprRef, ...], tuple[Piece, ...]]:
            named = [(SymbolicText(content_of("name")), MAKERS[kind]()) for kind in kinds]
            if len(named) > 1:
                paths.assume(named[0][0].of == EMPTY, named[1][0].of != EMPTY)
            try:
                written = pieces(collect(self._stream.arguments(_Arguments(named))))
            except self._refused:
                raise paths.PathEnded from None
            terms = [(name.of, *getattr(value, "content", ())) for name, value in named]
            return tuple(itertools.chain(*terms)), written

        kind = ", ".join(kinds)
        return [Layout(kind, "call", *path.result, path.conditions) for path in paths.paths(run)]


@dataclass(frozen=True)
class StreamPair:
    """Two calls with one stream, as keyword arguments."""

    first: dict[str, object]
    second: dict[str, object]
    stream: bytes

    def __str__(self) -> str:
        return f"{_shown(self.first)} as {_shown(self.second)}"


SUSPECTS = (
    (("True",), ("bytes",)),
    (("int",), ("float",)),
    (("str",), ("bytes",)),
    (("str",), ("str",)),
    (("array",), ("str", "str")),
)
"""Shapes of two calls for which a stream is looked for that is both."""


def pairs(
    semantics: MediaSemantics, text: str | None = None, seed: int = 0
) -> Iterator[StreamPair]:
    """Two calls that have one stream, of each two suspect shapes for which there are such.

    Raises:
        Unread: there are none, and of some shapes the text is not read.
    """
    encoding = ReleaseEncoding(semantics, text)
    unread: list[Unread] = []
    is_found = False

    def calls(shape: Sequence[str]) -> list[Layout]:
        try:
            return encoding.calls(shape)
        except Unread as why:
            unread.append(why)
            return []

    for shape, other_shape in SUSPECTS:
        for one, other in itertools.product(calls(shape), calls(other_shape)):
            found = witness(one, other, seed)
            if found is not None:
                first, second = _arguments(one, found.first), _arguments(other, found.second)
                is_found = True
                yield StreamPair(first, second, found.stream)
                break
    if unread and not is_found:
        raise unread[0]


def _arguments(call: Layout, content: Sequence[bytes | int]) -> dict[str, object]:
    held = iter(content)
    found = {}
    for kind in call.kind.split(", "):
        name = next(held)
        assert isinstance(name, bytes)
        found[name.decode("ascii")] = VALUES[kind](held)
    return found


def _float(bits: int) -> float:
    number: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return number


def _row(elements: bytes) -> object:
    import numpy

    return numpy.frombuffer(elements, "u1")


VALUES: dict[str, Callable[[Iterator[Any]], object]] = {
    "True": lambda held: True,
    "int": next,
    "float": lambda held: _float(next(held)),
    "str": lambda held: next(held).decode("ascii"),
    "bytes": next,
    "array": lambda held: _row(next(held)),
}


def _shown(arguments: dict[str, object]) -> str:
    parts = (f"{_short(name)}: {_short(value)}" for name, value in arguments.items())
    return "{" + ", ".join(parts) + "}"


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
