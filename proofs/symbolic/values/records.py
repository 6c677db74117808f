"""Records and joined sequences, and what Python says of symbolic values: truth and equality."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, iff, implies, negated
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.values import Leaf, MapOf, Value, is_ordered


@dataclass(frozen=True)
class Record:
    """A record of spec, or an object with attributes, whose fields are symbolic."""

    fields: Mapping[str, "Denoted"]

    def container(self, field: str) -> Value:
        """A field that is a container.

        Raises:
            NotTranslated: it is none.
        """
        found = self.fields[field]
        if not isinstance(found, Value):
            raise NotTranslated(f"{field} is no container")
        return found


@dataclass(frozen=True)
class Joined:
    """Sequences one after the other."""

    parts: tuple[Value, ...]


Denoted: TypeAlias = "Value | Record | Joined | z3.ExprRef | bool | int | str | None"
"""What a name or an expression of a predicate stands for."""


T = TypeVar("T")


def joined(one: Denoted, other: Denoted) -> Joined:
    """Two sequences, or several, one after the other."""
    return Joined((*_parts(one), *_parts(other)))


def unwrapped(value: T) -> T | z3.ExprRef:
    """The term of a scalar; anything else as it is."""
    return value.term if isinstance(value, Value) and isinstance(value.kind, Leaf) else value


def truth(value: Denoted) -> Formula:
    """What Python makes of a value where it needs a truth value."""
    if isinstance(value, Value):
        return negated(value.is_empty)
    if value is None or isinstance(value, str | int):
        return bool(value)
    if isinstance(value, z3.ArithRef):
        return value != 0
    if isinstance(value, z3.BoolRef):
        return value
    return bool(value)


def equal(left: Denoted, right: Denoted) -> Formula:
    """Whether two values are equal, as Python's == says."""
    left, right = unwrapped(left), unwrapped(right)
    if isinstance(left, Joined) or isinstance(right, Joined):
        return _equal_sequences(_parts(left), _parts(right))
    if isinstance(left, Record) and isinstance(right, Record):
        return conjunction(
            tuple(equal(left.fields[name], right.fields[name]) for name in left.fields)
        )
    if isinstance(left, Value) and isinstance(right, Value):
        return _equal_containers(left, right)
    if isinstance(left, bool) or isinstance(right, bool):
        return iff(left, right)
    return left == right


def _parts(value: Denoted) -> tuple[Value, ...]:
    """The sequences that follow each other in a value."""
    parts = value.parts if isinstance(value, Joined) else (value,)
    sequences = tuple(one for one in parts if isinstance(one, Value) and is_ordered(one.kind))
    if len(sequences) < len(parts):
        raise NotTranslated(f"what is joined to a sequence is {value}")
    return sequences


def _equal_sequences(left: Sequence[Value], right: Sequence[Value]) -> Formula:
    """Whether a sequence, in which nothing occurs twice, is several one after the other."""
    (whole, *others), parts = sorted((left, right), key=len)
    if others:
        raise NotTranslated("several sequences are compared with several")
    universe, leaf = whole.universe, whole.key

    def follows(number: int, one: z3.ExprRef, other: z3.ExprRef) -> Formula:
        """Behind the members of a part stand those of parts to come, and its own as they do."""
        part = parts[number]
        later = disjunction(after.has(other) for after in parts[number + 1 :])
        behind = conjunction((part.has(other), part.place(one) < part.place(other)))
        return implies(
            conjunction((part.has(one), disjunction((later, behind)))),
            whole.place(one) < whole.place(other),
        )

    same = universe.all(
        leaf, lambda one: iff(whole.has(one), disjunction(part.has(one) for part in parts))
    )

    def in_order(number: int) -> Formula:
        return universe.all(
            leaf, lambda one: universe.all(leaf, lambda other: follows(number, one, other))
        )

    return conjunction((same, *map(in_order, range(len(parts)))))


def _equal_containers(left: Value, right: Value) -> Formula:
    """Sets by their members, maps by keys and values and not by order, lists by how they came to
    be, which equal lists may differ in: it is enough to prove that nothing changed."""
    if not isinstance(left.kind, MapOf):
        return left.terms[0] == right.terms[0]
    return left.all(
        lambda key: conjunction(
            (
                left.has(key) == right.has(key),
                implies(left.has(key), equal(left.at(key), right.at(key))),
            )
        ),
    )
