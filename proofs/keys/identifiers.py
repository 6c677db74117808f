"""Identifiers of media items: another name or another adapter, another identifier.

An identifier is one whole text, put together from others. Its layout is in characters; what a text
that is formatted into another holds is kept beside it.
"""

import itertools
import re
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import z3

from cacheproof.proofs.keys import key_modules, paths
from cacheproof.proofs.keys.ambiguity import Layout
from cacheproof.proofs.keys.collisions import witness
from cacheproof.proofs.keys.paths import Unread
from cacheproof.proofs.keys.symbolic import (
    EMPTY,
    BytesRun,
    Decimal,
    Number,
    Piece,
    SymbolicText,
    content_of,
    size,
)
from cacheproof.proofs.keys.texts import run_text, text_of
from cacheproof.reference import media_identifier
from cacheproof.reference.media_identifier import ItemName
from cacheproof.reference.semantics.media import MediaSemantics

CHARACTERS = "characters"
ID = "id"
HEXADECIMAL = b"0123456789abcdef"


class Formatted:
    """What was formatted into texts: each leaves its number in them, between two marks."""

    def __init__(self) -> None:
        self._symbols: list[Characters | Length] = []

    def mark(self, symbol: "Characters | Length", form: str) -> str:
        if form:
            raise Unread(f"the format {form}")
        self._symbols.append(symbol)
        return f"\0{len(self._symbols) - 1}\0"

    def pieces(self, text: str) -> Iterator[Piece]:
        """The layout of a text."""
        parts = re.split("\0([0-9]+)\0", text)
        for place, part in enumerate(parts):
            if place % 2 == 0:
                yield part.encode("ascii")
                continue
            symbol = self._symbols[int(part)]
            yield from self._written(symbol, after=parts[place + 1])

    def _written(self, symbol: "Characters | Length", after: str) -> Iterator[Piece]:
        if isinstance(symbol, Characters):
            yield symbol.run
        elif after and not after[0].isdigit():
            yield Decimal(symbol.term)
        else:
            yield BytesRun(symbol.term, "digits that run on", size(CHARACTERS)(EMPTY), lossy=True)


class Characters(SymbolicText):
    """A text whose characters count. It is not empty."""

    def __init__(self, name: str, formatted: Formatted, alphabet: bytes = b"") -> None:
        super().__init__(content_of(name))
        self.count = size(CHARACTERS)(self.of)
        self.run = BytesRun(self.of, CHARACTERS, self.count, alphabet=alphabet)
        self._formatted = formatted
        paths.assume(self.count >= 1, self.of != EMPTY)

    def __format__(self, form: str) -> str:
        return self._formatted.mark(self, form)


class Length(Number):
    """A number that can be formatted."""

    def __init__(self, term: z3.ArithRef, formatted: Formatted) -> None:
        super().__init__(term)
        self._formatted = formatted

    def __format__(self, form: str) -> str:
        return self._formatted.mark(self, form)


def layouts(semantics: MediaSemantics, text: str | None = None) -> list[Layout]:
    """Identifiers of an item named by its digest or by a user, with an adapter or without. Names of
    users and of adapters are not empty."""
    text = text_of(media_identifier) if text is None else text
    return [
        Layout(*path.result, path.conditions)
        for is_users, adapts in itertools.product((False, True), repeat=2)
        for path in paths.paths(partial(_identifier, semantics, text, is_users, adapts))
    ]


def _identifier(
    semantics: MediaSemantics, text: str, is_users: bool, adapts: bool
) -> tuple[str, str, tuple[z3.ExprRef, ...], tuple[Piece, ...]]:
    formatted = Formatted()
    name = Characters("name", formatted, b"" if is_users else HEXADECIMAL)
    adapter = Characters("adapter", formatted)

    def length(one: Characters | Sized) -> Length:
        count = one.count if isinstance(one, Characters) else z3.IntVal(len(one))
        return Length(count, formatted)

    item = SimpleNamespace(text=name, is_users=is_users)
    names = run_text(text, key_modules.MEDIA_IDENTIFIER, len=length)
    made = names["identifier"](item, adapter if adapts else None, semantics)
    kind = f"{ID if is_users else 'digest'}{' with an adapter' if adapts else ''}"
    content = (*name.content, *(adapter.content if adapts else ()))
    return kind, kind, content, tuple(formatted.pieces(f"{made}"))


@dataclass(frozen=True)
class ItemPair:
    """Two items with one identifier, each as its name and adapter."""

    first: tuple[ItemName, str | None]
    second: tuple[ItemName, str | None]

    def __str__(self) -> str:
        return f"{_shown(*self.first)} as {_shown(*self.second)}"


def pairs(semantics: MediaSemantics, text: str | None = None, seed: int = 0) -> Iterator[ItemPair]:
    """Two items that have one identifier, for each two kinds of which there are such."""
    found = layouts(semantics, text)
    for one, other in itertools.combinations_with_replacement(found, 2):
        both = witness(one, other, seed)
        if both is not None:
            yield ItemPair(_item(one, both.first), _item(other, both.second))


def _item(layout: Layout, content: Sequence[bytes | int]) -> tuple[ItemName, str | None]:
    name, *adapter = (one.decode("ascii") for one in content if isinstance(one, bytes))
    return ItemName(name, layout.kind.startswith(ID)), adapter[0] if adapter else None


def _shown(name: ItemName, adapter: str | None) -> str:
    kind = ID if name.is_users else "digest"
    return f"{kind} {name.text!r}" + ("" if adapter is None else f" with adapter {adapter!r}")
