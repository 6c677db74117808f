"""Described values of a media hash, made in one word each, and written down in these words."""

import itertools
import random
import struct
from collections.abc import Iterator
from keyword import iskeyword

from cacheproof.differential.media.descriptions import Description

LONG_RUN = 16


def none() -> Description:
    return {"is": "none"}


def boolean(value: bool) -> Description:
    return {"is": "bool", "value": value}


def integer(value: int) -> Description:
    return {"is": "int", "value": str(value)}


def double(packed: bytes) -> Description:
    """The float whose bytes are `packed`, little end first."""
    return {"is": "float", "bits": packed[::-1].hex()}


def real(value: float) -> Description:
    """The float that Python writes so; `double` makes the others."""
    return double(struct.pack("<d", value))


def text(value: str) -> Description:
    return {"is": "str", "text": value}


def raw(value: bytes) -> Description:
    return {"is": "bytes", "hex": value.hex()}


def sequence(*items: Description, kind: str = "list") -> Description:
    return {"is": kind, "items": list(items)}


def mapping(*entries: tuple[Description | str, Description]) -> Description:
    named = [[text(key) if isinstance(key, str) else key, value] for key, value in entries]
    return {"is": "map", "entries": named}


def array(
    data: bytes, dtype: object = "|u1", shape: tuple[int, ...] | None = None, layout: str = "C"
) -> Description:
    sizes = [len(data)] if shape is None else list(shape)
    return {"is": "array", "dtype": dtype, "shape": sizes, "layout": layout, "hex": data.hex()}


def tensor(data: bytes, dtype: str, shape: tuple[int, ...], layout: str = "C") -> Description:
    return {**array(data, dtype, shape, layout), "is": "tensor"}


def image(
    mode: str,
    size: tuple[int, int],
    data: bytes,
    palette: bytes | None = None,
    transparency: object = None,
    image_id: dict[str, str] | None = None,
    palette_mode: str = "RGB",
) -> Description:
    return {
        "is": "image",
        "mode": mode,
        "size": list(size),
        "hex": data.hex(),
        "palette": None if palette is None else {"mode": palette_mode, "hex": palette.hex()},
        "transparency": transparency,
        "image_id": image_id,
    }


def media(shown: Description, original: bytes, io_config: Description | None = None) -> Description:
    return {"is": "media", "media": shown, "original": original.hex(), "io_config": io_config}


def some_bytes(rng: random.Random, size: int) -> bytes:
    """Bytes of which many are small, zero or text."""
    return bytes(rng.choice((0, 1, 97, rng.randrange(256))) for _ in range(size))


def written(value: Description) -> str:
    """The Python that makes the value with the words of this module."""
    match value["is"]:
        case "call":
            return f"call({', '.join(_arguments(value['arguments']))})"
        case "none":
            return "none()"
        case "bool":
            return f"boolean({value['value']})"
        case "int":
            return f"integer({value['value']})"
        case "float":
            packed = bytes.fromhex(value["bits"])
            (number,) = struct.unpack(">d", packed)
            exact = struct.pack(">d", float(repr(number))) == packed and abs(number) < float("inf")
            return f"real({number!r})" if exact else f"double({packed[::-1]!r})"
        case "str":
            return f"text({spelled(value['text'])})"
        case "bytes":
            return f"raw({_data(value)})"
        case "list" | "tuple":
            kind = [] if value["is"] == "list" else ['kind="tuple"']
            return f"sequence({', '.join([*map(written, value['items']), *kind])})"
        case "map":
            entries = (f"({_key(key)}, {written(entry)})" for key, entry in value["entries"])
            return f"mapping({', '.join(entries)})"
        case "array" | "tensor":
            dtype = value["dtype"]
            parts = [_data(value), spelled(dtype) if isinstance(dtype, str) else repr(dtype)]
            parts.append(repr(tuple(value["shape"])))
            layout = [] if value["layout"] == "C" else [spelled(value["layout"])]
            return f"{value['is']}({', '.join([*parts, *layout])})"
        case "image":
            return _written_image(value)
        case "media":
            settings = value["io_config"]
            parts = [written(value["media"]), spelled(bytes.fromhex(value["original"]))]
            parts += [] if settings is None else [written(settings)]
            return f"media({', '.join(parts)})"
        case kind:
            raise ValueError(f"value of kind {kind!r}; expected one of media_hash_description")


def spelled(content: str | bytes) -> str:
    """A literal in double quotes where that is possible, with long runs of one element as products
    that add up."""
    pieces: list[str] = []
    start = end = 0  # of what is not written yet
    for _, run in itertools.groupby(content):
        length = len(list(run))
        if length >= LONG_RUN:
            pieces += [_quoted(content[start:end])] if start < end else []
            pieces.append(f"{_quoted(content[end : end + 1])} * {length}")
            start = end + length
        end += length
    if start < end or not pieces:
        pieces.append(_quoted(content[start:]))
    return " + ".join(pieces)


def _quoted(content: str | bytes) -> str:
    shown = repr(content)
    prefix, body = ("b", shown[1:]) if isinstance(content, bytes) else ("", shown)
    return f'{prefix}"{body[1:-1]}"' if '"' not in body and "\\'" not in body else shown


def _arguments(arguments: list[tuple[str, Description]]) -> Iterator[str]:
    if all(name.isidentifier() and not iskeyword(name) for name, _ in arguments):
        yield from (f"{name}={written(argument)}" for name, argument in arguments)
    else:
        entries = (f"{spelled(name)}: {written(argument)}" for name, argument in arguments)
        yield f"**{{{', '.join(entries)}}}"


def _key(key: Description) -> str:
    return spelled(key["text"]) if key["is"] == "str" else written(key)


def _data(value: Description) -> str:
    return spelled(bytes.fromhex(value["hex"]))


def _written_image(value: Description) -> str:
    parts = [spelled(value["mode"]), repr(tuple(value["size"])), _data(value)]
    if value["palette"] is not None:
        parts.append(f"palette={_data(value['palette'])}")
        if value["palette"]["mode"] != "RGB":
            parts.append(f"palette_mode={spelled(value['palette']['mode'])}")
    for name in ("transparency", "image_id"):
        if value[name] is not None:
            parts.append(f"{name}={value[name]!r}")
    return f"image({', '.join(parts)})"
