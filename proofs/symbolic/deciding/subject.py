"""What is proved: a class by its text, the rules that it must keep, and calls as they are made."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import z3

from cacheproof.proofs.logic import Formula
from cacheproof.proofs.symbolic.deciding.replay import CounterexampleReplay
from cacheproof.proofs.symbolic.reading.execution import Readings
from cacheproof.proofs.symbolic.reading.machine import READINGS
from cacheproof.proofs.symbolic.reading.source import Source, reached_from
from cacheproof.proofs.symbolic.rules.rules import Predicate
from cacheproof.proofs.symbolic.values.records import Record
from cacheproof.proofs.symbolic.values.state import Loop, Operand, State
from cacheproof.proofs.symbolic.values.values import Leaf, Type
from cacheproof.proofs.symbolic.values.words import Words
from cacheproof.proofs.text.definitions import reading_of
from cacheproof.spec.versions import release_key

if TYPE_CHECKING:
    from cacheproof.proofs.symbolic.deciding.play import Play

Names = Mapping[str, Record]
"""The records that predicates look at, by the names that they have there."""
Attributes = Mapping[tuple[str, str], Operand]
"""Attributes by owner and name."""
Records = Callable[[Callable[[str, str], Operand]], Names]
"""Makes the records that contracts look at, from what gives each attribute by owner and name."""


@dataclass(frozen=True)
class Aggregate:
    """A sum over keys that contracts speak of: its value in a state, what one key adds, a sum that
    it is part of, and sums that make it up."""

    leaf: Leaf
    value: Callable[[Words, Names], z3.ArithRef]
    share: Callable[[Words, Names, z3.ExprRef], z3.ArithRef]
    at_most: "Aggregate | None" = None
    parts: "Sequence[Aggregate]" = ()


@dataclass(frozen=True)
class CallEnd:
    """Where a call may end: the state after it, and the names its contracts look at."""

    after: State
    names: Names


@dataclass(frozen=True)
class Operation:
    """A call of a `method`, as a scheduler makes it: `run` plays it with the ghost's part. One that
    builds the object `begins` where nothing is known. One that only tells the ghost something has
    no method. Schedulers make it `since` a release, or all of them."""

    name: str
    run: Callable[["Play", State], Iterable[CallEnd]]
    method: str = ""
    begins: bool = False
    since: str = "0"

    def is_asked(self, source: Source, release: str | None) -> bool:
        """Whether a scheduler of a release makes the call, on a class that may be older."""
        is_due = release is None or release_key(release) >= release_key(self.since)
        return is_due or self.method in {"", *source.methods}


OperationReading = tuple[
    Operation,
    tuple[tuple[str, str, str], ...],
    tuple[tuple[tuple[str, str], Type], ...],
    tuple[tuple[tuple[str, str], Operand], ...],
    tuple[Predicate, ...],
    tuple[Predicate, ...],
]
"""All by which an operation of two subjects is the same: it, the texts that it reaches, types,
constants, and the invariants and further rules that it must keep."""


@dataclass(frozen=True)
class Subject:
    """A class and all that is said of it beside its text.

    Attributes:
        sources: whose methods are run, by the owner of the attributes that they work on.
        types: of attributes, by owner and name. `constants` are attributes that are known.
        records: what contracts look at, from the value of each attribute.
        safety: the contract that nothing raises.
        replay: how counterexamples are run again; None: they are not.
        component: whose callers' promises are kept; "": of none.
        assumptions: facts of the table of requests' inputs, from its words.
        under_proof: the owners of the texts that the rules are proved of.
        readings: how the texts are read. `objects` and `variables` are as a machine knows them; it
            `unrolls` loops among a few elements.
        hangs_on: rule -> the owner and name of a method of which a change breaks it.
        noticed_by: rule -> the method and words of a change that breaks it in a small scope.
        told: owner of a text that is not under proof -> the methods of it that operations call.
        also_called: methods that a scheduler calls, and no operation.
        absent: what a request of the release does not have, of what can be read.
    """

    name: str
    sources: Mapping[str, Source]
    types: Mapping[tuple[str, str], Type]
    constants: Attributes
    records: Records
    invariants: Sequence[Predicate]
    transitions: Mapping[str, Sequence[Predicate]]
    operations: Sequence[Operation]
    aggregates: Sequence[Aggregate]
    loops: Callable[["Play"], Mapping[tuple[str, str], Sequence[Loop]]]
    safety: str
    assumptions: Callable[["Play"], Sequence[Formula]]
    replay: CounterexampleReplay | None = None
    component: str = ""
    under_proof: Sequence[str] = ("m",)
    readings: Readings = READINGS
    objects: Mapping[Leaf, str] = field(default_factory=dict)
    variables: Mapping[tuple[str, str, str], Type] = field(default_factory=dict)
    unrolls: bool = False
    hangs_on: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    noticed_by: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    told: Mapping[str, Sequence[str]] = field(default_factory=dict)
    also_called: Sequence[str] = ()
    absent: Sequence[str] = ()

    def judged_at(self, operation: Operation) -> list[str]:
        """The rules that an operation must keep."""
        rules = (*self.invariants, *self.transitions.get(operation.name, ()))
        return list(dict.fromkeys([*(rule.id for rule in rules), self.safety]))

    def reading_of(self, operation: Operation) -> OperationReading:
        """All by which an operation of two subjects is the same, if they differ only in their texts
        and in what follows from these."""
        reached = reached_from(operation.method, self.sources.values())
        texts = [
            (owner, name, reading_of(method))
            for owner, source in self.sources.items()
            for name, method in source.methods.items()
            if name in reached
        ]
        return (
            operation,
            tuple(sorted(texts)),
            tuple(sorted(self.types.items(), key=lambda one: one[0])),
            tuple(self.constants.items()),
            tuple(self.invariants),
            tuple(self.transitions.get(operation.name, ())),
        )

    def digest_of(self, operation: Operation) -> str:
        """A digest of `reading_of`, with rules and operations by their names: for subjects of one
        kind it is the same in every process of one version of the code."""
        _, texts, types, constants, invariants, transitions = self.reading_of(operation)
        # by name: the repr of a function has an address, which other processes do not share
        judged = [[one.id for one in rules] for rules in (invariants, transitions)]
        return hashlib.sha256(
            repr((operation.name, self.unrolls, texts, types, constants, judged)).encode()
        ).hexdigest()
