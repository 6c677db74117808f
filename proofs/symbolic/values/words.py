"""The words of predicates over symbolic values: sums, counts, orders, and a request's inputs."""

from collections.abc import Callable

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, iff, implies
from cacheproof.proofs.symbolic.values.records import equal
from cacheproof.proofs.symbolic.values.values import (
    IDENTIFIER,
    INPUT,
    REQUEST,
    Leaf,
    SetOf,
    Universe,
    Value,
    is_ordered,
)

TOTAL, TOTAL_UNHELD, LEN = SUMS = "total", "total_unheld", "len"
"""Functions of whole maps, of which it is known how they change with one key."""


class Words:
    """The words of `spec.vocabulary`, and those of proofs, over symbolic values."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._facts: list[Formula] = []
        self._measured: list[Value] = []
        self._measures: dict[int, tuple[z3.ArithRef, Value]] = {}

    def taken(self) -> list[Formula]:
        """What defines the results of words since it was last asked."""
        facts, self._facts, self._measured = self._facts, [], []
        return facts

    def total(self, sizes: Value) -> z3.ArithRef:
        there, values = sizes.terms[:2]
        if self._universe.elements is not None:
            members = self._universe.members(sizes.key)
            return z3.Sum([z3.If(sizes.has(k), sizes.at(k).term, 0) for k in members])
        function = z3.Function(TOTAL, there.sort(), values.sort(), z3.IntSort())
        return function(there, values)

    def total_unheld(self, sizes: Value, holders: Value) -> z3.ArithRef:
        if self._universe.elements is not None:
            members = self._universe.members(sizes.key)
            return z3.Sum([self.unheld(sizes, holders, k) for k in members])
        terms = (*sizes.terms[:2], holders.terms[1])
        sorts = [term.sort() for term in terms]
        return z3.Function(TOTAL_UNHELD, *sorts, z3.IntSort())(*terms)

    def unheld(self, sizes: Value, holders: Value, key: z3.ExprRef) -> z3.ArithRef:
        """What one key is in `total_unheld`."""
        counts = z3.And(sizes.has(key), holders.at(key).is_empty)
        return z3.If(counts, sizes.at(key).term, 0)

    def len(self, container: Value) -> z3.ArithRef:
        if self._universe.elements is None:
            alike = [other for other in self._measured if other.key == container.key]
            self._facts += [_of_subsets(container, other, self.count) for other in alike]
            self._measured.append(container)
        number = self.number(container)
        self._measures[number.get_id()] = number, container
        return number

    def measured_by(self, number: object) -> Value | None:
        """The container whose number of keys a number is; None of any other number."""
        known = self._measures.get(number.get_id()) if isinstance(number, z3.ArithRef) else None
        return None if known is None else known[1]

    def number(self, container: Value) -> z3.ArithRef:
        """How many keys there are, where that is not compared with how many another has."""
        if self._universe.elements is not None:
            members = self._universe.members(container.key)
            return z3.Sum([z3.If(container.has(k), 1, 0) for k in members])
        return self.count(container)

    def count(self, container: Value) -> z3.ArithRef:
        """How many keys there are, where nothing but how that changes is asked of it."""
        (there,) = container.keys.terms
        return z3.Function(LEN, there.sort(), z3.IntSort())(there)

    def distinct(self, queue: Value) -> Formula:
        """The keys of a map are."""
        assert is_ordered(queue.kind)
        return True

    def within(self, part: Value, whole: Value) -> Formula:
        return part.all(
            lambda k: implies(
                part.has(k), conjunction((whole.has(k), equal(part.at(k), whole.at(k))))
            ),
        )

    def drops_prefix(self, before: Value, after: Value) -> Formula:
        def gone(key: z3.ExprRef) -> z3.BoolRef:
            return z3.And(before.has(key), z3.Not(after.has(key)))

        kept = before.all(
            lambda k: implies(
                after.has(k), z3.And(before.has(k), after.place(k) == before.place(k))
            ),
        )
        in_front = before.all(
            lambda e: before.all(
                lambda k: implies(z3.And(gone(e), after.has(k)), before.place(e) < before.place(k)),
            ),
        )
        return conjunction((kept, in_front))

    def last_dropped(self, before: Value, after: Value) -> z3.ArithRef:
        universe = self._universe
        last = universe.constant(before.key, "last")
        size = z3.Int(f"last dropped!{next(universe.names)}")

        def gone(key: z3.ExprRef) -> z3.BoolRef:
            return z3.And(before.has(key), z3.Not(after.has(key)))

        none = before.all(lambda k: z3.Not(gone(k)))
        is_last = before.all(lambda k: implies(gone(k), before.place(k) <= before.place(last)))
        found = conjunction((gone(last), size == before.at(last).term, is_last))
        self._facts.append(disjunction((conjunction((none, size == 0)), found)))
        return size

    def stands_before(self, queue: Value, one: z3.ExprRef, other: z3.ExprRef) -> z3.BoolRef:
        """Whether an entry of a queue goes before another."""
        return queue.place(one) < queue.place(other)

    # what a follower of events knows

    def replays(self, events: Value, replayed: Value, found: Value) -> Formula:
        """Whether who knew these counts, and replays these events, knows how many each finds."""
        return found.all(
            lambda k: self.count_told(events, replayed, k) == self.count_found(found, k)
        )

    def count_told(self, events: Value, replayed: Value, key: z3.ExprRef) -> z3.ArithRef:
        """The count of a key after a replay of events."""
        cleared, growth = events.terms
        before = z3.If(replayed.has(key), replayed.at(key).term, 0)
        return z3.If(cleared, 0, before) + z3.Select(growth, key)

    def count_found(self, found: Value, key: z3.ExprRef) -> z3.ArithRef:
        """How many a key finds."""
        return z3.If(found.has(key), self.number(found.at(key)), 0)

    def laws_of_count(self, leaf: Leaf) -> list[Formula]:
        """How the number of members of a set changes with one of them, and when it is 0."""
        if self._universe.elements is not None:
            return []
        nothing = self._universe.empty(SetOf(leaf))
        members = self._universe.fresh(SetOf(leaf), "members")
        one, there = self._universe.constant(leaf, "one"), z3.Bool("there")
        changed = Value(self._universe, SetOf(leaf), (z3.Store(members.term, one, there),))
        count, count_changed = self.count(members), self.count(changed)
        was = members.has(one)
        some = z3.Function("some_member", members.term.sort(), one.sort())(members.term)
        return [
            self.count(nothing) == 0,
            z3.ForAll(
                [members.term, one, there],
                count_changed == count - z3.If(was, 1, 0) + z3.If(there, 1, 0),
                patterns=[count_changed],
            ),
            z3.ForAll(
                [members.term],
                z3.And(count >= 0, z3.Or(count == 0, members.has(some))),
                patterns=[count],
            ),
            z3.ForAll(
                [members.term, one],
                z3.Implies(was, count >= 1),
                patterns=[z3.MultiPattern(count, was)],
            ),
        ]

    # what a request's inputs are

    def item(self, request: z3.ExprRef, number: z3.ExprRef) -> z3.ExprRef:
        """The identifier of an input."""
        return self._of_input("item", request, number, self._universe.sort(IDENTIFIER))

    def end(self, request: z3.ExprRef, number: z3.ExprRef) -> z3.ArithRef:
        """The token after an input."""
        return self._of_input("end", request, number, z3.IntSort())

    def embeds(self, request: z3.ExprRef, number: z3.ExprRef) -> z3.ArithRef:
        """The embeddings of an input."""
        return self._of_input("embeds", request, number, z3.IntSort())

    def has_input(self, request: z3.ExprRef, number: z3.ExprRef) -> z3.BoolRef:
        """Whether a request has an input of that number."""
        return self._of_input("has_input", request, number, z3.BoolSort())

    def inputs(self, request: z3.ExprRef) -> Value:
        """The numbers of a request's inputs."""
        number = self._universe.constant(INPUT, "input")
        there = z3.Lambda([number], self.has_input(request, number))
        return Value(self._universe, SetOf(INPUT), (there,))

    def part(self, debit: z3.ExprRef, number: int) -> z3.ExprRef:
        """The request of a debit, or its input."""
        return self._universe.parts(debit)[number]

    def size_of(self, identifier: z3.ExprRef) -> z3.ArithRef:
        """The one size that an identifier has, where it fixes the size."""
        return z3.Function("size_of", identifier.sort(), z3.IntSort())(identifier)

    def occurrences(
        self, numbers: Value, request: z3.ExprRef, identifier: z3.ExprRef
    ) -> z3.ArithRef:
        """How many of these inputs of a request have an identifier."""
        if self._universe.elements is not None:
            members = self._universe.members(INPUT)
            return z3.Sum([self._occurs(numbers.has(i), request, i, identifier) for i in members])
        return self._occurrences(numbers.terms[0], request, identifier)

    def laws_of_occurrences(self) -> list[Formula]:
        """How the number of occurrences changes with one input, and when it is 0."""
        if self._universe.elements is not None:
            return []
        universe = self._universe
        (sort,) = universe.components(SetOf(INPUT))
        numbers, there = z3.Const("numbers", sort), z3.Bool("there")
        none = universe.empty(SetOf(INPUT)).terms[0]
        r, h = (z3.Const(one.name, universe.sort(one)) for one in (REQUEST, IDENTIFIER))
        i = z3.Const("i", universe.sort(INPUT))
        count = self._occurrences(numbers, r, h)
        changed = self._occurrences(z3.Store(numbers, i, there), r, h)
        before = self._occurs(z3.Select(numbers, i), r, i, h)
        after = self._occurs(there, r, i, h)
        sorts = sort, r.sort(), h.sort(), i.sort()
        one = z3.Function("one_occurrence", *sorts)(numbers, r, h)
        return [
            z3.ForAll(
                [numbers, i, there, r, h],
                changed == count - before + after,
                patterns=[changed, z3.MultiPattern(count, z3.Store(numbers, i, there))],
            ),
            z3.ForAll([r, h], self._occurrences(none, r, h) == 0),
            z3.ForAll([numbers, r, h], count >= 0, patterns=[count]),
            z3.ForAll(
                [numbers, r, h],
                z3.Or(count == 0, self._occurs(z3.Select(numbers, one), r, one, h) == 1),
                patterns=[count],
            ),
            z3.ForAll(
                [numbers, r, h, i],
                z3.Implies(before == 1, count >= 1),
                patterns=[z3.MultiPattern(count, z3.Select(numbers, i))],
            ),
        ]

    def _occurrences(
        self, numbers: z3.ExprRef, request: z3.ExprRef, identifier: z3.ExprRef
    ) -> z3.ArithRef:
        sorts = numbers.sort(), request.sort(), identifier.sort()
        return z3.Function("occurrences", *sorts, z3.IntSort())(numbers, request, identifier)

    def _occurs(
        self, there: z3.BoolRef, request: z3.ExprRef, number: z3.ExprRef, identifier: z3.ExprRef
    ) -> z3.ArithRef:
        return z3.If(z3.And(there, self.item(request, number) == identifier), 1, 0)

    def number_of(self, request: z3.ExprRef, identifier: z3.ExprRef) -> z3.ExprRef:
        """The one input of a request that has an identifier, where its items differ."""
        sorts = request.sort(), identifier.sort(), self._universe.sort(INPUT)
        return z3.Function("number_of", *sorts)(request, identifier)

    def _of_input(
        self, name: str, request: z3.ExprRef, number: z3.ExprRef, sort: z3.SortRef
    ) -> z3.ExprRef:
        return z3.Function(name, request.sort(), number.sort(), sort)(request, number)


def _of_subsets(one: Value, other: Value, length: Callable[[Value], z3.ArithRef]) -> Formula:
    """The fact that two sets, one in the other, have as many elements exactly if they have the
    same."""
    same = one.all(lambda k: one.has(k) == other.has(k))
    either = disjunction(
        (
            one.all(lambda k: implies(one.has(k), other.has(k))),
            one.all(lambda k: implies(other.has(k), one.has(k))),
        )
    )
    return implies(either, iff(length(one) == length(other), same))
