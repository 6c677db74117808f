"""Described values of a media hash: the language, and what is refused as no word of it.

A description is JSON data that reads well in a finding; `media_values` in the host builds it:

    {"is": "none"}                        {"is": "bool", "value": true}
    {"is": "int", "value": "-7"}          in decimal, of any size
    {"is": "float", "bits": "7ff8..."}    the 64 bits, the sign's first
    {"is": "str", "text": "a"}            {"is": "bytes", "hex": "00ff"}
    {"is": "list", "items": [...]}        or "tuple"
    {"is": "map", "entries": [[key, value], ...]}
    {"is": "array", "dtype": "<f4", "shape": [2, 1], "layout": "C", "hex": "..."}
        dtype: numpy's string, or [name, dtype] or [name, dtype, shape] per field; layout: C, F or
        strided; the elements stand in C order, whatever the layout in memory
    {"is": "tensor", ...}                 the same with a name such as "bfloat16" for the dtype
    {"is": "image", "mode": "P", "size": [width, height], "hex": "...",
     "palette": {"mode": "RGB", "hex": "..."}, "transparency": 0, "image_id": {"uuid": "..."}}
        the last three may be null; transparency may be hex; image_id may be {"text": "..."}
    {"is": "media", "media": ..., "original": "hex", "io_config": null}
    {"is": "call", "arguments": [[name, value], ...]}

A fetched video is a tuple of media (frames with the file's bytes) and a mapping of metadata. There
is one spelling of each dtype, so that two descriptions of one content are one.
"""

import math
import re
import struct
from collections.abc import Callable, Hashable
from typing import Any

Description = dict[str, Any]
Dtype = str | list[Any]
"""That of an array, or [name, dtype] or [name, dtype, shape] per field."""

DEPTH_MAX = 16
VALUES_MAX = 10_000
SIDE_MAX = 65_535
AXES_MAX = 8
ELEMENTS_MAX = 2**31
SHOWN_MAX = 60
LAYOUTS = ("C", "F", "strided")
MEDIA = ("image", "array", "tensor")
KEYS = ("none", "bool", "int", "float", "str", "bytes")
TENSOR_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
PIXEL_BYTES = {
    "L": 1, "P": 1, "LA": 2, "PA": 2, "I;16": 2, "I;16B": 2, "RGB": 3, "YCbCr": 3, "HSV": 3,
    "LAB": 3, "RGBA": 4, "RGBX": 4, "CMYK": 4, "I": 4, "F": 4,
}  # fmt: skip
PALETTE_BYTES = {"RGB": 3, "RGBA": 4}
RESERVED = "cls"
"""The one name that no keyword argument of a class's method can have."""
_INT = re.compile(r"0|-?[1-9][0-9]{0,999}", re.ASCII)
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_DTYPE = re.compile(
    r"\|(?:[biu](?P<one>1)|[SV](?P<wide>[1-9]\d{0,5}))"
    r"|[<>](?:[iu](?P<int>[248])|f(?P<float>[248])|c(?P<complex>8|16)|U(?P<text>[1-9]\d{0,5})"
    r"|[mM](?P<date>8)\[(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])",
    re.ASCII,
)


class Malformed(ValueError):
    """No description; the message says where in it, what was found, and what was expected."""


def call(**arguments: Description) -> Description:
    """A described call."""
    return {"is": "call", "arguments": [[name, value] for name, value in arguments.items()]}


def check_call(value: object) -> None:
    """Whether a call is described.

    Raises:
        Malformed: it is not, or it is nested deeper or holds more values than the limits.
    """
    _Checker().call(value, "$.value")


def element_bytes(dtype: Dtype) -> int:
    """Bytes of one element of an array of a well-formed dtype."""
    if isinstance(dtype, str):
        found = _DTYPE.fullmatch(dtype)
        assert found is not None
        size = next(int(digits) for digits in found.groups() if digits is not None)
        return size * 4 if found["text"] else size
    return sum(
        element_bytes(kind) * math.prod(shape[0] if shape else ()) for _, kind, *shape in dtype
    )


class _Checker:
    """Walks one description and counts its values. Methods raise Malformed."""

    def __init__(self) -> None:
        self._left = VALUES_MAX
        self._kinds: dict[str, tuple[tuple[str, ...], Callable[[Description, str, int], None]]] = {
            "none": ((), _nothing_more),
            "bool": (("value",), _bool),
            "int": (("value",), _int),
            "float": (("bits",), _float),
            "str": (("text",), _str),
            "bytes": (("hex",), _bytes),
            "list": (("items",), self._items),
            "tuple": (("items",), self._items),
            "map": (("entries",), self._entries),
            "array": (("dtype", "shape", "layout", "hex"), _array),
            "tensor": (("dtype", "shape", "layout", "hex"), _tensor),
            "image": (("mode", "size", "hex", "palette", "transparency", "image_id"), _image),
            "media": (("media", "original", "io_config"), self._media),
        }

    def call(self, value: object, path: str) -> None:
        fields = _fields(value, ("is", "arguments"), path)
        if fields["is"] != "call":
            raise _refused(f"{path}.is", fields["is"], '"call"')
        names = set()
        for place, (name, argument) in enumerate(_pairs(fields["arguments"], f"{path}.arguments")):
            where = f"{path}.arguments[{place}]"
            if not isinstance(name, str) or name == RESERVED or name in names:
                raise _refused(f"{where}[0]", name, f"a name of its own, other than {RESERVED!r}")
            names.add(name)
            self.value(argument, f"{where}[1]", DEPTH_MAX)

    def value(self, value: object, path: str, depth: int) -> None:
        self._left -= 1
        if depth == 0 or self._left < 0:
            raise Malformed(
                f"{path}: one value too many; expected at most {DEPTH_MAX} in each other and "
                f"{VALUES_MAX} in a call"
            )
        kind = value.get("is") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in self._kinds:
            found = value if kind is None else kind
            raise _refused(path, found, f'{{"is": ...}} of {", ".join(self._kinds)}')
        fields, check = self._kinds[kind]
        check(_fields(value, ("is", *fields), path), path, depth)

    def _items(self, value: Description, path: str, depth: int) -> None:
        for place, item in enumerate(_list(value["items"], f"{path}.items")):
            self.value(item, f"{path}.items[{place}]", depth - 1)

    def _entries(self, value: Description, path: str, depth: int) -> None:
        keys = set()
        for place, (key, entry) in enumerate(_pairs(value["entries"], f"{path}.entries")):
            where = f"{path}.entries[{place}]"
            self.value(key, f"{where}[0]", depth - 1)
            if key["is"] not in KEYS:
                raise _refused(f"{where}[0].is", key["is"], f"a key of {', '.join(KEYS)}")
            if (python := _as_python(key)) in keys:
                raise _refused(f"{where}[0]", key, "a key that no other equals in Python")
            keys.add(python)
            self.value(entry, f"{where}[1]", depth - 1)

    def _media(self, value: Description, path: str, depth: int) -> None:
        self.value(value["media"], f"{path}.media", depth - 1)
        if value["media"]["is"] not in MEDIA:
            raise _refused(f"{path}.media.is", value["media"]["is"], f"one of {', '.join(MEDIA)}")
        _hex(value["original"], f"{path}.original")
        if value["io_config"] is not None:
            self.value(value["io_config"], f"{path}.io_config", depth - 1)
            if value["io_config"]["is"] != "map":
                raise _refused(f"{path}.io_config", value["io_config"]["is"], 'null or a "map"')


def _nothing_more(value: Description, path: str, depth: int) -> None:
    return


def _bool(value: Description, path: str, depth: int) -> None:
    if not isinstance(value["value"], bool):
        raise _refused(f"{path}.value", value["value"], "true or false")


def _int(value: Description, path: str, depth: int) -> None:
    if not isinstance(value["value"], str) or not _INT.fullmatch(value["value"]):
        raise _refused(f"{path}.value", value["value"], "decimal digits in a string, at most 1000")


def _float(value: Description, path: str, depth: int) -> None:
    if len(_hex(value["bits"], f"{path}.bits")) != 8:
        raise _refused(f"{path}.bits", value["bits"], "16 hexadecimal digits")


def _str(value: Description, path: str, depth: int) -> None:
    if not isinstance(value["text"], str):
        raise _refused(f"{path}.text", value["text"], "a string")


def _bytes(value: Description, path: str, depth: int) -> None:
    _hex(value["hex"], f"{path}.hex")


def _array(value: Description, path: str, depth: int) -> None:
    dtype = value["dtype"]
    if isinstance(dtype, str):
        _dtype(dtype, f"{path}.dtype")
    else:
        _fields_of(dtype, f"{path}.dtype")
    _elements(value, path, element_bytes(dtype))
    if dtype == "|b1":
        _flags(value, path)


def _tensor(value: Description, path: str, depth: int) -> None:
    dtype = value["dtype"]
    if not isinstance(dtype, str) or dtype not in TENSOR_BYTES:
        raise _refused(f"{path}.dtype", dtype, f"one of {', '.join(TENSOR_BYTES)}")
    _elements(value, path, TENSOR_BYTES[dtype])
    if dtype == "bool":
        _flags(value, path)


def _image(value: Description, path: str, depth: int) -> None:
    mode, palette = value["mode"], value["palette"]
    if not isinstance(mode, str) or mode not in PIXEL_BYTES:
        raise _refused(f"{path}.mode", mode, f"one of {', '.join(PIXEL_BYTES)}")
    sides = _sizes(value["size"], f"{path}.size", 0)
    if len(sides) != 2:
        raise _refused(f"{path}.size", sides, "[width, height]")
    _as_long_as(value, path, math.prod(sides) * PIXEL_BYTES[mode])
    if palette is not None:
        _palette(palette, mode, f"{path}.palette")
    _transparency(value["transparency"], f"{path}.transparency")
    _image_id(value["image_id"], f"{path}.image_id")


def _palette(palette: object, mode: str, path: str) -> None:
    if mode not in ("P", "PA"):
        raise _refused(path, palette, "null unless the mode is P or PA")
    fields = _fields(palette, ("mode", "hex"), path)
    if not isinstance(fields["mode"], str) or fields["mode"] not in PALETTE_BYTES:
        raise _refused(f"{path}.mode", fields["mode"], f"one of {', '.join(PALETTE_BYTES)}")
    colours, rest = divmod(len(_hex(fields["hex"], f"{path}.hex")), PALETTE_BYTES[fields["mode"]])
    if rest or not 1 <= colours <= 256:
        raise _refused(f"{path}.hex", fields["hex"], "1 to 256 whole colours")


def _transparency(value: object, path: str) -> None:
    if isinstance(value, str):
        _hex(value, path)
    elif value is not None and not (type(value) is int and 0 <= value <= 255):
        raise _refused(path, value, "null, 0 to 255, or hexadecimal digits")


def _image_id(value: object, path: str) -> None:
    if value is None:
        return
    is_text = isinstance(value, dict) and "text" in value
    fields = _fields(value, ("text",) if is_text else ("uuid",), path)
    if is_text:
        _str(fields, path, 0)
    elif len(_hex(fields["uuid"], f"{path}.uuid")) != 16:
        raise _refused(f"{path}.uuid", fields["uuid"], "32 hexadecimal digits")


def _dtype(dtype: object, path: str) -> None:
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise _refused(path, dtype, 'a dtype as numpy spells it in `dtype.str`, such as "<f4"')


def _fields_of(dtype: object, path: str) -> None:
    names = set()
    for place, field in enumerate(_list(dtype, path)):
        where = f"{path}[{place}]"
        if not isinstance(field, list) or len(field) not in (2, 3):
            raise _refused(where, field, "[name, dtype] or [name, dtype, shape]")
        if not isinstance(field[0], str) or field[0] == "" or field[0] in names:
            raise _refused(f"{where}[0]", field[0], "a name of its own")
        names.add(field[0])
        _dtype(field[1], f"{where}[1]")
        if len(field) == 3 and not _sizes(field[2], f"{where}[2]", 1):
            raise _refused(f"{where}[2]", field[2], "at least one axis")
    if not names:
        raise _refused(path, dtype, "at least one field")


def _elements(value: Description, path: str, size: int) -> None:
    shape = _sizes(value["shape"], f"{path}.shape", 0)
    if value["layout"] not in LAYOUTS:
        raise _refused(f"{path}.layout", value["layout"], f"one of {', '.join(LAYOUTS)}")
    _as_long_as(value, path, math.prod(shape) * size)


def _as_long_as(value: Description, path: str, size: int) -> None:
    if len(_hex(value["hex"], f"{path}.hex")) != size:
        raise Malformed(f"{path}.hex: {len(value['hex']) // 2} bytes; expected {size} of such form")


def _flags(value: Description, path: str) -> None:
    if set(bytes.fromhex(value["hex"])) - {0, 1}:
        raise _refused(f"{path}.hex", value["hex"], "00 or 01 for each flag")


def _sizes(value: object, path: str, lowest: int) -> list[int]:
    sizes = _list(value, path)
    if len(sizes) > AXES_MAX or not all(
        type(size) is int and lowest <= size <= SIDE_MAX for size in sizes
    ):
        raise _refused(path, value, f"at most {AXES_MAX} sizes from {lowest} to {SIDE_MAX}")
    if math.prod(max(size, 1) for size in sizes) > ELEMENTS_MAX:
        raise _refused(path, value, f"sizes of which none but 0 multiply beyond {ELEMENTS_MAX}")
    return sizes


def _hex(value: object, path: str) -> bytes:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise _refused(path, value, "pairs of lower-case hexadecimal digits")
    return bytes.fromhex(value)


def _list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _refused(path, value, "a list")
    return value


def _pairs(value: object, path: str) -> list[list[Any]]:
    for place, pair in enumerate(_list(value, path)):
        if not isinstance(pair, list) or len(pair) != 2:
            raise _refused(f"{path}[{place}]", pair, "a pair")
    return _list(value, path)


def _fields(value: object, expected: tuple[str, ...], path: str) -> Description:
    if not isinstance(value, dict) or set(value) != set(expected):
        found = sorted(value) if isinstance(value, dict) else value
        raise _refused(path, found, f"the fields {', '.join(expected)}")
    return value


def _as_python(key: Description) -> Hashable:
    """What decides whether two keys of a mapping are one."""
    match key["is"]:
        case "int":
            return int(key["value"])
        case "float":
            (number,) = struct.unpack(">d", bytes.fromhex(key["bits"]))
            return number if number == number else key["bits"]
        case "str":
            return "str", key["text"]
        case "bytes":
            return "bytes", key["hex"]
        case _:
            return key.get("value")


def _refused(path: str, found: object, expected: str) -> Malformed:
    shown = repr(found)
    if len(shown) > SHOWN_MAX:
        shown = f"{shown[:SHOWN_MAX]}..."
    return Malformed(f"{path}: {shown}; expected {expected}")
