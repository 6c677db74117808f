"""One key for all states that differ in nothing but names.

A state consists of parts, and a part is a tree of lists (see
`differential/targets/host/explorer.py`). The key of a state is of the least text that a renaming
gives it, among those renamings that put its names in order of their colours: of where they stand.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from cacheproof.differential.targets.host.explorer import SET
from cacheproof.differential.targets.host.protocol import Tree

DIGEST_BYTES = 16
FEW = 2
Renaming = Mapping[str, str]


class StatePart:
    """A part of a state, with its texts under the renamings that were asked for."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._texts: dict[int, str] = {}

    @cached_property
    def colours(self) -> dict[str, list[int]]:
        """For each name the places where it stands; they do not depend on what names are."""
        places: dict[str, list[int]] = {}
        _note_places(self._tree, 0, places)
        return {name: sorted(found) for name, found in places.items()}

    def __contains__(self, name: str) -> bool:
        """Whether a request or an identifier of that name stands in the part, or an input of it."""
        return any(_split(found)[0] == name for found in self.colours)

    def text(self, number: int, renaming: Renaming) -> str:
        """The part's text under the renaming of that number."""
        text = self._texts.get(number)
        if text is None:
            text = self._texts[number] = _text(self._tree, renaming)
        return text


class Symmetry:
    """The renamings under which states are identical. They form a group."""

    def __init__(self, renamings: Sequence[Renaming]) -> None:
        self._renamings = renamings
        self._old_names = [sorted(renaming, key=renaming.__getitem__) for renaming in renamings]

    def key(self, *parts: StatePart) -> bytes:
        """Equal for two states if a renaming turns one into the other; and, unless digests
        collide, only then."""
        text = min(
            "".join([part.text(number, self._renamings[number]) for part in parts])
            for number in self._candidates(parts)
        )
        return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()

    def _candidates(self, parts: Sequence[StatePart]) -> Iterable[int]:
        """Numbers of the renamings after which colours are in order; all where they are FEW, as
        colours cost as much as a text or two."""
        if len(self._renamings) <= FEW:
            return range(len(self._renamings))
        orders = [
            [[part.colours.get(name, []) for part in parts] for name in names]
            for names in self._old_names
        ]
        first = min(orders)
        return [number for number, order in enumerate(orders) if order == first]


def _note_places(tree: Tree, place: int, places: dict[str, list[int]]) -> None:
    if type(tree) is list:
        # The members of a set have one place: their order says nothing.
        in_order = not tree or tree[0] != SET
        for number, part in enumerate(tree):
            if type(part) is list or type(part) is str:
                _note_places(part, hash((place, len(tree), number if in_order else -1)), places)
    elif type(tree) is str:
        places.setdefault(tree, []).append(place)


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
