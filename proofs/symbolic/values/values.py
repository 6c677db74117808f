"""Symbolic values: what a method's variables hold when nothing is known of them but their type.

A container is a tuple of z3 arrays, one for which keys are there and one for each component of
what a key maps to. Sorts of keys are uninterpreted, so maps have any number of entries; or they
have just a few elements, so that a solver can write a counterexample down.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import z3

from cacheproof.proofs.logic import Formula, negated


class Type:
    """What a value is; a leaf by its name, or one of the containers below."""


@dataclass(frozen=True)
class Leaf(Type):
    """A scalar: an identifier, a request, the number of an input, or an int."""

    name: str


IDENTIFIER, REQUEST, INPUT, INT = map(Leaf, ("identifier", "request", "input", "int"))
BLOCK, HASH, GROUP, BOOL = map(Leaf, ("block", "hash", "group", "bool"))
DEBIT = Leaf("debit")
"""A pair of a request and an input of it."""
KEY = Leaf("key")
"""What a block is found by: a pair of a hash and a group."""
PARTS = {DEBIT: (REQUEST, INPUT), KEY: (HASH, GROUP)}
_MORE = {BLOCK: 1, GROUP: -1}
"""Elements beyond those of other sorts in a bounded universe: one block is the null block."""


@dataclass(frozen=True)
class SetOf(Type):
    element: Leaf


@dataclass(frozen=True)
class MapOf(Type):
    """A dict; `ordered` when its order of insertion matters."""

    key: Leaf
    value: Type
    ordered: bool = False


@dataclass(frozen=True)
class ListOf(Type):
    """A list of which only the members and whether two are equal are ever asked."""

    element: Leaf


@dataclass(frozen=True)
class SequenceOf(Type):
    """A list in which nothing occurs twice, in its order."""

    element: Leaf


@dataclass(frozen=True)
class EventsOf(Type):
    """A list of events, by what a replay of them does to counts of keys: whether it clears them,
    and by how much each grows after that."""

    key: Leaf


def is_ordered(kind: Type) -> bool:
    """Whether the members of a container have places."""
    return isinstance(kind, SequenceOf) or (isinstance(kind, MapOf) and kind.ordered)


class Universe:
    """The sorts of keys: unbounded when `elements` is None, else of `elements` elements, except
    those with a size in `sizes`."""

    _numbers = itertools.count()

    def __init__(
        self, elements: int | None = None, sizes: Mapping[Leaf, int] = MappingProxyType({})
    ) -> None:
        self.elements = elements
        self._sizes = sizes
        self._mark = next(self._numbers)
        self._members: dict[Leaf, list[z3.ExprRef]] = {}
        self._sorts: dict[Leaf, z3.SortRef] = {INT: z3.IntSort(), BOOL: z3.BoolSort()}
        self._leaves: dict[z3.SortRef, Leaf] = {self._sorts[INT]: INT}
        self._pairs: dict[Leaf, tuple[z3.FuncDeclRef, list[z3.FuncDeclRef]]] = {}
        self.log = z3.DeclareSort(f"log{self._mark}")
        self.names = itertools.count()
        self._depth = 0

    def members(self, leaf: Leaf) -> list[z3.ExprRef]:
        """All elements of a sort of a bounded universe; of numbers, those that count elements."""
        assert self.elements is not None
        if leaf == INT:
            return [z3.IntVal(number) for number in range(self.elements)]
        self.sort(leaf)
        return self._members[leaf]

    def sort(self, leaf: Leaf) -> z3.SortRef:
        if leaf not in self._sorts:
            self._sorts[leaf] = self._pair_sort(leaf) if leaf in PARTS else self._plain_sort(leaf)
            self._leaves[self._sorts[leaf]] = leaf
        return self._sorts[leaf]

    def _plain_sort(self, leaf: Leaf) -> z3.SortRef:
        name = f"{leaf.name}{self._mark}"
        if self.elements is None:
            return z3.DeclareSort(name)
        count = self._sizes.get(leaf, self.elements + _MORE.get(leaf, 0))
        names = [f"{leaf.name[0]}{self._mark}_{number}" for number in range(count)]
        sort, self._members[leaf] = z3.EnumSort(name, names)
        return sort

    def _pair_sort(self, leaf: Leaf) -> z3.SortRef:
        sorts = [self.sort(part) for part in PARTS[leaf]]
        sort, make, parts = z3.TupleSort(f"{leaf.name}{self._mark}", sorts)
        self._pairs[leaf] = make, parts
        if self.elements is not None:
            members = [self.members(part) for part in PARTS[leaf]]
            self._members[leaf] = [make(*both) for both in itertools.product(*members)]
        return sort

    def leaf_of(self, term: z3.ExprRef) -> Leaf | None:
        """What a term stands for; None for a truth value or an array."""
        return self._leaves.get(term.sort())

    def pair(self, one: z3.ExprRef, other: z3.ExprRef, leaf: Leaf = DEBIT) -> z3.ExprRef:
        self.sort(leaf)
        return self._pairs[leaf][0](one, other)

    def parts(self, pair: z3.ExprRef) -> tuple[z3.ExprRef, z3.ExprRef]:
        leaf = self.leaf_of(pair)
        assert leaf is not None
        first, second = self._pairs[leaf][1]
        return first(pair), second(pair)

    def constant(self, leaf: Leaf, name: str) -> z3.ExprRef:
        """A constant that nothing is known of."""
        return z3.Const(f"{name}!{next(self.names)}", self.sort(leaf))

    def all(self, leaf: Leaf, body: Callable[[z3.ExprRef], Formula]) -> Formula:
        """Whether it holds of every element of a sort."""
        element = z3.Const(f"{leaf.name}@{self._depth}", self.sort(leaf))
        self._depth += 1  # the same rule of the same terms is the same formula
        formula = body(element)
        self._depth -= 1
        return self.of_every(element, leaf, formula)

    def some(self, leaf: Leaf, body: Callable[[z3.ExprRef], Formula]) -> Formula:
        """Whether it holds of some element of a sort."""
        return negated(self.all(leaf, lambda element: negated(body(element))))

    def of_every(self, element: z3.ExprRef, leaf: Leaf, formula: Formula) -> Formula:
        """Whether a formula of this element holds of every one."""
        if isinstance(formula, bool):
            return formula
        if self.elements is None:
            return z3.ForAll([element], formula)
        return z3.And([z3.substitute(formula, (element, one)) for one in self.members(leaf)])

    def components(self, kind: Type) -> list[z3.SortRef]:
        """The sorts of the terms that make up a value."""
        match kind:
            case Leaf():
                return [self.sort(kind)]
            case SetOf(element):
                return [z3.ArraySort(self.sort(element), z3.BoolSort())]
            case ListOf(element):
                return [self.log, z3.ArraySort(self.sort(element), z3.BoolSort()), z3.IntSort()]
            case EventsOf(key):
                return [z3.BoolSort(), z3.ArraySort(self.sort(key), z3.IntSort())]
            case SequenceOf(element):
                of_member = self.sort(element)
                there, places = (z3.ArraySort(of_member, s) for s in (z3.BoolSort(), z3.IntSort()))
                return [there, places, z3.IntSort()]
            case MapOf(key, value, ordered):
                of_key = self.sort(key)
                inner = [z3.BoolSort(), *self.components(value)]
                order = [z3.ArraySort(of_key, z3.IntSort()), z3.IntSort()] if ordered else []
                return [*(z3.ArraySort(of_key, sort) for sort in inner), *order]
        raise TypeError(kind)

    def fresh(self, kind: Type, name: str) -> "Value":
        """A value that nothing is known of."""
        terms = [
            z3.Const(f"{name}.{number}!{next(self.names)}", sort)
            for number, sort in enumerate(self.components(kind))
        ]
        if isinstance(kind, SetOf | ListOf) and kind.element == INT and self.elements is not None:
            place = 0 if isinstance(kind, SetOf) else 1
            terms[place] = self._counting_only(terms[place])
        return Value(self, kind, tuple(terms))

    def _counting_only(self, numbers: z3.ExprRef) -> z3.ExprRef:
        """A set of numbers without those that are no members of a bounded universe."""
        number = z3.Int("number")
        inside = z3.And(number >= 0, number < self.elements)
        return z3.Lambda([number], z3.And(inside, z3.Select(numbers, number)))

    def named(self, value: "Value", before: "Value") -> tuple["Value", list[Formula]]:
        """A value by constants where it is not as `before`, and what these are. Quantifiers over
        constants have patterns, those over what was stored in them may not."""
        terms, facts = [], []
        for old, new in zip(before.terms, value.terms, strict=True):
            if new.eq(old) or z3.is_const(new):
                terms.append(new)
                continue
            name = z3.Const(f"now!{next(self.names)}", new.sort())
            terms.append(name)
            facts.append(name == new)
        return Value(self, value.kind, tuple(terms)), facts

    def empty(self, kind: Type) -> "Value":
        """An empty container."""
        match kind:
            case SetOf():
                (members,) = self.components(kind)
                return Value(self, kind, (z3.K(members.domain(), z3.BoolVal(False)),))
            case ListOf():
                log, members, _ = self.components(kind)
                none = z3.K(members.domain(), z3.BoolVal(False))
                return Value(self, kind, (z3.Const("nothing", log), none, z3.IntVal(0)))
            case EventsOf(key):
                unchanged = z3.K(self.sort(key), z3.IntVal(0))
                return Value(self, kind, (z3.BoolVal(False), unchanged))
            case SequenceOf():
                there, places, clock = self.fresh(kind, "empty").terms
                none = z3.K(self.sort(kind.element), z3.BoolVal(False))
                return Value(self, kind, (none, places, clock))
            case MapOf():
                fresh = self.fresh(kind, "empty")
                there = z3.K(self.sort(kind.key), z3.BoolVal(False))
                order = (*fresh.terms[-2:-1], z3.IntVal(0)) if kind.ordered else ()
                values = fresh.terms[1 : -2 if kind.ordered else None]
                return Value(self, kind, (there, *values, *order))
        raise TypeError(kind)


@dataclass(frozen=True)
class Value:
    """A value of some type, as the terms that make it up."""

    universe: Universe
    kind: Type
    terms: tuple[z3.ExprRef, ...]

    # sets, lists and maps

    def all(self, body: Callable[[z3.ExprRef], Formula]) -> Formula:
        """Whether it holds of every element that could be a key, or a member."""
        return self.universe.all(self.key, body)

    def some(self, body: Callable[[z3.ExprRef], Formula]) -> Formula:
        """Whether it holds of some element that could be a key, or a member."""
        return self.universe.some(self.key, body)

    def has(self, key: z3.ExprRef) -> z3.BoolRef:
        """Whether a key, or a member, is there."""
        return z3.Select(self._there, key)

    @property
    def _there(self) -> z3.ExprRef:
        return self.terms[1] if isinstance(self.kind, ListOf) else self.terms[0]

    @property
    def key(self) -> Leaf:
        """What keys, or members, are."""
        return self.kind.key if isinstance(self.kind, MapOf) else self.kind.element  # type: ignore[attr-defined, no-any-return]

    @property
    def is_empty(self) -> z3.BoolRef:
        return self._there == z3.K(self.universe.sort(self.key), z3.BoolVal(False))

    @property
    def keys(self) -> "Value":
        """The keys, or members, as a set."""
        return Value(self.universe, SetOf(self.key), (self._there,))

    def with_member(self, member: z3.ExprRef, there: bool) -> "Value":
        """A set with a member added, or taken out."""
        return Value(self.universe, self.kind, (z3.Store(self.terms[0], member, there),))

    # lists

    def appended(self, member: z3.ExprRef) -> "Value":
        if isinstance(self.kind, SequenceOf):
            there, places, clock = self.terms
            terms = z3.Store(there, member, True), z3.Store(places, member, clock), clock + 1
            return Value(self.universe, self.kind, terms)
        log, members, length = self.terms
        sort = self.universe.log
        append = z3.Function("append", sort, member.sort(), sort)
        terms = (append(log, member), z3.Store(members, member, True), length + 1)
        return Value(self.universe, self.kind, terms)

    # maps

    def at(self, key: z3.ExprRef) -> "Value":
        """What a key maps to, where it is there."""
        assert isinstance(self.kind, MapOf)
        stop = -2 if self.kind.ordered else None
        inner = tuple(z3.Select(term, key) for term in self.terms[1:stop])
        return Value(self.universe, self.kind.value, inner)

    def put(self, key: z3.ExprRef, value: "Value") -> "Value":
        """The map with a key set; one that is new comes last in the order."""
        assert isinstance(self.kind, MapOf)
        there = z3.Store(self.terms[0], key, True)
        count = len(value.terms)
        inner = tuple(
            z3.Store(old, key, new)
            for old, new in zip(self.terms[1 : 1 + count], value.terms, strict=True)
        )
        if not self.kind.ordered:
            return Value(self.universe, self.kind, (there, *inner))
        since, clock = self.terms[-2:]
        place = z3.If(self.has(key), z3.Select(since, key), clock)
        return Value(
            self.universe, self.kind, (there, *inner, z3.Store(since, key, place), clock + 1)
        )

    def without(self, key: z3.ExprRef) -> "Value":
        return Value(
            self.universe, self.kind, (z3.Store(self.terms[0], key, False), *self.terms[1:])
        )

    def place(self, key: z3.ExprRef) -> z3.ArithRef:
        """Where a key of an ordered map, or a member of a sequence, stands: lower is earlier."""
        return z3.Select(self.terms[-2], key)

    def moved(self, key: z3.ExprRef, place: z3.ArithRef) -> "Value":
        """An ordered map with a key at another place."""
        places = z3.Store(self.terms[-2], key, place)
        return Value(self.universe, self.kind, (*self.terms[:-2], places, self.clock))

    def filtered(self, there: z3.ExprRef) -> "Value":
        """The members of an ordered container that are in a set, as a sequence."""
        return Value(self.universe, SequenceOf(self.key), (there, *self.terms[-2:]))

    @property
    def clock(self) -> z3.ArithRef:
        """A place after all that are taken."""
        return self.terms[-1]

    # scalars, and either of two values

    def unless(self, holds: z3.BoolRef, other: "Value") -> "Value":
        """This value where the condition holds, else the other."""
        terms = [z3.If(holds, a, b) for a, b in zip(self.terms, other.terms, strict=True)]
        return Value(self.universe, self.kind, tuple(terms))

    @property
    def term(self) -> z3.ExprRef:
        (term,) = self.terms
        return term
