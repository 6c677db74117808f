"""What described values of a media hash mean: their content, and how it is spelled."""

import json
from collections.abc import Hashable

from cacheproof.differential.media.descriptions import Description

Meaning = tuple[Hashable, ...]


def content(value: Description) -> Meaning:
    """What a model could see of the value; equal contents are equal tuples, types included.

    What it counts in and leaves out is said in `reference/media_content`; it is worked out here
    a second time, from the description alone.
    """
    match value["is"]:
        case "list" | "tuple":
            return ("sequence", *map(content, value["items"]))
        case "map":
            return ("mapping", frozenset((content(k), content(v)) for k, v in value["entries"]))
        case "call":
            return ("call", frozenset((name, content(v)) for name, v in value["arguments"]))
        case "media":
            return content(value["media"])
        case "image":
            identity = _own_id(value)
            return _image(value) if identity is None else ("image id", identity)
        case _:
            return spelling(value)


def spelling(value: Description, *, ordered: bool = True, by_id: bool = False) -> Meaning:
    """How the value is put, but for layouts in memory and lists for tuples; without `ordered` also
    but for the order of keywords and mappings, and `by_id` but for images that carry an id."""
    if by_id and (identity := _own_id(value)) is not None:
        return ("image id", identity)
    match value["is"]:
        case "none":
            return ("none",)
        case "bool":
            return ("bool", bool(value["value"]))
        case "int":
            return ("int", int(value["value"]))
        case "float":
            return ("float", value["bits"])
        case "str":
            return ("str", value["text"])
        case "bytes":
            return ("bytes", value["hex"])
        case "list" | "tuple":
            return (
                "sequence",
                *(spelling(item, ordered=ordered, by_id=by_id) for item in value["items"]),
            )
        case "map":
            entries = [
                (
                    spelling(k, ordered=ordered, by_id=by_id),
                    spelling(v, ordered=ordered, by_id=by_id),
                )
                for k, v in value["entries"]
            ]
            return ("mapping", tuple(entries) if ordered else frozenset(entries))
        case "call":
            named = [
                (name, spelling(v, ordered=ordered, by_id=by_id)) for name, v in value["arguments"]
            ]
            return ("call", tuple(named) if ordered else frozenset(named))
        case "array" | "tensor":
            return (value["is"], _dtype(value), tuple(value["shape"]), value["hex"])
        case "image":
            identity = value["image_id"]
            return (*_image(value), json.dumps(identity, sort_keys=True))
        case "media":
            settings = value["io_config"]
            return (
                "media",
                spelling(value["media"], ordered=ordered, by_id=by_id),
                value["original"],
                None if settings is None else spelling(settings, ordered=ordered, by_id=by_id),
            )
        case kind:
            raise ValueError(f"value of kind {kind!r}; expected one of media_hash_description")


def same_form(first: Description, second: Description) -> bool:
    """False where calls differ in nothing but images' size or palette, or arrays' shape or dtype.

    Only then does the answer of `different_form_apart` say something.
    """
    if first["is"] != second["is"]:
        return True
    if first["is"] == "call":
        if len(first["arguments"]) != 1 or len(second["arguments"]) != 1:
            return True
        (name, one), (other_name, other) = first["arguments"][0], second["arguments"][0]
        return bool(name != other_name or same_form(one, other))
    if first["is"] == "image":
        alike = all(first[part] == second[part] for part in ("mode", "hex", "transparency"))
        return not (
            alike
            and first["image_id"] is second["image_id"] is None
            and (first["size"], first["palette"]) != (second["size"], second["palette"])
        )
    if first["is"] == "array":
        plain = isinstance(first["dtype"], str) and isinstance(second["dtype"], str)
        forms = [(value["dtype"], value["shape"]) for value in (first, second)]
        return not (plain and first["hex"] == second["hex"] and forms[0] != forms[1])
    return True


def _own_id(value: Description) -> str | None:
    """The id that an image carries, fetched or not."""
    if value["is"] == "media":
        return _own_id(value["media"])
    identity = value["image_id"] if value["is"] == "image" else None
    return None if identity is None else identity.get("uuid")


def _image(value: Description) -> Meaning:
    palette = value["palette"]
    shown = None if palette is None else (palette["mode"], palette["hex"])
    size = tuple(value["size"])
    transparency = value["transparency"]
    return ("image", value["mode"], size, value["hex"], shown, transparency)


def _dtype(value: Description) -> str:
    dtype = value["dtype"]
    return dtype if isinstance(dtype, str) else json.dumps(dtype)
