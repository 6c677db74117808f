"""What a value of a media hash is: its type and everything in it that a model could see, as a tree.

Two values have one tree exactly when no processor can tell them apart by what they hold:

* bool, int, float, str and bytes are apart even where their bytes are equal; ints have any size;
  floats are their 64 bits;
* lists and tuples are one kind; the order of a mapping is none, its keys are values with types,
  of which no two have one content;
* an array is its dtype (byte order and fields included), shape and elements in C order, never its
  layout in memory; arrays of objects, and of dtypes that numpy does not have, are refused;
* an image is mode, size, pixels, palette and transparency. An EXIF ImageID that is a UUID stands
  for the image (whoever sets one vouches for it); any other ImageID is metadata, which no model
  sees;
* media with their original bytes are the media: the bytes say how they came, not what they are.

numpy, torch and Pillow are not imported: a value of theirs brings its library along.
"""

import json
import struct
import sys
import uuid
from collections.abc import Mapping
from typing import Any

from cacheproof.reference.media_stream import Node, encode

EXIF_IMAGE_ID = 0x800D
MEDIA_WRAPPER = "MediaWithBytes"


class Refused(TypeError):
    """A value that has no content of its own: the message names its type and what to give."""


def content(value: Any) -> Node:
    """The value's tree.

    Raises:
        Refused: an object; an array of objects or of a dtype that numpy does not have; a masked
            array; a sparse or quantized tensor; a mapping with two keys of one content.
    """
    match value:
        case None:
            return Node(ord("N"), b"")
        case bool():
            return Node(ord("B"), b"\1" if value else b"\0")
        case str():
            return _text(value)
        case bytes() | bytearray():
            return Node(ord("X"), bytes(value))
        case memoryview():
            return Node(ord("X"), value.tobytes())
        case list() | tuple():
            return Node(ord("l"), tuple(content(element) for element in value))
        case Mapping():
            return _mapping(value)
    if is_of(value, "numpy", "generic") or is_of(value, "numpy", "ndarray"):
        return _array(value)
    match value:
        case int():
            size = (value.bit_length() + 8) // 8
            return Node(ord("I"), value.to_bytes(size, "big", signed=True))
        case float():
            return Node(ord("D"), struct.pack(">d", value))
    if is_of(value, "torch", "Tensor"):
        return _tensor(value)
    if is_of(value, "PIL.Image", "Image"):
        return _image(value)
    if type(value).__name__ == MEDIA_WRAPPER:
        return content(value.media)
    raise Refused(
        f"{type(value).__name__}; expected None, bool, int, float, str, bytes, lists and mappings "
        f"of these, an array, a tensor, an image or {MEDIA_WRAPPER}"
    )


def call(arguments: Mapping[str, Any]) -> Node:
    """The tree of one call: its keyword arguments in the order of their names."""
    parts = ((_text(name), content(arguments[name])) for name in sorted(arguments))
    return Node(ord("c"), tuple(node for pair in parts for node in pair))


def is_of(value: Any, module: str, name: str) -> bool:
    """Whether `value` is an instance of a class whose library may not be there."""
    library = sys.modules.get(module)
    return library is not None and isinstance(value, getattr(library, name))


def is_numpys(dtype: Any) -> bool:
    """Whether numpy has the dtype, and those of its fields: of others it does not know the name."""
    if dtype.names:
        return all(is_numpys(dtype[name]) for name in dtype.names)
    return bool(dtype.base.isbuiltin != 2)


def image_id(image: Any) -> bytes | None:
    """The EXIF ImageID of a Pillow image when it is a UUID. Broken EXIF has none."""
    try:
        found = image.getexif().get(EXIF_IMAGE_ID)
    except Exception:  # what broken EXIF raises is Pillow's affair and changes with it
        return None
    return found.bytes if isinstance(found, uuid.UUID) else None


def _text(text: str) -> Node:
    return Node(ord("S"), text.encode("utf-8", "surrogatepass"))


def _shape(shape: Any) -> Node:
    return Node(ord("l"), tuple(content(int(size)) for size in shape))


def _mapping(mapping: Mapping[Any, Any]) -> Node:
    entries = {}
    for key, value in mapping.items():
        node = content(key)
        entries[encode(node)] = (node, content(value))
    if len(entries) != len(mapping):
        raise Refused("mapping with two keys of one content, such as NaN; expected one")
    ordered = (entries[key] for key in sorted(entries))
    return Node(ord("m"), tuple(node for entry in ordered for node in entry))


def _array(array: Any) -> Node:
    if array.dtype.hasobject:
        raise Refused(f"array of {array.dtype}; expected a dtype without objects")
    if is_of(array, "numpy.ma", "MaskedArray"):
        raise Refused("masked array; expected a plain one")
    if not is_numpys(array.dtype):
        raise Refused(f"array of {array.dtype}; expected a dtype that numpy itself has")
    dtype = json.dumps(array.dtype.descr if array.dtype.names else array.dtype.str)
    return Node(ord("a"), (_text(dtype), _shape(array.shape), Node(ord("X"), _elements(array))))


def _elements(array: Any) -> bytes | memoryview:
    """The elements in C order, without a copy where they lie in that order."""
    if array.nbytes == 0:
        return b""
    in_order = array if array.flags.c_contiguous else array.copy(order="C")
    view: memoryview = in_order.reshape(-1).view("u1").data
    return view


def _tensor(tensor: Any) -> Node:
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise Refused(f"tensor of layout {tensor.layout}; expected a dense one, not quantized")
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    data = dense.reshape(-1).view(torch.uint8).numpy().data if dense.numel() else b""
    name = str(tensor.dtype).removeprefix("torch.")
    return Node(ord("t"), (_text(name), _shape(tensor.shape), Node(ord("X"), data)))


def _image(image: Any) -> Node:
    identity = image_id(image)
    if identity is not None:
        return Node(ord("U"), identity)
    transparency = content(image.info.get("transparency"))
    palette = content(None)
    if image.palette is not None:
        mode = image.palette.rawmode or image.palette.mode
        palette = content([mode, bytes(image.palette.palette)])
    pixels = Node(ord("X"), image.tobytes())
    return Node(ord("p"), (_text(image.mode), _shape(image.size), pixels, palette, transparency))
