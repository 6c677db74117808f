"""What may be tried to make a described call of the media hash smaller, and what makes it smaller.

Two calls are confused by a part of what they hold. So every edit is tried on all the calls of a
trace at once, which keeps them as like as they were, and on each alone; and a call of nothing but
the differing part is tried first. Edits need not give a description: the parser of traces refuses
what is none.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from cacheproof.differential.media.descriptions import (
    PIXEL_BYTES,
    TENSOR_BYTES,
    Description,
    call,
    element_bytes,
)

Edit = Callable[[Description], Description | None]
NAMES = ("x", "y", "z")
NODE = 10
"""Weight of a value beside that of what it holds."""
_PLAIN = {"array": "|u1", "tensor": "uint8", "image": "L"}
_BYTES_TRIED = 16
_ANCHORS = (0, 1, 2**63, 2**64)


@dataclass(frozen=True)
class NamedStep:
    """A step of a path: to the entry of this name or key, wherever it stands."""

    name: object


Path = tuple[str | int | NamedStep, ...]


def weight(value: Description) -> int:
    """What shrinking lowers."""
    match value["is"]:
        case "call":
            names = sum(len(name) + (name not in NAMES) for name, _ in value["arguments"])
            return names + sum(weight(argument) for _, argument in value["arguments"])
        case "list" | "tuple":
            return NODE + (value["is"] == "tuple") + sum(map(weight, value["items"]))
        case "map":
            return NODE + sum(weight(child) for entry in value["entries"] for child in entry)
        case "media":
            settings = 0 if value["io_config"] is None else weight(value["io_config"])
            return NODE + weight(value["media"]) + settings + _data_weight(value["original"])
        case "array" | "tensor":
            form = 2 * len(value["shape"]) + sum(value["shape"]) + 3 * (value["layout"] != "C")
            dtype = value["dtype"]
            kind = int(dtype != _PLAIN[value["is"]]) if isinstance(dtype, str) else 4 * len(dtype)
            return NODE + form + kind + _data_weight(value["hex"])
        case "image":
            extras = [value[name] is not None for name in ("palette", "transparency", "image_id")]
            palette = _data_weight(value["palette"]["hex"]) if value["palette"] else 0
            form = sum(value["size"]) + (value["mode"] != _PLAIN["image"]) + palette
            return NODE + form + 5 * sum(extras) + _data_weight(value["hex"])
        case "str":
            plain = value["text"] in NAMES
            return NODE + sum(3 - plain - (one == "a") for one in value["text"])
        case "int":
            return NODE + 2 * int(value["value"]).bit_length() + value["value"].startswith("-")
        case "float":
            return NODE + _data_weight(value["bits"])
        case "bytes":
            return NODE + _data_weight(value["hex"])
        case _:
            return NODE + bool(value.get("value"))


def smaller_calls(values: Sequence[Description]) -> Iterator[list[Description]]:
    """Calls to try in the place of these, one for each."""
    yield from _differing_parts(values)
    groups = [range(len(values)), *([place] for place in range(len(values)))]
    for group in groups if len(values) > 1 else groups[:1]:
        for edit in _edits(values[group[0]]):
            changed = list(values)
            for place in group:
                edited = edit(copy.deepcopy(values[place]))
                if edited is None:
                    break
                changed[place] = edited
            else:
                yield changed


def _differing_parts(values: Sequence[Description]) -> Iterator[list[Description]]:
    """Calls of the one part in which all differ, from the smallest such part outward."""
    found: list[list[Description]] = []
    parts = list(values)
    while (deeper := _one_differing(parts)) is not None:
        found.append([call(x=part) for part in deeper])
        parts = deeper
    yield from reversed(found)


def _one_differing(values: Sequence[Description]) -> list[Description] | None:
    """The children in which values of one kind differ, when it is one each and in one place."""
    columns = [_parts(value) for value in values]
    if len({value["is"] for value in values}) != 1 or len({len(parts) for parts in columns}) != 1:
        return None
    labels = [[label for label, _ in parts] for parts in columns]
    rows = [[part for _, part in row] for row in zip(*columns, strict=True)]
    differing = [row for row in rows if any(one != two for one, two in pairwise(row))]
    if len(differing) != 1 or any(one != two for one, two in pairwise(labels)):
        return None
    return differing[0]


def _parts(value: Description) -> list[tuple[object, Description]]:
    """A container's children, each with what must be equal where two are held side by side."""
    match value["is"]:
        case "call":
            return [(name, argument) for name, argument in value["arguments"]]
        case "map":
            return [(key, entry) for key, entry in value["entries"]]
        case "list" | "tuple":
            return list(enumerate(value["items"]))
        case _:
            return []


def _edits(value: Description) -> Iterator[Edit]:
    """Edits of a call, named after what this one holds."""
    for number, (name, _) in enumerate(value["arguments"]):
        yield _dropping(("arguments",), name)
        for other in NAMES[: number + 1]:
            yield _renaming(("arguments",), name, other)
        yield from _edits_at(value, ("arguments", NamedStep(name), 1))


def _edits_at(value: Description, path: Path) -> Iterator[Edit]:
    node = _at(value, path)
    if node["is"] != "none":
        yield _put(path, {"is": "none"})
    for place in _places(node):
        yield _hoisting(path, place)
        yield from _edits_at(value, (*path, *place))
    match node["is"]:
        case "map":
            for number, (key, _) in enumerate(node["entries"]):
                yield _dropping((*path, "entries"), key)
                for name in NAMES[: number + 1]:
                    yield _renaming((*path, "entries"), key, {"is": "str", "text": name})
        case "list" | "tuple":
            yield _put((*path, "is"), "list")
            for number in reversed(range(len(node["items"]))):
                yield _popping((*path, "items"), number)
        case "int":
            yield from _shifts(path, int(node["value"]))
        case "image":
            yield from _plainer_images(path, node)
        case "array" | "tensor":
            yield from _plainer_arrays(path, node)
        case "media":
            yield _put((*path, "io_config"), None)
    yield from _shorter_data(path, node)


def _places(node: Description) -> list[Path]:
    """Where values stand that could stand for the whole."""
    match node["is"]:
        case "map":
            numbers = [("entries", n, side) for n in range(len(node["entries"])) for side in (1, 0)]
            return [*(("entries", NamedStep(key), 1) for key, _ in node["entries"]), *numbers]
        case "list" | "tuple":
            return [("items", number) for number in range(len(node["items"]))]
        case "media":
            return [("media",), *([] if node["io_config"] is None else [("io_config",)])]
        case _:
            return []


def _shifts(path: Path, number: int) -> Iterator[Edit]:
    """The int and others beside it moved by one distance, which keeps them as far apart."""
    for anchor in _ANCHORS:
        for target in (anchor, -anchor):
            if abs(target) < abs(number):
                yield _on_node(path, partial(_shifted, by=target - number))


def _shifted(node: Description, by: int) -> Description | None:
    return {"is": "int", "value": str(int(node["value"]) + by)} if node["is"] == "int" else None


def _plainer_images(path: Path, node: Description) -> Iterator[Edit]:
    for extra in ("palette", "transparency", "image_id"):
        if node[extra] is not None:
            yield _put((*path, extra), None)
    width, height = node["size"]
    for size in ((1, 1), (2, 1), (width, 1), (1, height), (width, height)):
        for mode in (None, _PLAIN["image"]):
            yield _on_node(path, partial(_as_image, size=size, mode=mode))
    if node["palette"] is not None:
        for count in (1, 2, 4):
            yield _on_node(path, partial(_with_colours, count=count))


def _as_image(node: Description, size: tuple[int, int], mode: str | None) -> Description | None:
    if node["is"] != "image":
        return None
    mode = mode or node["mode"]
    data = _first(node["hex"], math.prod(size) * PIXEL_BYTES[mode])
    return {**node, "mode": mode, "size": list(size), "hex": data}


def _with_colours(node: Description, count: int) -> Description | None:
    palette = node.get("palette")
    if palette is None:
        return None
    size = len(palette["mode"]) * count
    return {**node, "palette": {**palette, "hex": _first(palette["hex"], size)}}


def _plainer_arrays(path: Path, node: Description) -> Iterator[Edit]:
    yield _put((*path, "layout"), "C")
    shape = node["shape"]
    thin = ([*shape[:axis], 1, *shape[axis + 1 :]] for axis in range(len(shape)))
    for size in ([], [1], [2], shape[1:], shape[:-1], *thin):
        yield _on_node(path, partial(_as_array, shape=size))
    if node["dtype"] != _PLAIN[node["is"]]:
        yield _on_node(path, partial(_as_array, shape=None))


def _as_array(node: Description, shape: list[int] | None) -> Description | None:
    """The data in another shape, or with None in a plain dtype, of as many of its bytes as that
    takes."""
    if node["is"] not in ("array", "tensor"):
        return None
    dtype = node["dtype"] if shape is not None else _PLAIN[node["is"]]
    shape = node["shape"] if shape is None else shape
    size = TENSOR_BYTES[dtype] if node["is"] == "tensor" else element_bytes(dtype)
    data = _first(node["hex"], math.prod(shape) * size)
    return {**node, "dtype": dtype, "shape": list(shape), "hex": data}


def _shorter_data(path: Path, node: Description) -> Iterator[Edit]:
    """Fewer and plainer bytes, in any type that has them: of two values with the same bytes, the
    same edit gives two with the same bytes."""
    data = _data(node)
    if data is None:
        return
    size = len(data)
    for start, end in (
        (0, 0),
        (0, 1),
        (0, size // 2),
        (size // 2, size),
        (0, size - 1),
        (1, size),
    ):
        yield _on_data(path, partial(_cut, start=start, end=end))
    for filler in (b"\0", b"a"):
        yield _on_data(path, partial(_filled, filler=filler, places=range(size)))
        for place in range(min(size, _BYTES_TRIED)):
            yield _on_data(path, partial(_filled, filler=filler, places=range(place, place + 1)))


def _cut(data: bytes, start: int, end: int) -> bytes:
    return data[start:end]


def _filled(data: bytes, filler: bytes, places: range) -> bytes:
    return data[: places.start] + filler * len(places) + data[places.stop :]


def _data(node: Description) -> bytes | None:
    match node["is"]:
        case "str":
            return str(node["text"]).encode()
        case "int" if -(2**63) <= int(node["value"]) < 2**64:
            return (int(node["value"]) % 2**64).to_bytes(8, "little")
        case "float":
            return bytes.fromhex(node["bits"])[::-1]
        case "bytes" | "array" | "tensor" | "image":
            return bytes.fromhex(node["hex"])
        case "media":
            return bytes.fromhex(node["original"])
        case _:
            return None


def _with_data(node: Description, data: bytes) -> Description | None:
    match node["is"]:
        case "str":
            try:
                return {**node, "text": data.decode()}
            except UnicodeDecodeError:
                return None
        case "int":
            is_negative = node["value"].startswith("-")
            return {**node, "value": str(int.from_bytes(data, "little", signed=is_negative))}
        case "float":
            return {**node, "bits": data[::-1].hex()}
        case "media":
            return {**node, "original": data.hex()} if data else None
        case _:
            return {**node, "hex": data.hex()}


# edits of one place


def _on_data(path: Path, change: Callable[[bytes], bytes]) -> Edit:
    def edit(node: Description) -> Description | None:
        data = _data(node)
        return None if data is None else _with_data(node, change(data))

    return _on_node(path, edit)


def _on_node(path: Path, change: Edit) -> Edit:
    def edit(value: Description) -> Description | None:
        try:
            node = _at(value, path)
            changed = change(node) if isinstance(node, dict) else None
        except (LookupError, TypeError):
            return None
        return None if changed is None else _replaced(value, path, changed)

    return edit


def _put(path: Path, content: object) -> Edit:
    def edit(value: Description) -> Description | None:
        try:
            return None if _at(value, path) == content else _replaced(value, path, content)
        except (LookupError, TypeError):
            return None

    return edit


def _hoisting(path: Path, place: Path) -> Edit:
    return _on_node(path, lambda node: _at(node, place))  # type: ignore[no-any-return]


def _dropping(path: Path, name: object) -> Edit:
    """The edit that drops the entry of that name or key, wherever it stands."""

    def edit(value: Description) -> Description | None:
        try:
            entries = _at(value, path)
            kept = [entry for entry in entries if entry[0] != name]
        except (LookupError, TypeError):
            return None
        return _replaced(value, path, kept) if len(kept) < len(entries) else None

    return edit


def _popping(path: Path, number: int) -> Edit:
    def edit(value: Description) -> Description | None:
        try:
            items = list(_at(value, path))
            items.pop(number)
        except (LookupError, TypeError):
            return None
        return _replaced(value, path, items)

    return edit


def _renaming(path: Path, name: object, other: object) -> Edit:
    """The edit that gives the entry of that name or key another one, wherever it stands."""
    return _put((*path, NamedStep(name), 0), other)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[_place(value, step) if isinstance(step, NamedStep) else step]
    return value


def _place(entries: Sequence[Sequence[object]], step: NamedStep) -> int:
    """The place of the entry with a name or a key. Raises LookupError when there is none."""
    for place, (name, _) in enumerate(entries):
        if name == step.name:
            return place
    raise LookupError(step.name)


def _replaced(value: Description, path: Path, content: object) -> Description:
    _at(value, path[:-1])[path[-1]] = content
    return value


def _first(data: str, size: int) -> str:
    """The first `size` bytes of the data, with zeros where it has fewer."""
    return data[: 2 * size].ljust(2 * size, "0")


def _data_weight(data: str) -> int:
    return sum(2 + (byte != 0) for byte in bytes.fromhex(data))
