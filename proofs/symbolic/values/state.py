"""Where a symbolic run has come to: objects, what their containers hold, and what is known."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias, overload

import z3

from cacheproof.proofs.logic import Formula
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.records import Denoted, truth
from cacheproof.proofs.symbolic.values.values import MapOf, SetOf, Type, Value
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics
from cacheproof.reference.semantics.kv_cache import KVCacheSemantics

Flags = Semantics | EncoderCacheSemantics | KVCacheSemantics
Operand: TypeAlias = (
    "Denoted | Ref | Receiver | RequestOf | Features | Feature | Lazy | Empty | Values | Reversed"
    " | Range | Count | Flags | tuple[Operand, ...]"
)
"""What a variable, an attribute or an expression of a text that runs may be."""


@dataclass(frozen=True)
class Ref:
    """A container by where it lives: a cell, and the keys that lead to it from there; one that
    `is_frozen` has no method that changes it."""

    cell: int
    keys: tuple[z3.ExprRef, ...] = ()
    is_frozen: bool = False


@dataclass(frozen=True)
class Receiver:
    """`self`: the object whose attributes a method works on."""

    owner: str


@dataclass(frozen=True)
class RequestOf:
    """A request, of which code asks for its id and its inputs."""

    term: z3.ExprRef


@dataclass(frozen=True)
class Features:
    """A request's inputs, by number."""

    request: z3.ExprRef
    gives_identifiers: bool = False


@dataclass(frozen=True)
class Feature:
    request: z3.ExprRef
    number: z3.ExprRef


@dataclass(frozen=True)
class Lazy:
    """What a loop or a comprehension runs over: the members of a set; `target` makes of a member
    what the loop's target is. `place` is where a member comes, where something is known of it;
    `again` tells which members may come more than once; whether it `takes_values` of them along,
    whether these are scalars, and whether it goes through its source `backwards`."""

    members: Value
    target: Callable[[z3.ExprRef], Operand] = lambda member: member
    source: Ref | None = None
    place: Callable[[z3.ExprRef], z3.ArithRef] | None = None
    again: Callable[[z3.ExprRef], Formula] | None = None
    takes_values: bool = False
    has_scalars: bool = True
    backwards: bool = False


@dataclass(frozen=True)
class Snapshot:
    """All attributes and cells at a moment, and the key at which they changed since the last;
    `anew` when nothing ties them to what was before."""

    attributes: Mapping[tuple[str, str], Operand]
    cells: Mapping[int, Value]
    key: z3.ExprRef | None
    anew: bool


@dataclass(frozen=True)
class Fact:
    """What is known at a place because these invariants stand; `of_sums`: it speaks of sums."""

    formula: Formula
    rules: frozenset[str] = frozenset()
    of_sums: bool = False

    @cached_property
    def gives_elements(self) -> bool:
        """Whether it says of every element that there is another one: to take such facts at their
        word again and again leads a solver astray."""
        return isinstance(self.formula, z3.ExprRef) and _gives(self.formula, True, False)

    @cached_property
    def mark(self) -> str:
        """The kind of fact; "" of one that is always known. Facts of one kind are taken
        together."""
        if not self.rules and not self.of_sums:
            return ""
        kind = "sums" if self.of_sums else "gives" if self.gives_elements else "plain"
        return " ".join((kind, *sorted(self.rules)))

    @cached_property
    def where_taken(self) -> Formula:
        """What it says where facts of its kind are taken."""
        return z3.Implies(z3.Bool(self.mark), self.formula) if self.mark else self.formula


class Place(NamedTuple):
    """A node of a method, by its number in the method's tree; for a condition, also the `way` by
    which it was left."""

    owner: str
    method: str
    node: int
    way: str


@dataclass(frozen=True)
class State:
    """Where a path has come to. `frames` are the variables of the callers, the outermost first;
    `ran` are the places of the text that the path went through (`at`)."""

    attributes: Mapping[tuple[str, str], Operand]
    cells: Mapping[int, Value]
    names: Mapping[str, Operand]
    frames: tuple[Mapping[str, Operand], ...] = ()
    path: tuple[Fact, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    ran: frozenset["Place"] = frozenset()

    def assuming(self, *facts: Formula | Fact) -> "State":
        """The state, where more is known."""
        known = (one if isinstance(one, Fact) else Fact(one) for one in facts)
        return replace(self, path=(*self.path, *known))

    @property
    def method(self) -> tuple[str, str]:
        """The owner and the name of the method that runs; of none, empty."""
        match self.names.get(""):
            case (str() as owner, str() as name):
                return owner, name
        return "", ""

    @overload
    def value(self, operand: Ref) -> Value: ...

    @overload
    def value(self, operand: Operand) -> Operand: ...

    def value(self, operand: Operand) -> Operand:
        """A container by its contents, anything else as it is."""
        if not isinstance(operand, Ref):
            return operand
        value = self.cells[operand.cell]
        for key in operand.keys:
            value = value.at(key)
        return value

    def container(self, operand: Operand) -> Value:
        """The contents of a container.

        Raises:
            NotTranslated: the operand is none.
        """
        found = self.value(operand)
        if not isinstance(found, Value):
            raise NotTranslated(f"{found} in the place of a container")
        return found

    def contents(self, owner: str, name: str) -> Value:
        """What an attribute that is a container has in it.

        Raises:
            NotTranslated: nothing has set it, or it is no container.
        """
        return self.container(self.attribute(owner, name))

    def attribute(self, owner: str, name: str) -> Operand:
        """What an attribute is, a container by its contents.

        Raises:
            NotTranslated: nothing has set it.
        """
        if (owner, name) not in self.attributes:
            raise NotTranslated(f"nothing has set {name}")
        return self.value(self.attributes[owner, name])

    def snapshot(self, key: z3.ExprRef | None = None, *, anew: bool = False) -> "State":
        now = Snapshot(self.attributes, self.cells, key, anew)
        return replace(self, snapshots=(*self.snapshots, now))


@dataclass(frozen=True)
class Obligation:
    """What must follow where a path has come to."""

    name: str
    state: State
    claimed: Formula
    rule: str


@dataclass(frozen=True)
class Around:
    """Where a loop begins anew: the state at its start and the state now; the members that are
    done and those that there are, with their places where they have some; of a loop that only
    counts, the `turns` that are done; whether what is said is to be `taken` as proved."""

    start: State
    now: State
    seen: Value | None = None
    members: Value | None = None
    place: Callable[[z3.ExprRef], z3.ArithRef] | None = None
    turns: z3.ArithRef | None = None
    taken: bool = False


@dataclass(frozen=True)
class Loop:
    """What is known where a loop begins anew, by the name of a rule; `variant` goes down in a
    while loop."""

    holds: Callable[[Around], Sequence[tuple[str, Formula]]]
    variant: Callable[[State], z3.ArithRef] | None = None


Evaluated = tuple[State, Operand]
"""A state, and what an expression is there, or a call has answered."""
Ways = Iterable[Evaluated]
"""Each way that an expression or a call may take."""
Ended = tuple[State, bool, Operand]
"""A state, whether the method has returned there, and what."""


@dataclass(frozen=True)
class Empty:
    """An empty container, by the name of its type; what it may hold is what the place may hold that
    it is put."""

    name: str

    def fits(self, kind: Type) -> bool:
        """Whether a place of that type may hold it."""
        match kind:
            case MapOf(ordered=True):
                return self.name in ("dict", "OrderedDict")
            case MapOf():  # two OrderedDicts are not equal as dicts are
                return self.name == "dict"
            case SetOf():
                return self.name == "set"
            case _:
                return self.name == "list"


@dataclass(frozen=True)
class Values:
    """The values of a map."""

    of: Ref


@dataclass(frozen=True)
class Reversed:
    """An ordered container that is run through from the last."""

    of: Ref


@dataclass(frozen=True)
class Range:
    """The numbers from `start` on, up to before `stop`."""

    start: z3.ArithRef
    stop: z3.ArithRef


@dataclass(frozen=True)
class Count:
    """How many inputs a request has."""

    request: z3.ExprRef


def truth_of(state: State, operand: Operand) -> Formula:
    """What Python makes of an operand where it needs a truth value.

    Raises:
        NotTranslated: it may be true or not, and nothing says which.
    """
    if isinstance(operand, Empty):
        return False
    if isinstance(operand, Lazy):
        return truth(operand.members)
    found = state.value(operand)
    plain = found is None or isinstance(found, bool | int | str | tuple | z3.ArithRef | z3.BoolRef)
    if plain or isinstance(found, Value):
        return bool(found) if isinstance(found, tuple) else truth(found)
    if isinstance(found, Receiver | RequestOf | Feature | Flags):
        return True
    raise NotTranslated(f"the truth value of {found}")


def term_of(operand: Operand) -> z3.ExprRef:
    if isinstance(operand, bool):
        return z3.BoolVal(operand)
    return z3.IntVal(operand) if isinstance(operand, int) else operand


def _gives(formula: z3.ExprRef, positive: bool, inside: bool) -> bool:
    if z3.is_quantifier(formula):
        # there is no Exists: "there is another one" is a ForAll denied within a ForAll
        return (not positive and inside) or _gives(formula.body(), positive, inside or positive)
    if z3.is_not(formula):
        return _gives(formula.arg(0), not positive, inside)
    if z3.is_implies(formula):
        return _gives(formula.arg(0), not positive, inside) or _gives(
            formula.arg(1), positive, inside
        )
    if z3.is_and(formula) or z3.is_or(formula):
        return any(_gives(part, positive, inside) for part in formula.children())
    # an equivalence or an If: its parts count both as they are and denied
    if z3.is_bool(formula) and formula.children() and z3.is_bool(formula.arg(0)):
        return any(
            _gives(part, way, inside) for part in formula.children() for way in (True, False)
        )
    return False
