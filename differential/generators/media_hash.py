"""Seeded pairs of calls that a careless media hash would confuse, or would fail to join.

Each maker knows one way in which two values come close: the same bytes under another type, a
boundary moved between keys and values, another shape or dtype or size over the same bytes, media
that share their original bytes. Several pairs make a trace, whose calls are all held against each
other. `pair` and `media_hash_trace` are pure functions of (`GENERATOR`, seed).
"""

import random
import struct
from collections.abc import Callable
from typing import NamedTuple

from cacheproof.differential.generators.media_hash_pairs import (
    Two,
    file_or_frames,
    frames_of_video,
    image_forms,
    image_ids,
    image_modes,
    palettes,
    settings_of_image,
    transparencies,
)
from cacheproof.differential.media.descriptions import Description, call
from cacheproof.differential.media.values import (
    array,
    boolean,
    double,
    image,
    integer,
    mapping,
    none,
    raw,
    sequence,
    some_bytes,
    tensor,
    text,
)
from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.media_hash import (
    Hash,
    MediaAlgorithm,
    MediaHashConfig,
    MediaHashHeader,
)
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.versions import release_key

GENERATOR = "media-hash-1"
PAIRS = 6
_ALGORITHMS: tuple[MediaAlgorithm, ...] = ("blake3", "blake3", "blake3", "sha256", "sha512")
_FIRST_THAT_CHOOSES = "0.15.0"
Maker = Callable[[random.Random], Two]


class ClosePair(NamedTuple):
    """Two described calls and the name of the way in which they are close."""

    way: str
    first: Description
    second: Description


def pair(seed: int) -> ClosePair:
    """The pair of a seed. Half of the pairs stand in the calls that an engine makes."""
    rng = random.Random(f"{GENERATOR} {seed}")
    way = rng.choice(list(MAKERS))
    first, second = MAKERS[way](rng)
    if rng.random() < 0.5 and first["is"] != "call":
        first, second = _processor_argument(first), _processor_argument(second)
    if rng.random() < 0.5:
        first, second = second, first
    return ClosePair(way, _as_call(first), _as_call(second))


def media_hash_trace(seed: int, *, release: str | None = None) -> Trace:
    """The trace of a seed: `PAIRS` pairs, the two of each side by side, under an algorithm that the
    release offers; None: that any does."""
    chooses = release is None or release_key(release) >= release_key(_FIRST_THAT_CHOOSES)
    algorithm = _ALGORITHMS[seed % len(_ALGORITHMS) if chooses else 0]
    header = MediaHashHeader(
        schema=SCHEMA, config=MediaHashConfig(algorithm), seed=seed, generator=GENERATOR
    )
    pairs = [pair(seed * PAIRS + number) for number in range(PAIRS)]
    return Trace(header, tuple(Hash(value) for one in pairs for value in (one.first, one.second)))


def _as_call(value: Description) -> Description:
    return value if value["is"] == "call" else call(image=value)


def _processor_argument(value: Description) -> Description:
    shown = image("RGB", (1, 1), b"\1\2\3")
    return call(image=shown, mm_processor_kwargs=mapping(("x", value)), model_id=text("model"))


def _word(rng: random.Random, size: int | None = None) -> str:
    size = rng.randrange(1, 4) if size is None else size
    return "".join(rng.choice("ab.0") for _ in range(size))


def _value(rng: random.Random, depth: int = 2) -> Description:
    """A small value of any type."""
    simple: list[Callable[[], Description]] = [
        none,
        lambda: boolean(rng.random() < 0.5),
        lambda: integer(rng.randrange(-3, 300)),
        lambda: double(some_bytes(rng, 8)),
        lambda: text(_word(rng)),
        lambda: raw(some_bytes(rng, rng.randrange(4))),
        lambda: array(some_bytes(rng, 4)),
        lambda: tensor(some_bytes(rng, 4), "bfloat16", (2,)),
        lambda: image("L", (2, 1), some_bytes(rng, 2)),
    ]
    if depth and rng.random() < 0.3:
        items = [_value(rng, depth - 1) for _ in range(rng.randrange(3))]
        if rng.random() < 0.5:
            return sequence(*items)
        return mapping(*((f"{_word(rng)}{place}", item) for place, item in enumerate(items)))
    return rng.choice(simple)()


def _types_of_eight_bytes(rng: random.Random) -> Two:
    packed = bytes(rng.randrange(128) for _ in range(8))
    values = [
        integer(struct.unpack("<q", packed)[0]),
        double(packed),
        raw(packed),
        text(packed.decode()),
        array(packed),
        array(packed, "<i8", ()),
    ]
    first, second = rng.sample(values, 2)
    return first, second


def _types_of_one_byte(rng: random.Random) -> Two:
    flag = rng.random() < 0.5
    byte = bytes((flag,))
    values = [
        boolean(flag),
        raw(byte),
        text(byte.decode()),
        integer(int(flag)),
        array(byte, "|b1", ()),
    ]
    first, second = rng.sample(values, 2)
    return first, second


def _wrapped_integers(rng: random.Random) -> Two:
    value = rng.randrange(2**63, 2**64)
    return integer(value), integer(value - 2**64)


def _huge_integers(rng: random.Random) -> Two:
    value = rng.choice((-1, 1)) * rng.randrange(2**64, 2**80)
    return integer(value), integer(value + rng.choice((0, 1)))


def _zeros(rng: random.Random) -> Two:
    values = [integer(0), double(bytes(8)), double(bytes(7) + b"\x80"), boolean(False)]
    first, second = rng.sample(values, 2)
    return first, second


def _moved_boundary(rng: random.Random) -> Two:
    joined = _word(rng, 4)
    cuts = rng.sample(range(1, 4), 2)
    one, two = (call(**{joined[:cut]: text(joined[cut:])}) for cut in cuts)
    return one, two


def _swallowed_argument(rng: random.Random) -> Two:
    name, value, later = _word(rng), _word(rng), _word(rng)
    return (
        call(a=text(value), **{f"b{name}": text(later)}),
        call(a=text(f"{value}b{name}{later}")),
    )


def _path_as_key(rng: random.Random) -> Two:
    name, value = _word(rng), _value(rng)
    return call(a=mapping((name, value))), call(**{f"a.{name}": value})


def _list_as_mapping(rng: random.Random) -> Two:
    items = [_value(rng, 1) for _ in range(rng.randrange(1, 4))]
    return sequence(*items), mapping(*((str(place), item) for place, item in enumerate(items)))


def _nothing(rng: random.Random) -> Two:
    values = [none(), sequence(), mapping(), text(""), raw(b""), array(b""), sequence(none())]
    first, second = (rng.choice(values) for _ in range(2))
    return call(a=first, b=integer(1)), rng.choice(
        (call(b=integer(1)), call(a=second, b=integer(1)))
    )


def _types_of_key(rng: random.Random) -> Two:
    key, name = rng.choice(
        ((integer(1), "1"), (none(), "None"), (boolean(True), "True"), (double(bytes(8)), "0.0"))
    )
    value = _value(rng, 1)
    return mapping((key, value)), mapping((name, value))


def _reshaped_array(rng: random.Random) -> Two:
    data = some_bytes(rng, 24)
    one, two = rng.sample([(6,), (2, 3), (3, 2), (1, 6), (6, 1), (2, 3, 1)], 2)
    return array(data, "<f4", one), array(data, "<f4", two)


def _retyped_array(rng: random.Random) -> Two:
    data = bytes(rng.randrange(1, 100) for _ in range(8))
    dtypes: list[tuple[object, tuple[int, ...]]] = [
        ("<f4", (2,)), (">f4", (2,)), ("<i4", (2,)), ("<u4", (2,)), ("<f8", (1,)), ("<i8", (1,)),
        ("<f2", (4,)), ("|u1", (8,)), ("|i1", (8,)), ("|S8", (1,)), ("|V8", (1,)), ("<c8", (1,)),
        ("<m8[s]", (1,)), ("<M8[s]", (1,)), ("<M8[ns]", (1,)),
    ]  # fmt: skip
    (one, shape), (two, other_shape) = rng.sample(dtypes, 2)
    return array(data, one, shape), array(data, two, other_shape)


def _fields_of_array(rng: random.Random) -> Two:
    data = bytes(rng.randrange(1, 100) for _ in range(8))
    shape = rng.choice(((1,), (1,), ()))
    dtypes: list[object] = [
        "|V8",
        [["a", "<f4"], ["b", "<f4"]],
        [["a", "<i4"], ["b", "<f4"]],
        [["b", "<f4"], ["a", "<f4"]],
        [["a", "<u8"]],
        [["a", "<i2", [2]], ["b", "<f4"]],
    ]
    one, two = rng.sample(dtypes, 2)
    return array(data, one, shape), array(data, two, shape)


def _array_scalars(rng: random.Random) -> Two:
    packed = struct.pack("<d", rng.randrange(9))
    values = [array(packed, "<f8", ()), array(packed, "<f8", (1,)), double(packed)]
    first, second = rng.sample(values, 2)
    return first, second


def _array_or_tensor(rng: random.Random) -> Two:
    data = some_bytes(rng, 8)
    values = [
        array(data, "<f4", (2,)),
        tensor(data, "float32", (2,)),
        tensor(data, "bfloat16", (4,)),
        tensor(data, "bfloat16", (2, 2)),
        tensor(data, "float16", (4,)),
        tensor(data, "int16", (4,)),
    ]
    first, second = rng.sample(values, 2)
    return first, second


def _layouts(rng: random.Random) -> Two:
    data, layouts = some_bytes(rng, 24), rng.sample(("C", "F", "strided"), 2)
    if rng.random() < 0.5:
        one, two = (tensor(data, rng.choice(("float32",)), (2, 3), each) for each in layouts)
    else:
        one, two = (array(data, "<f4", (2, 3), each) for each in layouts)
    return one, two


def _orders(rng: random.Random) -> Two:
    entries = [(f"{name}{_word(rng)}", _value(rng, 1)) for name in ("x", "y", "z")]
    shuffled = rng.sample(entries, 3)
    if rng.random() < 0.5:
        return mapping(*entries), mapping(*shuffled)
    return call(**dict(entries)), call(**dict(shuffled))


def _list_or_tuple(rng: random.Random) -> Two:
    items = [_value(rng, 1) for _ in range(rng.randrange(3))]
    return sequence(*items), sequence(*items, kind="tuple")


def _framed_as_argument(rng: random.Random) -> Two:
    """A call with an array, and one in which the array's own parts are the next argument, where
    each chunk has its length in front but a call does not say how many arguments it has."""
    key_size = 0x0302  # the tag of a mapping and its three entries, read as a length
    size = key_size + rng.randrange(32, 64)
    head = struct.pack("<Q", 3)[-1:]
    for name, entry in (
        (b"dtype", b"\3" + _framed(b"|u1")),
        (b"shape", b"\1" + struct.pack("<Q", 1) + b"\3" + _framed(struct.pack("<Q", size))),
        (b"data", b"\3" + struct.pack("<Q", size)),
    ):
        head += _framed(name) + entry
    filler = bytes((rng.randrange(97, 123),)) * (key_size - len(head))
    rest = bytes((rng.randrange(97, 123),)) * (size - len(filler) - 9)
    data = filler + b"\3" + struct.pack("<Q", len(rest)) + rest
    key = (head + filler).decode()
    return (
        {"is": "call", "arguments": [["", array(data)]]},
        {"is": "call", "arguments": [["", text("ndarray")], [key, raw(rest)]]},
    )


def _framed(chunk: bytes) -> bytes:
    return struct.pack("<Q", len(chunk)) + chunk


def _equal(rng: random.Random) -> Two:
    value = _value(rng)
    return value, value


def _any_two(rng: random.Random) -> Two:
    return _value(rng), _value(rng)


MAKERS: dict[str, Maker] = {
    name.removeprefix("_"): maker
    for name, maker in (
        (made.__name__, made)
        for made in (
            _types_of_eight_bytes, _types_of_one_byte, _wrapped_integers, _huge_integers, _zeros,
            _moved_boundary, _swallowed_argument, _path_as_key, _list_as_mapping, _nothing,
            _types_of_key, _reshaped_array, _retyped_array, _fields_of_array, _array_scalars,
            _array_or_tensor, _layouts, _orders, _list_or_tuple, _framed_as_argument,
            image_forms, image_modes, palettes, transparencies, image_ids, settings_of_image,
            frames_of_video, file_or_frames, _equal, _any_two,
        )
    )
}  # fmt: skip
"""Every way in which two values come close, by name."""
