"""One key for all states that differ in nothing but names.

A state consists of parts, and a part is a tree of lists (see
`differential/targets/host/explorer.py`). The key of a state is of the least text that a renaming
gives it.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from operator import add

from cacheproof.differential.targets.host.explorer import SET, as_bytes
from cacheproof.differential.targets.host.protocol import Tree

DIGEST_BYTES = 16
DEPTH = 1
"""How far down the lists in a part are put together of what is known of their own parts: states
have most of these in common."""
Renaming = Mapping[str, str]


class StatePart:
    """A part of a state: its `texts` under the renamings, in their order, and the `names` of
    requests and identifiers that stand in it, also those of which an input has an entry."""

    __slots__ = ("names", "texts")

    def __init__(self, texts: Sequence[str], names: frozenset[str]) -> None:
        self.texts = texts
        self.names = names


class Symmetry:
    """The renamings under which states are identical. They form a group."""

    def __init__(self, renamings: Sequence[Renaming]) -> None:
        self._renamings = renamings
        self._known: dict[bytes, StatePart] = {}

    def key(self, one: StatePart, *others: StatePart) -> bytes:
        """Equal for two states if a renaming turns one into the other; and, unless digests
        collide, only then."""
        texts: Iterator[str] = iter(one.texts)
        for other in others:
            texts = map(add, texts, other.texts)
        return hashlib.blake2b(min(texts).encode(), digest_size=DIGEST_BYTES).digest()

    def part(self, tree: Tree) -> StatePart:
        """A part of a state that is known by its tree."""
        if type(tree) is list and tree and tree[0] != SET:
            return self.joined([self._known_part(held, DEPTH) for held in tree])
        return self._known_part(tree, 0)

    def _known_part(self, tree: Tree, depth: int) -> StatePart:
        data = as_bytes(tree)
        part = self._known.get(data)
        if part is None:
            if depth and type(tree) is list and tree and tree[0] != SET:
                part = self.joined([self._known_part(held, depth - 1) for held in tree])
            else:
                texts = [_text(tree, renaming) for renaming in self._renamings]
                part = StatePart(texts, frozenset(_names(tree)))
            self._known[data] = part
        return part

    def joined(self, parts: Sequence[StatePart]) -> StatePart:
        """The part of a state that is a list of these."""
        several = zip(*[part.texts for part in parts], strict=True)
        texts = [f"[{','.join(each)}]" for each in several]
        return StatePart(texts, frozenset().union(*[part.names for part in parts]))


def _names(tree: Tree) -> Iterator[str]:
    if type(tree) is list:
        for part in tree:
            yield from _names(part)
    elif type(tree) is str:
        yield _split(tree)[0]


def _text(tree: Tree, renaming: Renaming) -> str:
    if type(tree) is list:
        if tree and tree[0] == SET:
            return "{" + ",".join(sorted([_text(part, renaming) for part in tree[1:]])) + "}"
        return "[" + ",".join([_text(part, renaming) for part in tree]) + "]"
    if type(tree) is str:
        name, rest = _split(tree)
        return f'"{renaming.get(name, name)}{rest}"'
    return str(tree)


def _split(name: str) -> tuple[str, str]:
    """A name, and the number of a request's input where each has an entry of its own."""
    owner, mark, number = name.partition("#")
    return owner, mark + number
