"""Extra keys of a block: whether two requests whose extra keys are equal agree on what they are of.

`_ExtraKeys.of` is run on a request with or without an adapter, items, a salt and embeddings. What
it returns is a row of elements, in which nothing says how many items there are, so the two rows are
laid over each other element by element.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import z3

from cacheproof.proofs.keys import key_modules, paths
from cacheproof.proofs.keys.ambiguity import SYMBOL, Layout, constants, differing
from cacheproof.proofs.keys.hashed_values import LITERAL, VALUE, value_of
from cacheproof.proofs.keys.paths import Unread
from cacheproof.proofs.keys.symbolic import (
    CONTENT,
    EMPTY,
    BytesRun,
    Data,
    Laid,
    Many,
    Number,
    Piece,
    Repeated,
    Symbol,
    SymbolicText,
    Term,
    content_of,
    data,
    fresh,
    number,
)
from cacheproof.proofs.keys.texts import run_text, text_of
from cacheproof.reference import block_hash
from cacheproof.reference.semantics.block_keys import BlockKeySemantics

INT = z3.IntSort()
ELEMENT = z3.Function("element", INT, VALUE)
"""The element of a row of extra keys at a place."""
START, END = z3.Int("start of block"), z3.Int("end of block")
PARTS = ("adapter", "items", "salt", "embeds")
WITNESS = 4
"""Tokens of a block in which items are confused."""
TERMS = {"adapter": 2, "items": 2, "salt": 1, "embeds": 2}
"""Terms of each part's content."""
ALL_GIVEN = z3.Const("all given", CONTENT)


@dataclass(frozen=True)
class Hashing:
    """By which text keys are made, under which semantics, and whether a prompt may mix tokens and
    embeddings: where it may not, all of its rows are given."""

    semantics: BlockKeySemantics
    text: str = field(default_factory=partial(text_of, block_hash))
    mixes: bool = True


def layouts(hashing: Hashing, *, first: bool, parts_max: int = len(PARTS)) -> list[Layout]:
    """The extra keys of a request's first block, or of a later one, for each choice of at most
    `parts_max` of the `PARTS`. `kind` says what of them the extra keys tell: the salt in a first
    block only."""
    found = []
    for chosen in sorted(itertools.product((False, True), repeat=len(PARTS)), key=sum):
        if sum(chosen) > parts_max:
            continue
        has = dict(zip(PARTS, chosen, strict=True))
        for path in paths.paths(partial(_extra, hashing, has, first)):
            kind, content, pieces = path.result
            found.append(Layout(kind, kind, content, pieces, path.conditions))
    return found


def _extra(
    hashing: Hashing, has: dict[str, bool], first: bool
) -> tuple[str, tuple[Term, ...], tuple[Piece, ...]]:
    semantics = hashing.semantics
    start, end = Number(START), Number(END)
    paths.assume(START == 0 if first else START > 0, START < END)
    rows, mask = content_of("rows"), data("mask")
    if not hashing.mixes:
        paths.assume(mask.content[0] == ALL_GIVEN)
    digest = z3.Function("digest of rows", CONTENT, CONTENT)(rows)
    paths.assume(z3.Function("rows of digest", CONTENT, CONTENT)(digest) == rows)
    given = _Rows(rows)

    def sha256(hashed: object) -> SimpleNamespace:
        if hashed is not given.bytes:
            raise Unread("a digest of something else than all rows")
        return SimpleNamespace(digest=lambda: _data(digest))

    names = run_text(hashing.text, key_modules.BLOCK_HASH, hashlib=SimpleNamespace(sha256=sha256))
    adapter = SimpleNamespace(
        lora_name=SymbolicText(content_of("adapter")),
        lora_path=SymbolicText(content_of("path")),
        lora_int_id=Number(z3.Int(fresh("adapter"))),
    )
    salt = SymbolicText(content_of("salt"))
    paths.assume(salt.of != EMPTY)
    name, offset = SymbolicText(content_of("item")), Number(z3.Int(fresh("offset")))
    feature = SimpleNamespace(identifier=name, mm_position=SimpleNamespace(offset=offset))
    item = names["_item_key"](feature, start, semantics)
    items = Many(item, (name.of, offset.term - START), ("list",))
    paths.assume(items.count >= 1)
    request = SimpleNamespace(
        lora_request=adapter if has["adapter"] else None,
        mm_features=Symbol(),
        block_hashes=(),
        cache_salt=salt if has["salt"] else None,
        prompt_embeds=_Embeds(given, mask) if has["embeds"] else None,
    )
    keys = names["_ExtraKeys"](request, semantics)

    def of_items(*between: Number) -> Many[object] | tuple[()]:
        _of_block(slice(*between))
        return items if has["items"] else ()

    keys._of_items = of_items
    made = keys.of(start, end)
    content: dict[str, tuple[Term, ...]] = {
        "adapter": (adapter.lora_name.of, adapter.lora_path.of),
        "items": items.content,
        "salt": salt.content,
        "embeds": (rows, *mask.content),
    }
    told = [part for part in PARTS if has[part]]
    if has["salt"] and not first:
        told.remove("salt")
    return (
        " and ".join(told) or "nothing",
        tuple(term for part in told for term in content[part]),
        tuple(_pieces(made)),
    )


class _Embeds:
    """Embeddings of a prompt: their rows and which were given, of a block as a whole."""

    def __init__(self, rows: "_Rows", mask: Data) -> None:
        self.tensor = _Sliced(rows)
        self.given = _Sliced(mask)


class _Rows(Symbol):
    """The rows of a block; what matters of them is what they are end to end."""

    types = frozenset({"tuple"})

    def __init__(self, rows: Term) -> None:
        self.bytes = _data(rows)

    def joined(self) -> Data:
        return self.bytes


class _Sliced(Symbol):
    def __init__(self, part: Symbol) -> None:
        self._part = part

    def __getitem__(self, part: slice) -> Symbol:
        _of_block(part)
        return self._part


def _of_block(part: slice) -> None:
    """Only what is of the whole block has a meaning."""
    asked = number(part.start), number(part.stop), part.step
    if asked[2] is not None or not (z3.eq(asked[0], START) and z3.eq(asked[1], END)):
        raise Unread("a part of a block")


def _data(of: Term) -> Data:
    return Data(BytesRun(of, "bytes", z3.IntVal(0)))


def _pieces(made: Laid | tuple[object, ...] | None) -> Iterator[Piece]:
    for part in made.parts if isinstance(made, Laid) else made or ():
        if isinstance(part, Repeated):
            (one,) = part.pieces
            yield Repeated(part.loop, (value_of(one),))
        else:
            yield value_of(part)


Content = dict[str, tuple[Any, ...]]
"""What a block has beside its tokens, part by part: numbers, and contents by name. An item is its
name and offset."""


@dataclass(frozen=True)
class Agreement:
    """Two blocks that have equal extra keys without being equal, on a model of z3."""

    kinds: tuple[str, str]
    first: Content
    second: Content


def agreements(found: list[Layout], seed: int = 0) -> Iterator[Agreement]:
    """Two blocks that extra keys do not tell apart, for each two kinds that there are such of."""
    firsts, seconds = ([_Row(one.named(side)) for one in found] for side in ("first", "second"))
    literals = _distinct_literals([piece for row in firsts for piece in row.constraints])
    for place, one in enumerate(firsts):
        for other in seconds[place:]:
            model = paths.satisfiable([*_alike(one, other), *literals], seed)
            if model is not None:
                kinds = one.layout.kind, other.layout.kind
                yield Agreement(kinds, one.content(model), other.content(model))


def can_be_read(layout: Layout) -> bool:
    """Whether there is a row of extra keys that the layout is."""
    row = _Row(layout.named("first"))
    known = [row.holds, *_distinct_literals(row.constraints)]
    known += [row.repeated_at(place) for place in row.places if row.repeated]
    return paths.satisfiable(known) is not None


class _Row:
    """A row of extra keys read from its first element on."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.constraints: list[z3.BoolRef] = list(layout.conditions)
        self.places: list[z3.ArithRef] = []
        self.repeated: list[tuple[z3.ArithRef, Repeated]] = []
        self._known: dict[int, z3.BoolRef] = {}
        place: z3.ArithRef = z3.IntVal(0)
        for piece in layout.pieces:
            self.places.append(place)
            if isinstance(piece, Repeated):
                self.repeated.append((place, piece))
                place = place + piece.loop.count
            else:
                self.constraints.append(ELEMENT(place) == piece)
                place = place + 1
        self.end = place
        self.places.append(place)
        self.holds = z3.And(self.constraints)

    def repeated_at(self, place: z3.ArithRef) -> z3.BoolRef:
        """What is known of the element at a place, should it be one of those repeated."""
        number = place.get_id()
        if number not in self._known:
            self._known[number] = z3.And(*self._repeated_at(place))
        return self._known[number]

    def _repeated_at(self, place: z3.ArithRef) -> Iterator[z3.BoolRef]:
        for start, repeated in self.repeated:
            (element,) = repeated.pieces
            there = z3.substitute(element, *self._symbols_at(element, place))
            inside = z3.And(start <= place, place < start + repeated.loop.count)
            yield z3.Implies(inside, ELEMENT(place) == there)
            elements = z3.Function("elements of items", INT, INT, CONTENT)
            yield repeated.loop.elements == elements(start, repeated.loop.count)

    def _symbols_at(self, term: Term, place: z3.ArithRef) -> list[tuple[Term, Term]]:
        """The symbols of any element, as those of the element at a place."""
        return [
            (one, z3.Function(f"{one} at", INT, one.sort())(place))
            for one in constants(term)
            if SYMBOL.fullmatch(one.decl().name())
        ]

    def content(self, model: z3.ModelRef) -> Content:
        """What a model has for each part; for items, the first of them."""

        def value(term: Term) -> int | str:
            found = model.eval(term, model_completion=True)
            return found.as_long() if z3.is_int(found) else str(found)

        terms = iter(self.layout.content)
        found: Content = {}
        for part in PARTS:
            if part in self.layout.kind.split(" and "):
                found[part] = tuple(value(next(terms)) for _ in range(TERMS[part]))
        for place, repeated in self.repeated:
            found["items"] = tuple(
                value(z3.substitute(term, *self._symbols_at(term, place)))
                for term in repeated.loop.each
            )
        return found


def _alike(one: _Row, other: _Row) -> list[z3.BoolRef]:
    """Two rows of one length, element by element the same, of blocks that are not."""
    known = [one.holds, other.holds, one.end == other.end]
    for row in (one, other):
        if row.repeated:
            known += [row.repeated_at(place) for place in (*one.places, *other.places)]
    if one.layout.constructor == other.layout.constructor:
        known.append(differing(one.layout.content, other.layout.content))
    return known


def items_confused(
    found: list[Layout], seed: int = 0, tokens: int | None = None
) -> Agreement | None:
    """Two items with one key; that lists of them are told apart rests on there being none.

    Args:
        found: extra keys.
        seed: of z3.
        tokens: of the first block in which such are looked for; None: in blocks of any size,
            items that began before the block among them.

    Raises:
        Unread: keys of items are made in more than one way.
    """
    all_repeated = [one for layout in found for one in layout.loops]
    if len({str(one.pieces) for one in all_repeated}) > 1:
        raise Unread("keys of items that are made in more than one way")
    if not all_repeated:
        return None
    repeated = all_repeated[0]
    one = Layout("items", "", repeated.loop.each, repeated.pieces, ())
    first, second = _Row(one.named("first")), _Row(one.named("second"))
    contents = first.layout.content, second.layout.content
    known = [*first.constraints, *second.constraints, differing(*contents)]
    if tokens is not None:
        known += [START == 0, tokens == END, *(_in_block(offset) for _, offset in contents)]
    model = paths.satisfiable([*known, *_distinct_literals(known)], seed)
    return model and Agreement(("items", "items"), first.content(model), second.content(model))


def _in_block(offset: z3.ArithRef) -> z3.BoolRef:
    return z3.And(offset >= 0, offset < END)


def _distinct_literals(terms: list[Term]) -> list[z3.BoolRef]:
    literals = {
        one.decl().name(): one
        for term in terms
        for one in constants(term)
        if one.decl().name().startswith(LITERAL)
    }
    return [z3.Distinct(*literals.values(), EMPTY)] if literals else []
