"""Described values of a media hash, what they mean, and the judge of their digests.

A description is JSON data that reads well in a finding; `targets/host/media_values` builds it:

    {"is": "none"}                        {"is": "bool", "value": true}
    {"is": "int", "value": "-7"}          in decimal, of any size
    {"is": "float", "bits": "7ff8..."}    the 64 bits, the sign's first
    {"is": "str", "text": "a"}            {"is": "bytes", "hex": "00ff"}
    {"is": "list", "items": [...]}        or "tuple"
    {"is": "map", "entries": [[key, value], ...]}
    {"is": "array", "dtype": "<f4", "shape": [2, 1], "layout": "C", "hex": "..."}
        dtype: numpy's string, or [name, dtype] per field; layout: C, F or strided; the elements
        stand in C order, whatever the layout in memory
    {"is": "tensor", ...}                 the same with a name such as "bfloat16" for the dtype
    {"is": "image", "mode": "P", "size": [width, height], "hex": "...",
     "palette": {"mode": "RGB", "hex": "..."}, "transparency": 0, "image_id": {"uuid": "..."}}
        the last three may be null; transparency may be hex; image_id may be {"text": "..."}
    {"is": "media", "media": ..., "original": "hex", "io_config": null}
    {"is": "call", "arguments": [[name, value], ...]}

A fetched video is a tuple of media (frames with the file's bytes) and a mapping of metadata.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from cacheproof.differential.judge import Violation
from cacheproof.differential.record import StepRecord
from cacheproof.spec.media_hash import COMPONENT, HashedPair
from cacheproof.spec.registry import contracts

Description = dict[str, Any]
Meaning = tuple[Any, ...]


def call(**arguments: Description) -> Description:
    """A described call."""
    return {"is": "call", "arguments": [[name, value] for name, value in arguments.items()]}


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
            identity = value["image_id"]
            if identity is not None and "uuid" in identity:
                return ("image id", identity["uuid"])
            return _image(value)
        case _:
            return spelling(value)


def spelling(value: Description, *, ordered: bool = True) -> Meaning:
    """How the value is put, but for layouts in memory and lists for tuples; without `ordered` also
    but for the order of keywords and mappings."""
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
            return ("sequence", *(spelling(item, ordered=ordered) for item in value["items"]))
        case "map":
            entries = [
                (spelling(k, ordered=ordered), spelling(v, ordered=ordered))
                for k, v in value["entries"]
            ]
            return ("mapping", tuple(entries) if ordered else frozenset(entries))
        case "call":
            named = [(name, spelling(v, ordered=ordered)) for name, v in value["arguments"]]
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
                spelling(value["media"], ordered=ordered),
                value["original"],
                None if settings is None else spelling(settings, ordered=ordered),
            )
        case kind:
            raise ValueError(f"value of kind {kind!r}; expected one that the module's text lists")


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


def pair_of(
    first: Description, second: Description, first_digest: str, second_digest: str
) -> HashedPair:
    """The record that the contracts look at."""
    same_spelling = spelling(first) == spelling(second)
    return HashedPair(
        same_content=content(first) == content(second),
        same_form=same_form(first, second),
        same_spelling=same_spelling,
        same_but_order=not same_spelling
        and spelling(first, ordered=False) == spelling(second, ordered=False),
        first_digest=first_digest,
        second_digest=second_digest,
    )


class MediaHashJudge:
    """Judges one trace: each digest beside those before it. `violations` holds the first violation
    of each contract; `calls_judged` counts digests. `release` narrows the contracts to those that
    it promises."""

    state = None
    stored: Mapping[str, int] = {}
    resident_sum = 0

    def __init__(self, release: str | None = None) -> None:
        self.violations: dict[str, Violation] = {}
        self.calls_judged = 0
        self._rules = list(contracts(COMPONENT, release))
        self._seen: list[tuple[int, Description, str]] = []

    def judge(self, number: int, event: Any, record: StepRecord) -> None:
        """Judge the outcome of one `hash` event, whose `value` is the described call.

        Exceptions and no-ops have no digest to judge.
        """
        outcome, value = record[0], event.value
        if outcome is None or "raises" in outcome:
            return
        self.calls_judged += 1
        if "unstable" in outcome:
            self._judge(number, number, pair_of(value, value, "one digest", "another"))
            return
        for earlier, seen, digest in self._seen:
            self._judge(number, earlier, pair_of(seen, value, digest, outcome["digest"]))
        self._seen.append((number, value, outcome["digest"]))

    def _judge(self, number: int, earlier: int, pair: HashedPair) -> None:
        for rule in self._rules:
            holds: Callable[[HashedPair], bool] = rule.predicate
            if rule.id not in self.violations and not holds(pair):
                beside = "hashed twice" if earlier == number else f"beside event {earlier + 1}"
                why = f"{beside}: {rule.explain(p=pair)}"
                self.violations[rule.id] = Violation(rule, number, "hash", "", "", why)


def _image(value: Description) -> Meaning:
    palette = value["palette"]
    shown = None if palette is None else (palette["mode"], palette["hex"])
    size = tuple(value["size"])
    transparency = value["transparency"]
    return ("image", value["mode"], size, value["hex"], shown, transparency)


def _dtype(value: Description) -> str:
    dtype = value["dtype"]
    return dtype if isinstance(dtype, str) else json.dumps(dtype)
