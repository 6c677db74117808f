"""Small scopes in which Python runs the texts on every content, and what tells two of them apart.

What a content is, is said here beside each value that is made, and not read off the value: None,
numbers, texts and bytes, arrays, tensors and images, and what is nested in lists and mappings.
"""

import itertools
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import PIL.Image
from numpy._core._rational_tests import rational  # type: ignore[import-not-found]

from cacheproof.proofs.keys.running import Requested, StandIn
from cacheproof.reference.media_content import EXIF_IMAGE_ID
from cacheproof.reference.media_hash import MediaWithBytes
from cacheproof.reference.media_identifier import ItemName

Identity = tuple[Any, ...]
SHOWN = 200
"""Characters of a value that are shown."""


@dataclass(frozen=True)
class MadeValue:
    """A value, its kind as `media_values` calls it, and what tells it from any other."""

    kind: str
    identity: Identity
    value: Any

    def __str__(self) -> str:
        return " ".join(repr(self.value)[:SHOWN].split())


INTS = (0, 1, -1, 127, 128, 255, 256, 257, -128, -129, 65, 2**31, 2**63, -(2**63), 2**64 + 1)
FLOATS = (0.0, -0.0, 1.0, 1.5, float("inf"), float("nan"), struct.unpack(">d", b"abcdefgh")[0])
TEXTS = (
    "",
    "a",
    "b",
    "A",
    "aa",
    "ab",
    "abc",
    "abd",
    "\ufeffa",
    "\ud800",
    "é",
    "e\u0301",
    "0",
    "\0",
)
DATA = (b"", b"\0", b"\1", b"a", b"b", b"ab", b"abc", bytes(8), b"N" + bytes(8), bytes(70_000))


def atoms() -> Iterator[MadeValue]:
    """Values without others in them."""
    yield MadeValue("None", ("none",), None)
    for truth in (False, True):
        yield MadeValue(str(truth), ("bool", truth), truth)
    for number in INTS:
        yield MadeValue("int", ("int", number), number)
    for real in FLOATS:
        yield MadeValue("float", ("float", struct.pack(">d", real)), real)
    for text in TEXTS:
        yield MadeValue("str", ("str", text), text)
    for raw in DATA:
        of = ("bytes", raw)
        yield from (
            MadeValue("bytes", of, raw),
            MadeValue("bytearray", of, bytearray(raw)),
            MadeValue("memoryview", of, memoryview(raw)),
        )
    words = b"ab" + b"N" + bytes(8) + b"N" + bytes(8)
    yield MadeValue("memoryview", ("bytes", words), memoryview(words).cast("H"))
    yield from _arrays()
    yield from _tensors()
    yield from _images()
    for media in ("a", b"a"):
        wrapped = MediaWithBytes(media, b"b")
        yield MadeValue("media with their bytes", (type(media).__name__, media), wrapped)


def _arrays() -> Iterator[MadeValue]:
    of: Identity
    for dtype in ("|u1", "|i1", "<u2", ">u2", "<f4"):
        width = np.dtype(dtype).itemsize
        for raw in (bytes(4), b"abcd", b"abce", b"acbd"):
            count = 4 // width
            for shape in ((count,), (1, count), (count, 1), (2, count // 2)):
                if np.prod(shape) == count:
                    array = np.frombuffer(raw, dtype).reshape(shape)
                    yield MadeValue("array", ("array", dtype, shape, raw), array)
    for shape in ((0,), (0, 2), (2, 0)):
        yield MadeValue("array", ("array", "|u1", shape, b""), np.zeros(shape, "u1"))
    for raw in (b"abcd", b"acbd", b"abce"):
        array = np.frombuffer(raw, "u1").reshape(2, 2)
        turned = bytes((raw[0], raw[2], raw[1], raw[3]))
        of = ("array", "|u1", (2, 2), turned)
        yield MadeValue("array that lies otherwise", of, array.T)
        backwards = ("array", "|u1", (4,), raw[::-1])
        yield MadeValue("array that lies otherwise", backwards, np.frombuffer(raw, "u1")[::-1])
    for names in (("x", "y"), ("y", "x")):
        fields = [(name, "|u1") for name in names]
        for raw in (b"ab", b"ba", b""):
            of = ("array", tuple(fields), (len(raw) // 2,), raw)
            yield MadeValue("array of fields", of, np.frombuffer(raw, fields))
    scalars = np.uint8(1), np.uint8(2), np.float64(1.5), np.float32(1.5), np.bool_(True)
    for scalar in (*scalars, np.void(b"")):
        of = ("array", scalar.dtype.str, (), scalar.tobytes())
        yield MadeValue("scalar", of, scalar)


def _tensors() -> Iterator[MadeValue]:
    for dtype in ("uint8", "int8", "float16", "int16"):
        for raw in (b"abcd", b"abce"):
            elements = np.frombuffer(raw, dtype)
            for shape in ((len(elements),), (1, len(elements))):
                of = ("tensor", dtype, shape, raw)
                yield MadeValue("tensor", of, StandIn(elements.reshape(shape), dtype))
    yield MadeValue("tensor", ("tensor", "uint8", (0,), b""), StandIn(np.zeros(0, "u1"), "uint8"))


def _images() -> Iterator[MadeValue]:
    for mode, width in (("L", 1), ("P", 1), ("RGB", 3)):
        for size in ((1, 2), (2, 1)):
            for raw in (b"ab", b"ba"):
                pixels = raw * width
                for transparency in (None, 0, 1, b"\0"):
                    made = PIL.Image.frombytes(mode, size, pixels)
                    if transparency is not None:
                        made.info["transparency"] = transparency
                    shown = (type(transparency).__name__, transparency)
                    of = ("image", mode, size, pixels, shown)
                    if mode != "P":
                        yield MadeValue("image", of, made)
                        continue
                    yield from _with_palettes(made, of)
    for number in (1, 2):
        made = PIL.Image.new("L", (1, 1))
        made.getexif()[EXIF_IMAGE_ID] = uuid.UUID(int=number)
        yield MadeValue("image with an id", ("image id", number), made)


def _with_palettes(image: PIL.Image.Image, of: Identity) -> Iterator[MadeValue]:
    for colours in (b"abc", b"abd"):
        for raw_mode in (None, "RGB", "BGR"):
            made = image.copy()
            made.palette = PIL.ImagePalette.ImagePalette("RGB", colours)
            made.palette.rawmode = raw_mode
            kind = "image with palette" if raw_mode is None else "image with a raw palette"
            yield MadeValue(kind, (*of, raw_mode or "RGB", colours), made)


FEW = 14
"""Values that are put into others, of `atoms`: some of each of the first kinds."""


@cache
def media() -> tuple[MadeValue, ...]:
    """Every value of the scope: each atom, and lists and mappings of up to two of a few of them,
    within each other."""
    alone = tuple(atoms())
    few = tuple(_few(alone))
    lists = [made for count in range(3) for made in _lists(few, count)]
    mappings = [*_mappings(few, 1), *_mappings(few[:6], 2), MadeValue("mapping", ("mapping",), {})]
    inner = (*lists[:8], *mappings[:4], *few[:3])
    deeper = [*_lists(inner, 1), *_lists(inner, 2), *_mappings(inner, 1, keys=few)]
    many = [
        MadeValue("list", ("sequence", *[("int", last)] * 70, ("int", last)), [last] * 71)
        for last in (1, 2)
    ]
    return (*alone, *lists, *mappings, *deeper, *many)


def _few(alone: Sequence[MadeValue]) -> Iterator[MadeValue]:
    wanted = (None, False, True, 0, 1, 7, 0.0, -0.0, "", "a", "b", b"", b"a", b"b")
    for value in wanted[:FEW]:
        for made in alone:
            same = type(made.value) is type(value) and repr(made.value) == repr(value)
            if same:
                yield made
                break


def _lists(of: Sequence[MadeValue], count: int) -> Iterator[MadeValue]:
    for parts in itertools.product(of, repeat=count):
        identity = ("sequence", *(part.identity for part in parts))
        elements = [part.value for part in parts]
        yield MadeValue("list", identity, elements)
        if count == 1:
            yield MadeValue("tuple", identity, tuple(elements))


def _mappings(
    of: Sequence[MadeValue], count: int, keys: Sequence[MadeValue] | None = None
) -> Iterator[MadeValue]:
    for names in itertools.combinations(keys or of, count):
        if len({one.value for one in names if _can_be_key(one)}) < count:
            continue
        for parts in itertools.product(of, repeat=count):
            entries = list(zip(names, parts, strict=True))
            held = frozenset((key.identity, part.identity) for key, part in entries)
            value = {key.value: part.value for key, part in entries}
            yield MadeValue("mapping", ("mapping", held), value)


def _can_be_key(made: MadeValue) -> bool:
    return not isinstance(made.value, list | dict | bytearray)


def refused() -> Iterator[object]:
    """Values that have no content of their own."""
    yield np.ma.MaskedArray(np.zeros(2, "u1"), [True, False])
    yield np.array([1], object)
    yield 1j
    yield {1}
    yield range(2)
    yield {float("nan"): 1, float("nan"): 2}
    yield np.zeros(2, rational)  # the one dtype beside numpy's own that comes with it
    yield np.zeros(2, [("x", rational)])
    quantized, sparse = (StandIn(np.zeros(2, "u1"), "uint8") for _ in range(2))
    quantized.is_quantized, sparse.layout = True, "sparse"
    yield from (quantized, sparse)


@cache
def framed() -> tuple[MadeValue, ...]:
    """None, texts, and what is nested of them in lists and mappings from texts."""
    texts = ("", "a", "b", "\0", "\1", "\0" * 8, "\1\0\0\0\0\0\0\0a", "\3")
    few = [MadeValue("None", ("none",), None)]
    few += [MadeValue("str", ("str", text), text) for text in texts]
    keys = [made for made in few if made.kind == "str"]
    lists = [made for count in range(3) for made in _lists(few, count)]
    empty = MadeValue("mapping", ("mapping",), {})
    mappings = [*_mappings(few, 1, keys), *_ordered(few[:4], keys[:4]), empty]
    inner = (*lists[:20], *mappings[:12], empty, *few[:4])
    deeper = [*_lists(inner, 1), *_lists(inner, 2), *_mappings(inner, 1, keys)]
    return (*few, *lists, *mappings, *deeper)


def _ordered(of: Sequence[MadeValue], keys: Sequence[MadeValue]) -> Iterator[MadeValue]:
    """Mappings of two entries: in frames their order tells them apart."""
    for names in itertools.permutations(keys, 2):
        for parts in itertools.product(of, repeat=2):
            entries = list(zip(names, parts, strict=True))
            held = tuple((key.identity, part.identity) for key, part in entries)
            yield MadeValue(
                "mapping",
                ("mapping in order", held),
                {key.value: part.value for key, part in entries},
            )


def calls() -> Iterator[tuple[Identity, dict[str, object]]]:
    """Keyword arguments: none, every value by one name, and a few by others and by two."""
    yield frozenset(), {}  # type: ignore[misc]
    for made in media():
        yield _called({"x": made})
    few = media()[:20]
    for name in ("", "a", "ab", "image"):
        for made in few:
            yield _called({name: made})
    for first, second in itertools.product(few[:8], repeat=2):
        yield _called({"image": first, "b": second})


def _called(arguments: dict[str, MadeValue]) -> tuple[Identity, dict[str, object]]:
    held = frozenset((name, made.identity) for name, made in arguments.items())
    return ("call", held), {name: made.value for name, made in arguments.items()}


# identifiers

LETTERS = "a1:"
Named = tuple[ItemName, str | None]


@cache
def names() -> tuple[Named, ...]:
    """Items by digest or a user's id, with an adapter or without: short texts of few letters."""

    def texts(letters: str, longest: int) -> list[str]:
        return [
            "".join(one)
            for length in range(1, longest + 1)
            for one in itertools.product(letters, repeat=length)
        ]

    adapters: list[str | None] = [None, "A", "abc", "abd", "x" * 256, "y" * 256, *texts(LETTERS, 2)]
    items = [ItemName(text) for text in ("abc", "abd", *texts(LETTERS[:2], 3))]
    items += [ItemName(text, is_users=True) for text in ("id:a", "a:id:a", *texts(LETTERS, 3))]
    return tuple(itertools.product(items, adapters))


# blocks

ITEMS: tuple[tuple[tuple[str, int, int], ...], ...] = (
    (),
    *(((name, offset, 1),) for name in "xy" for offset in range(4)),
    *((("x", offset, length),) for offset in range(3) for length in (2, 3) if offset + length < 5),
    (("x", 0, 1), ("y", 1, 1)),
    (("y", 0, 1), ("x", 1, 1)),
    (("x", 0, 1), ("x", 1, 1)),
    (("x", 0, 2), ("y", 2, 2)),
    (("x", 0, 1), ("y", 2, 1), ("x", 3, 1)),
    (("x", 0, 1), ("y", 1, 1), ("z", 2, 1)),
    (("x", 0, 1), ("y", 1, 1), ("w", 2, 1)),
)
ADAPTERS = (None, ("a", "a"), ("a", "b"), ("b", "a"), ("a:b", "c"), ("a", "b:c"))
SALTS = (None, "a", "b", "x", "cache_salt")
ROWS: tuple[tuple[bytes | None, ...] | None, ...] = (
    None,
    *(
        tuple(one)
        for one in (
            (b"\0\0", None, None, None),
            (None, b"\0\0", None, None),
            (b"\0\0", b"\0\0", None, None),
            (b"ab", b"ac", b"ad", b"ae"),
            (b"ab", b"ad", b"ac", b"ae"),
            (b"ab", b"ac", b"ad", b"af"),
            (b"bb", b"ac", b"ad", b"ae"),
        )
    ),
)
TOKENS = ((0, 0, 0, 0), (0, 0, 0, 1), (0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 1, 1), (2, 2, 2, 2))
SIZES = ((1, 0), (2, 0), (4, 0), (2, 1), (2, 2), (1, 1), (3, 0))
"""Tokens of a block, and ahead of it."""


@cache
def requests() -> tuple[Requested, ...]:
    """Requests of four tokens: every tokens, items, adapter, salt and embeddings by themselves and
    every two of these together."""
    axes: tuple[Sequence[Any], ...] = (TOKENS, ITEMS, ADAPTERS, SALTS, ROWS)
    plain = tuple(axis[0] for axis in axes)
    found = {plain: None}
    for one, other in itertools.combinations(range(len(axes)), 2):
        for first, second in itertools.product(axes[one], axes[other]):
            made = list(plain)
            made[one], made[other] = first, second
            found[tuple(made)] = None
    for tokens in itertools.product((0, 1), repeat=4):
        found[(tokens, *plain[1:])] = None
    return tuple(Requested(*one) for one in found)


def laden() -> Iterator[Requested]:
    """Requests with every choice of items, adapter, salt and embeddings together."""
    for chosen in itertools.product((False, True), repeat=4):
        items, adapter, salt, rows = chosen
        yield Requested(
            TOKENS[0],
            (("x", 1, 2),) if items else (),
            ("a", "b") if adapter else None,
            "s" if salt else None,
            ROWS[4] if rows else None,
        )
