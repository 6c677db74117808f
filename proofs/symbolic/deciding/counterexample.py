"""A counterexample in words: the state before a call, the inputs, and the call."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import z3

from cacheproof.proofs.symbolic.values.state import Snapshot, State
from cacheproof.proofs.symbolic.values.values import (
    BLOCK,
    GROUP,
    HASH,
    IDENTIFIER,
    INPUT,
    REQUEST,
    EventsOf,
    Leaf,
    ListOf,
    MapOf,
    SequenceOf,
    SetOf,
    Universe,
    Value,
    is_ordered,
)
from cacheproof.proofs.symbolic.values.words import Words
from cacheproof.proofs.witness.recorded import Found


def terms_of(at: Snapshot) -> list[z3.ExprRef]:
    """All that makes up the values of attributes at a moment."""
    state = State(at.attributes, at.cells, {})
    found: list[z3.ExprRef] = []
    for owner, name in at.attributes:
        value = state.attribute(owner, name)
        found += value.terms if isinstance(value, Value) else ()
        found += [value] if isinstance(value, z3.ExprRef) else []
    return found


_LETTERS: Mapping[Leaf, str] = {
    IDENTIFIER: "h", REQUEST: "r", BLOCK: "b", HASH: "h", GROUP: "g"
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """What a solver found: every value of a bounded universe."""

    universe: Universe
    words: Words
    model: z3.ModelRef

    def scalar(self, term: z3.ExprRef) -> Any:
        """A number, a truth value, or the name of an element."""
        value = self.model.eval(term, model_completion=True)
        if z3.is_int_value(value):
            return value.as_long()
        if z3.is_true(value) or z3.is_false(value):
            return z3.is_true(value)
        leaf = self.universe.leaf_of(value)
        assert leaf is not None
        if leaf not in (*_LETTERS, INPUT):
            return tuple(self.scalar(part) for part in self.universe.parts(value))
        number = [one.get_id() for one in self.universe.members(leaf)].index(value.get_id())
        return number if leaf == INPUT else f"{_LETTERS[leaf]}{number}"

    def value(self, value: Value | z3.ExprRef) -> Any:
        """A container as Python's, in order where it has one; a list has each member once."""
        if not isinstance(value, Value):
            return self.scalar(value)
        if isinstance(value.kind, Leaf):
            return self.scalar(value.term)
        if isinstance(value.kind, EventsOf):
            cleared, growth = value.terms
            keys = self.universe.members(value.kind.key)
            changes = {self.scalar(one): self.scalar(z3.Select(growth, one)) for one in keys}
            return {"cleared": self.scalar(cleared)} | {k: by for k, by in changes.items() if by}
        there = [one for one in self.universe.members(value.key) if self.scalar(value.has(one))]
        if is_ordered(value.kind):
            there.sort(key=lambda one: self.scalar(value.place(one)))
        if isinstance(value.kind, MapOf):
            kind = OrderedDict if value.kind.ordered else dict
            return kind((self.scalar(one), self.value(value.at(one))) for one in there)
        assert isinstance(value.kind, SetOf | ListOf | SequenceOf)
        members = [self.scalar(one) for one in there]
        return set(members) if isinstance(value.kind, SetOf) else members

    def requests(self) -> list[str]:
        return [self.scalar(one) for one in self.universe.members(REQUEST)]

    def inputs(self) -> dict[tuple[str, int], tuple[str, int, int]]:
        """(request, input) -> identifier, embeddings and end of every input."""
        words = self.words
        return {
            (self.scalar(r), self.scalar(i)): (
                self.scalar(words.item(r, i)),
                self.scalar(words.embeds(r, i)),
                self.scalar(words.end(r, i)),
            )
            for r in self.universe.members(REQUEST)
            for i in self.universe.members(INPUT)
            if self.scalar(words.has_input(r, i))
        }

    def sentence(self, state: State, call: str, given: Mapping[str, object]) -> str:
        """The state from which a path went to where a rule is broken, in one line."""
        # a loop begins anew from a state of its own: what was before says nothing of the break
        start = [one for one in state.snapshots if one.anew][-1]
        inputs = ", ".join(
            f"{r}.i{i} shows {h} of {embeds} up to token {end}"
            for (r, i), (h, embeds, end) in self.inputs().items()
        )
        objects = [
            f"{name}={_short(found)}"
            for (owner, name), found in self.attributes(start).items()
            if owner == "m" or found
        ]
        if given:
            arguments = ", ".join(
                f"{name}={_short(self.value(one))}"
                for name, one in given.items()
                if isinstance(one, Value | z3.ExprRef)
            )
            return f"{call} of {arguments} where {' '.join(objects)}"
        return f"{call} of {self._called_with()} where {inputs or 'no inputs'}; {' '.join(objects)}"

    def attributes(self, at: Snapshot) -> Found:
        """What every attribute is at a moment, by owner and name."""
        state = State(at.attributes, at.cells, {})
        return {
            (owner, name): self.value(state.attribute(owner, name))
            for owner, name in at.attributes
            if isinstance(state.attribute(owner, name), Value | z3.ExprRef)
        }

    def arguments(self) -> dict[str, Any]:
        """What the call is given, by the names of its parameters."""
        leaves = {"r": REQUEST, "i": INPUT}
        found = {}
        for declared in self.model.decls():
            word = declared.name().split("!")[0]
            if declared.arity() != 0:
                continue
            if word in ("capacity", "budget", "pending", "progress") or (
                word in leaves and self.universe.leaf_of(declared()) == leaves[word]
            ):
                found[word] = self.scalar(declared())
        return found

    def _called_with(self) -> str:
        given = self.arguments()
        shown = [
            f"i{one}" if name == "i" else one if name == "r" else f"{name}={one}"
            for name, one in given.items()
        ]
        return ", ".join(sorted(shown)) or "nothing"


def _short(found: object) -> str:
    if isinstance(found, list):
        return "[" + ", ".join(map(str, found)) + "]"
    if isinstance(found, dict):
        return "{" + ", ".join(f"{key}: {_short(one)}" for key, one in found.items()) + "}"
    if isinstance(found, set):
        return "{" + ", ".join(sorted(map(str, found))) + "}"
    return str(found)
