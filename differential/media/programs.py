"""Described values as expressions over numpy, torch, Pillow and vLLM, for a standalone test."""

from cacheproof.differential.media.descriptions import Description
from cacheproof.differential.media.values import spelled

IMPORTS = {
    "float": "import struct",
    "array": "import numpy as np",
    "tensor": "import torch",
    "image": "from PIL import Image",
    "uuid": "import uuid",
}
"""What an expression of that kind needs, but for vLLM's own class."""


def kinds_in(value: Description) -> set[str]:
    """The kinds of values within, and "uuid" where an image has one."""
    found = {value["is"]}
    if value["is"] == "image" and "uuid" in (value["image_id"] or {}):
        found.add("uuid")
    for child in value.values():
        found |= _kinds_in_any(child)
    return found


def _kinds_in_any(child: object) -> set[str]:
    if isinstance(child, dict):
        return kinds_in(child) if "is" in child else set()
    if isinstance(child, list):
        return set().union(*map(_kinds_in_any, child))
    return set()


def arguments(call: Description) -> str:
    """A call's keyword arguments as a dict."""
    entries = (f"{spelled(name)}: {expression(value)}" for name, value in call["arguments"])
    return f"{{{', '.join(entries)}}}"


def expression(value: Description) -> str:
    """The Python that makes the object. Images and media with their original bytes are made by the
    helpers `image` and `MediaWithBytes` of the test."""
    match value["is"]:
        case "none":
            return "None"
        case "bool":
            return repr(value["value"])
        case "int":
            return f'int("{value["value"]}")'
        case "float":
            return f'struct.unpack(">d", bytes.fromhex("{value["bits"]}"))[0]'
        case "str":
            return spelled(value["text"])
        case "list":
            return f"[{', '.join(map(expression, value['items']))}]"
        case "tuple":
            return f"({''.join(f'{expression(item)}, ' for item in value['items']).rstrip()})"
        case "map":
            entries = (f"{expression(key)}: {expression(entry)}" for key, entry in value["entries"])
            return f"{{{', '.join(entries)}}}"
        case "media":
            settings = value["io_config"]
            parts = [expression(value["media"]), spelled(bytes.fromhex(value["original"]))]
            parts += [] if settings is None else [expression(settings)]
            return f"MediaWithBytes({', '.join(parts)})"
        case "array":
            return _array(value)
        case "tensor":
            return _tensor(value)
        case "image":
            return _image(value)
        case _:
            return spelled(bytes.fromhex(value["hex"]))


def _array(value: Description) -> str:
    dtype = value["dtype"]
    fields = dtype if isinstance(dtype, str) else [(*f[:2], *map(tuple, f[2:])) for f in dtype]
    shape = tuple(value["shape"])
    made = f"np.frombuffer({_data(value)}, {fields!r}).reshape({shape})"
    if 0 in shape:
        return f"np.empty({shape}, {fields!r})"
    laid_out = {
        "F": f"np.asfortranarray({made})",
        "strided": f"np.repeat({made}, 2, axis=-1)[..., ::2]",
    }
    return laid_out.get(value["layout"], made) if shape else made


def _tensor(value: Description) -> str:
    shape, dtype = tuple(value["shape"]), f"torch.{value['dtype']}"
    if 0 in shape:
        return f"torch.empty({shape}, dtype={dtype})"
    made = f"torch.frombuffer(bytearray({_data(value)}), dtype={dtype}).reshape({shape})"
    axes = tuple(reversed(range(len(shape))))
    laid_out = {
        "F": f"{made}.permute({axes}).contiguous().permute({axes})",
        "strided": f"{made}.repeat_interleave(2, dim=-1)[..., ::2]",
    }
    return laid_out.get(value["layout"], made) if shape else made


def _image(value: Description) -> str:
    parts = [spelled(value["mode"]), repr(tuple(value["size"])), _data(value)]
    palette, shown, identity = value["palette"], value["transparency"], value["image_id"]
    if palette is not None:
        parts.append(f"palette=({_data(palette)}, {spelled(palette['mode'])})")
    if shown is not None:
        transparency = shown if isinstance(shown, int) else spelled(bytes.fromhex(shown))
        parts.append(f"transparency={transparency}")
    if identity is not None:
        is_uuid = "uuid" in identity
        name = f'uuid.UUID("{identity["uuid"]}")' if is_uuid else spelled(identity["text"])
        parts.append(f"image_id={name}")
    return f"image({', '.join(parts)})"


def _data(value: Description) -> str:
    return spelled(bytes.fromhex(value["hex"]))
