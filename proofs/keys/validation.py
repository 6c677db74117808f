"""The reader is held against Python: what it makes of a text, on values that Python itself ran.

Of each value a path that the proof is about must admit it, and write what Python writes. A path
that admits no value of the scopes is about nothing that is known to happen.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from cacheproof.proofs.keys import block_extra, identifiers, scopes, vllm_media
from cacheproof.proofs.keys.ambiguity import Layout, LayoutReading, constants
from cacheproof.proofs.keys.block_extra import END, PARTS, START, Hashing
from cacheproof.proofs.keys.concrete import ConcreteValues, NotConcrete, admits, evaluated, written
from cacheproof.proofs.keys.media import Encoding, Texts
from cacheproof.proofs.keys.paths import satisfiable
from cacheproof.proofs.keys.running import (
    BlockTexts,
    MediaTexts,
    Requested,
    StreamOfRelease,
    identifier_by,
)
from cacheproof.proofs.keys.scopes import MadeValue
from cacheproof.proofs.keys.symbolic import Repeated
from cacheproof.reference.semantics.block_keys import BlockKeySemantics
from cacheproof.reference.semantics.media import MediaSemantics


@dataclass(frozen=True)
class Validated:
    """What came of it: how far it went, what speaks against the reader, and the paths that no
    value took; each in one line, or ""."""

    reach: str
    against: str
    vacuous: str


@dataclass(frozen=True)
class PythonRun:
    """One run of Python.

    Attributes:
        shown: what it ran on, in words.
        kind: the kind of paths that may admit it.
        written: what Python made of it.
        values: what the symbols of a layout stand for then.
    """

    shown: str
    kind: str
    written: object
    values: Callable[[Layout], ConcreteValues]


Writes = Callable[[Layout, ConcreteValues], object]
"""What a layout comes to on values."""


def validated(
    layouts: Sequence[Layout],
    runs: Iterable[PythonRun],
    writes: Writes,
    what: str,
    can_be_read: Callable[[Layout], bool] | None = None,
) -> Validated:
    """Hold layouts against runs. `can_be_read` says of a layout whether what the proof assumes of
    it can be met; by default, whether a stream can."""
    can_be_read = can_be_read or _can_be_read
    met: set[int] = set()
    count = 0
    of_kind: dict[str, list[int]] = {}
    for number, layout in enumerate(layouts):
        of_kind.setdefault(layout.kind, []).append(number)
    against = ""
    for run in runs:
        count += 1
        admitted = []
        for number in of_kind.get(run.kind, ()):
            values = run.values(layouts[number])
            if admits(layouts[number], values):
                admitted.append(number)
                try:
                    found = writes(layouts[number], values)
                except (LookupError, NotConcrete, OverflowError) as why:
                    # what cannot be written differs from what Python wrote, and is told as such
                    found = why
                if found != run.written and not against:
                    against = f"{run.shown}: {_short(run.written)}; the proof has {_short(found)}"
        met.update(admitted)
        if not admitted and not against:
            against = f"{run.shown}, which no path of the proof admits"
    unmet = [one.kind for number, one in enumerate(layouts) if number not in met]
    # a path whose assumptions no stream meets proves nothing either
    unmet += [one.kind for one in layouts if not can_be_read(one)]
    return Validated(
        f"{count:,} {what} on {len(layouts)} paths", against, ", ".join(dict.fromkeys(unmet))
    )


def _can_be_read(layout: Layout) -> bool:
    """Whether there is a stream that can be read as the layout is."""
    reading = LayoutReading(layout.named("first"), z3.Int("start"), by_digits=True)
    return satisfiable([reading.holds]) is not None


SHOWN = 120


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _name(term: z3.ExprRef) -> str:
    return str(term.decl().name())


# media


def of_media(texts: Texts, of_python: Texts | None = None) -> Validated:
    """MH-3: every kind of value, and calls; `of_python` is what Python runs, if not the same."""
    media = MediaTexts(of_python or texts)
    layouts = Encoding(texts).layouts()
    return validated(layouts, _media_runs(media), _bytes_of, "values and calls")


def _bytes_of(layout: Layout, values: ConcreteValues) -> bytes:
    return written(layout.pieces, values)


def _media_runs(media: MediaTexts) -> Iterator[PythonRun]:
    def stream(value: object) -> bytes:
        return media.stream(media.content(value))

    for made in scopes.media():
        if made.kind == "media with their bytes":
            continue  # they are their media
        yield PythonRun(str(made), made.kind, stream(made.value), _values_of(made, stream))
    for _, arguments in scopes.calls():
        tree = media.tree(arguments)
        entries = [(name, arguments[name]) for name in sorted(arguments)]
        yield PythonRun(str(arguments), "call", media.stream(tree), _entries(entries, stream))


def _values_of(
    made: MadeValue, stream: Callable[[object], bytes]
) -> Callable[[Layout], ConcreteValues]:
    value, identity = made.value, made.identity
    match made.kind:
        case "list" | "tuple":
            rounds = [(element,) for element in value]
            return lambda layout: _of_layout(layout, [len(value), None], rounds, stream)
        case "mapping":
            in_order = sorted(value.items(), key=lambda entry: stream(entry[0]))
            return _entries(in_order, stream)
        case "None" | "True" | "False":
            return lambda layout: ConcreteValues({})
        case "float":
            bits = int.from_bytes(identity[1], "big")
            return lambda layout: _of_layout(layout, [bits], [], stream)
        case "image" | "image with palette" | "image with a raw palette":
            _, mode, (width, height), pixels, _, *palette = identity
            transparency = value.info.get("transparency")
            of_image = [mode, width, height, pixels, transparency, *palette]
            return lambda layout: _of_layout(layout, of_image, [], stream)
        case "image with an id":
            raw = identity[1].to_bytes(16, "big")
            return lambda layout: _of_layout(layout, [raw], [], stream)
    if identity[0] in ("array", "tensor"):
        _, dtype, shape, raw = identity
        named = [list(one) for one in dtype] if isinstance(dtype, tuple) else dtype
        axes = [(axis,) for axis in shape]
        return lambda layout: _of_layout(layout, [named, len(shape), None, raw], axes, stream)
    return lambda layout: _of_layout(layout, [identity[1]], [], stream)


def _entries(
    entries: Sequence[tuple[object, object]], stream: Callable[[object], bytes]
) -> Callable[[Layout], ConcreteValues]:
    return lambda layout: _of_layout(layout, [len(entries), None], entries, stream)


def _of_layout(
    layout: Layout,
    content: Sequence[object],
    rounds: Sequence[Sequence[object]],
    stream: Callable[[Any], bytes],
) -> ConcreteValues:
    """The symbols of a layout, in the order of its content, and those of each round of its loop."""
    symbols = {_name(term): one for term, one in zip(layout.content, content, strict=True)}
    loops = {
        _name(one.loop.count): [
            {_name(term): value for term, value in zip(one.loop.each, each, strict=True)}
            for each in rounds
        ]
        for one in layout.loops
    }
    return ConcreteValues(symbols, rounds=loops, nested=stream)


def of_frames(semantics: MediaSemantics, text: str, of_python: str | None = None) -> Validated:
    """MH-3 of the values that a release's frames tell apart."""
    release = StreamOfRelease(of_python or text, semantics)
    layouts = vllm_media.ReleaseEncoding(semantics, text).frames()

    def runs() -> Iterator[PythonRun]:
        for made in scopes.framed():
            values = _framed(made, release.stream)
            # frames have one layout for both
            kind = "list" if made.kind == "tuple" else made.kind
            yield PythonRun(str(made), kind, release.stream(made.value), values)

    return validated(layouts, runs(), _bytes_of, "values")


def _framed(
    made: MadeValue, stream: Callable[[object], bytes]
) -> Callable[[Layout], ConcreteValues]:
    if made.kind == "mapping":
        return _entries(list(made.value.items()), stream)
    return _values_of(made, stream)


# identifiers


def of_identifiers(text: str, of_python: str | None = None) -> Validated:
    """ID-1: every kind of name, with an adapter and without."""
    ideal = MediaSemantics()
    identifier = identifier_by(of_python or text)

    def runs() -> Iterator[PythonRun]:
        for item, adapter in scopes.names():
            kind = identifiers.ID if item.is_users else "digest"
            kind += "" if adapter is None else " with an adapter"
            held = [item.text] if adapter is None else [item.text, adapter]

            def values(layout: Layout, held: Sequence[str] = tuple(held)) -> ConcreteValues:
                return _of_layout(layout, held, [], bytes)

            made = identifier(item, adapter, ideal)
            yield PythonRun(f"{item}, {adapter}", kind, made.encode("latin-1"), values)

    return validated(identifiers.layouts(ideal, text), runs(), _bytes_of, "items")


# extra keys


def of_extra(text: str, of_python: str | None = None) -> Validated:
    """BK-1: extra keys of blocks with every choice of what there may be beside tokens."""
    hashing = Hashing(BlockKeySemantics(), text)
    layouts, runs = [], []
    for first in (True, False):
        for layout in block_extra.layouts(hashing, first=first):
            layouts.append(_named(layout, first))
        runs += list(_extra_runs(BlockTexts(of_python or text, hashing.semantics), first))
    return validated(layouts, runs, _row_of, "blocks", block_extra.can_be_read)


def _named(layout: Layout, first: bool) -> Layout:
    kind = f"{layout.kind} of {'a first' if first else 'a later'} block"
    return Layout(kind, layout.constructor, layout.content, layout.pieces, layout.conditions)


def _row_of(layout: Layout, values: ConcreteValues) -> tuple[object, ...] | None:
    row: list[object] = []
    for piece in layout.pieces:
        if isinstance(piece, Repeated):
            (one,) = piece.pieces
            rounds = values.rounds[_name(piece.loop.count)]
            row += [evaluated(one, values.in_round(symbols)) for symbols in rounds]
        else:
            row.append(evaluated(piece, values))
    return tuple(row) or None


def _extra_runs(blocks: BlockTexts, first: bool) -> Iterator[PythonRun]:
    for requested in (*scopes.requests(), *scopes.laden()):
        start, end = (0, 2) if first else (2, 4)
        items = [
            (name, offset)
            for name, offset, length in requested.items
            if offset < end and offset + length > start
        ]
        has = {
            "adapter": requested.adapter is not None,
            "items": bool(items),
            "salt": requested.salt is not None and first,
            "embeds": requested.rows is not None,
        }
        told = " and ".join(part for part in PARTS if has[part]) or "nothing"
        kind = f"{told} of {'a first' if first else 'a later'} block"

        def values(
            layout: Layout,
            of: Requested = requested,
            items: Sequence[tuple[str, int]] = tuple(items),
            start: int = start,
        ) -> ConcreteValues:
            return _extra_values(layout, of, items, start)

        yield PythonRun(str(requested), kind, blocks.extra(requested, start, end), values)


def _extra_values(
    layout: Layout, of: Requested, items: Sequence[tuple[str, int]], start: int
) -> ConcreteValues:
    part = slice(start, start + 2)
    rows = tuple(row or bytes(2) for row in (of.rows or ())[part])
    given = bytes(row is not None for row in (of.rows or ())[part])
    parts: dict[str, Sequence[object]] = {
        "adapter": of.adapter or (),
        "items": (len(items), None),
        "salt": (of.salt,),
        "embeds": (rows, given),
    }
    told = [one for one in PARTS if one in layout.kind.partition(" of ")[0].split(" and ")]
    content = [value for one in told for value in parts[one]]
    symbols = {_name(term): one for term, one in zip(layout.content, content, strict=True)}
    loops = {
        _name(one.loop.count): [
            {_name(one.loop.each[0]): name, _offset(one.loop.each[1]): offset}
            for name, offset in items
        ]
        for one in layout.loops
    }
    symbols |= {_name(START): part.start, _name(END): part.stop}
    symbols |= _unsaid(layout, symbols, of)
    digest = hashlib.sha256(b"".join(rows)).digest()
    digests: dict[str, Callable[..., object]] = {
        "digest of rows": lambda _: digest,
        "rows of digest": {digest: rows}.__getitem__,
    }
    return ConcreteValues(symbols, digests, loops)


def _unsaid(layout: Layout, symbols: Mapping[str, object], of: Requested) -> dict[str, object]:
    """What is assumed of what extra keys do not tell: a later block's salt, rows of none."""
    names = {_name(one) for term in layout.conditions for one in constants(term)}
    kinds = {"salt": of.salt or "salt", "rows": (), "count": 1, "mask": b""}
    return {
        name: kinds[name.partition("!")[0]]
        for name in names - symbols.keys()
        if name.partition("!")[0] in kinds
    }


def _offset(term: z3.ExprRef) -> str:
    """The symbol of an item's offset from the start of its request."""
    return next(_name(one) for one in constants(term) if not z3.eq(one, START))
