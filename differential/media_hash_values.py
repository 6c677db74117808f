"""Described values of a media hash, made in one word each."""

import random

from cacheproof.differential.media_hash import Description


def none() -> Description:
    return {"is": "none"}


def boolean(value: bool) -> Description:
    return {"is": "bool", "value": value}


def integer(value: int) -> Description:
    return {"is": "int", "value": str(value)}


def double(packed: bytes) -> Description:
    """The float whose bytes are `packed`, little end first."""
    return {"is": "float", "bits": packed[::-1].hex()}


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
) -> Description:
    return {
        "is": "image",
        "mode": mode,
        "size": list(size),
        "hex": data.hex(),
        "palette": None if palette is None else {"mode": "RGB", "hex": palette.hex()},
        "transparency": transparency,
        "image_id": image_id,
    }


def media(shown: Description, original: bytes, io_config: Description | None = None) -> Description:
    return {"is": "media", "media": shown, "original": original.hex(), "io_config": io_config}


def some_bytes(rng: random.Random, size: int) -> bytes:
    """Bytes of which many are small, zero or text."""
    return bytes(rng.choice((0, 1, 97, rng.randrange(256))) for _ in range(size))
