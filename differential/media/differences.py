"""In what two described calls differ: the kinds of their smallest differing parts.

A violation is named by them, so that one confusion of a hasher does not hide another. They are read
off the two values alone, whoever made them: a generator, a shrinker, a user.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from cacheproof.differential.media.descriptions import Description
from cacheproof.differential.media.meaning import content, spelling

Parts = frozenset[str]
ONE_ENCODING = "types over the same bytes"
ONE_IMAGE_ID = "image id over the same bytes"
NOTHING = "kinds of nothing"
ARGUMENTS = "names of arguments"
REFUSED_TYPE = "tensor of bfloat16"
NO_AXIS = "array without an axis"
_ASPECTS = {
    "image": {"mode": "mode", "size": "size", "hex": "pixels", "palette": "palette",
              "transparency": "transparency"},
    "array": {"dtype": "dtype", "shape": "shape", "hex": "elements"},
    "tensor": {"dtype": "dtype", "shape": "shape", "hex": "elements"},
}  # fmt: skip


def kind_of(first: Description, second: Description) -> str:
    """What tells two calls apart, in words; of two builds of one call, what it holds."""
    return " + ".join(sorted(parts_of(first, second)))


def refused_part(value: Description) -> str:
    """The part of a call that hashers of some releases refuse, in words; "" where it has none."""
    leaves = list(_all_leaves(value))
    if any(one["is"] == "tensor" and one["dtype"] == "bfloat16" for one in leaves):
        return REFUSED_TYPE
    if any(one["is"] in ("array", "tensor") and not one["shape"] for one in leaves):
        return NO_AXIS
    return ""


def parts(kind: str) -> Parts:
    """The parts of which a kind is made."""
    return frozenset(kind.split(" + "))


def parts_of(first: Description, second: Description) -> Parts:
    """The kinds of differing parts: of content, else of order, else of spelling."""
    return _contents(first, second) or _orders(first, second) or _builds(first, second)


def _contents(one: Description, two: Description) -> Parts:
    if content(one) == content(two):
        return frozenset()
    match one["is"], two["is"]:
        case "call", "call":
            return _named(dict(one["arguments"]), dict(two["arguments"]))
        case "map", "map":
            return _mapped(one["entries"], two["entries"])
        case ("list" | "tuple", "list" | "tuple"):
            if len(one["items"]) == len(two["items"]):
                return _union(map(_contents, one["items"], two["items"]))
        case "media", "media":
            return _fetched(one, two)
        case ("image", "image") | ("array", "array") | ("tensor", "tensor"):
            return _aspects(one, two)
    if _uuid(one) != _uuid(two):
        one, two = _bare(one), _bare(two)
    if _one_encoding(one, two):
        has_id = "image" in (one["is"], two["is"])
        return frozenset({ONE_IMAGE_ID if has_id else ONE_ENCODING})
    if _is_nothing(one) and _is_nothing(two):
        return frozenset({NOTHING})
    first, second = sorted((_class(one), _class(two)))
    if first == second == "list":
        return frozenset({"length of a list"})
    same = f"value of {_article(first)}"
    return frozenset({same if first == second else f"{first} against {second}"})


def _named(one: dict[str, Description], two: dict[str, Description]) -> Parts:
    of_values = _union(_contents(one[name], two[name]) for name in one.keys() & two.keys())
    return of_values | ({ARGUMENTS} if one.keys() != two.keys() else set())


def _mapped(one: list[Any], two: list[Any]) -> Parts:
    found: set[str] = set()
    ones, twos = ({content(key): (key, value) for key, value in side} for side in (one, two))
    for key in ones.keys() & twos.keys():
        found |= _contents(ones[key][1], twos[key][1])
    lone, others = (
        {_as_text(side[key][0]): side[key][1] for key in side.keys() - other.keys()}
        for side, other in ((ones, twos), (twos, ones))
    )
    for text in lone.keys() & others.keys():
        found |= {"type of a key"} | _contents(lone[text], others[text])
    return frozenset(found | ({"keys of a mapping"} if lone.keys() != others.keys() else set()))


def _fetched(one: Description, two: Description) -> Parts:
    of_media = _contents(one["media"], two["media"])
    if one["original"] != two["original"]:
        return of_media | {"fetched bytes"}
    settings = [side["io_config"] and spelling(side["io_config"]) for side in (one, two)]
    is_image = "image" in (one["media"]["is"], two["media"]["is"])
    what = {"picture from one file" if is_image else "frames from one file"}
    return frozenset(what | ({"decode settings"} if settings[0] != settings[1] else set()))


def _aspects(one: Description, two: Description) -> Parts:
    name = one["is"]
    if _uuid(one) != _uuid(two):
        return frozenset({"image id"})
    if name == "array" and not (isinstance(one["dtype"], str) and isinstance(two["dtype"], str)):
        return frozenset({"fields of an array"})
    aspects = _ASPECTS[name].items()
    return frozenset(
        f"{word} of {_article(name)}" for part, word in aspects if one[part] != two[part]
    )


def _orders(one: Description, two: Description) -> Parts:
    """Where two values of one content have their entries in another order."""
    match one["is"], two["is"]:
        case "call", "call":
            return _order_of(one["arguments"], two["arguments"], "order of arguments")
        case "map", "map":
            entries, others = (
                [[content(key), value] for key, value in side["entries"]] for side in (one, two)
            )
            return _order_of(entries, others, "order of a mapping")
        case ("list" | "tuple", "list" | "tuple"):
            return _union(map(_orders, one["items"], two["items"]))
        case "media", "media":
            return _orders(one["media"], two["media"])
        case _:
            return frozenset()


def _order_of(one: list[Any], two: list[Any], word: str) -> Parts:
    others = dict(two)
    within = _union(_orders(value, others[name]) for name, value in one)
    return within | ({word} if [name for name, _ in one] != [name for name, _ in two] else set())


def _builds(one: Description, two: Description) -> Parts:
    """How values of one content are built otherwise; of equal ones, what they are made of."""
    if one == two:
        return _union(map(_leaves, _children(one))) or frozenset({_class(one)})
    if one["is"] != two["is"]:
        return frozenset({" or ".join(sorted((one["is"], two["is"])))})
    differing = [
        pair for pair in zip(_children(one), _children(two), strict=True) if pair[0] != pair[1]
    ]
    if differing:
        return _union(_builds(*pair) for pair in differing)
    if one["is"] in ("array", "tensor"):
        return frozenset({f"layout of {_article(one['is'])}"})
    return frozenset({f"origin of {_article(one['is'])}"})


def _leaves(value: Description) -> Parts:
    return frozenset(map(_class, _all_leaves(value)))


def _all_leaves(value: Description) -> Iterator[Description]:
    """The values in a call that hold no others."""
    children = _children(value)
    for child in children:
        yield from _all_leaves(child)
    if not children:
        yield value


def _children(value: Description) -> list[Description]:
    match value["is"]:
        case "call":
            return [argument for _, argument in value["arguments"]]
        case "map":
            return [child for entry in value["entries"] for child in entry]
        case "list" | "tuple":
            return list(value["items"])
        case "media":
            return [value["media"]]
        case _:
            return []


def _class(value: Description) -> str:
    if value["is"] == "int" and not -(2**63) <= int(value["value"]) < 2**64:
        return "huge int"
    if value["is"] == "tuple":
        return "list"
    return "image id" if _uuid(value) else str(value["is"])


def _data(value: Description) -> bytes | None:
    """The bytes that numpy or the value itself would give a hash without a type."""
    match value["is"]:
        case "bool":
            return bytes((value["value"],))
        case "int":
            number = int(value["value"])
            return None if _class(value) == "huge int" else (number % 2**64).to_bytes(8, "little")
        case "float":
            return bytes.fromhex(value["bits"])[::-1]
        case "str":
            return str(value["text"]).encode()
        case "bytes":
            return bytes.fromhex(value["hex"])
        case _:
            identity = _uuid(value)
            return None if identity is None else bytes.fromhex(identity)


def _one_encoding(one: Description, two: Description) -> bool:
    data = _data(one)
    return data is not None and data == _data(two)


def _is_nothing(value: Description) -> bool:
    """Whether a value has no content but its kind: None, what is empty, lists of nothing else."""
    match value["is"]:
        case "none":
            return True
        case "list" | "tuple":
            return all(map(_is_nothing, value["items"]))
        case "map":
            return not value["entries"]
        case "str" | "bytes":
            return _data(value) == b""
        case _:
            return False


def _uuid(value: Description) -> str | None:
    identity = _bare(value).get("image_id") or {}
    return identity.get("uuid")  # type: ignore[no-any-return]


def _bare(value: Description) -> Description:
    """Media without the bytes that they came from."""
    return value["media"] if value["is"] == "media" else value  # type: ignore[no-any-return]


def _as_text(key: Description) -> str:
    """A mapping's key as `str` writes it."""
    match key["is"]:
        case "none":
            return "None"
        case "float":
            return str(*struct.unpack(">d", bytes.fromhex(key["bits"])))
        case "bytes":
            return str(bytes.fromhex(key["hex"]))
        case _:
            return str(key.get("value", key.get("text")))


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _union(found: Iterable[Parts]) -> Parts:
    return frozenset().union(*found)
