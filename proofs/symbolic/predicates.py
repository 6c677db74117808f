"""Reads the source of a predicate as a formula over symbolic values.

A predicate of `spec` is one expression in the subset of `spec.subset`, so what is proved is the
text that runs. The invariants that only proofs need are written in the same way; they may also say
`any(generator)` and ask for what a request's input is.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from cacheproof.proofs.symbolic.values import (
    IDENTIFIER,
    INPUT,
    REQUEST,
    Formula,
    Leaf,
    MapOf,
    SetOf,
    Universe,
    Value,
    conjunction,
    disjunction,
    iff,
    implies,
    is_ordered,
    negated,
)

TOTAL, TOTAL_UNHELD, LEN = SUMS = "total", "total_unheld", "len"
"""Functions of whole maps, of which it is known how they change with one key."""


class NotTranslated(Exception):
    """A construct that has no reading; the message names file, line and construct where it
    `has_place`, and else is still to be given one."""

    def __init__(self, message: str, *, has_place: bool = False) -> None:
        super().__init__(message)
        self.has_place = has_place


@dataclass(frozen=True)
class Record:
    """A record of spec, or an object with attributes, whose fields are symbolic."""

    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Joined:
    """Sequences one after the other."""

    parts: tuple[Value, ...]


def unwrapped(value: Any) -> Any:
    """The term of a scalar; anything else as it is."""
    return value.term if isinstance(value, Value) and isinstance(value.kind, Leaf) else value


def truth(value: Any) -> Formula:
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


def equal(left: Any, right: Any) -> Formula:
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


def _parts(value: Any) -> tuple[Value, ...]:
    """The sequences that follow each other in a value."""
    parts = value.parts if isinstance(value, Joined) else (value,)
    if not all(isinstance(one, Value) and is_ordered(one.kind) for one in parts):
        raise NotTranslated(f"what is joined to a sequence is {value}")
    return parts


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


class Words:
    """The words of `spec.vocabulary`, and those of proofs, over symbolic values."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._facts: list[Formula] = []
        self._measured: list[Value] = []

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
            self._facts += [_of_subsets(container, other, self.count) for other in self._measured]
            self._measured.append(container)
        return self.number(container)

    def number(self, container: Value) -> z3.ArithRef:
        """How many keys there are, when it is not compared with how many another has."""
        if self._universe.elements is not None:
            members = self._universe.members(container.key)
            return z3.Sum([z3.If(container.has(k), 1, 0) for k in members])
        return self.count(container)

    def count(self, container: Value) -> z3.ArithRef:
        """The same, where nothing but how it changes is asked of it."""
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
        """The count of a key behind a replay of events."""
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
        """The token behind an input."""
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
    ) -> Any:
        return z3.Function(name, request.sort(), number.sort(), sort)(request, number)


def _of_subsets(one: Value, other: Value, length: Callable[[Value], z3.ArithRef]) -> Formula:
    """Of two sets, one in the other, as many elements mean the same ones."""
    same = one.all(lambda k: one.has(k) == other.has(k))
    either = disjunction(
        (
            one.all(lambda k: implies(one.has(k), other.has(k))),
            one.all(lambda k: implies(other.has(k), one.has(k))),
        )
    )
    return implies(either, iff(length(one) == length(other), same))


@dataclass(frozen=True)
class Reader:
    """Reads one predicate, whose file and first line are for messages."""

    words: Words
    place: str

    def read(self, tree: ast.expr, names: Mapping[str, Any]) -> Any:
        """The value of an expression; `names` are what its names stand for."""
        match tree:
            case ast.Name(id=name):
                return names[name]
            case ast.Constant(value=value):
                return value
            case ast.Attribute(value=of, attr=name):
                return self._field(tree, self.read(of, names), name)
            case ast.Subscript(value=of, slice=ast.Constant(value=int() as part)):
                return self.words.part(self.read(of, names), part)
            case ast.Subscript(value=of, slice=key):
                return unwrapped(self.read(of, names).at(unwrapped(self.read(key, names))))
            case ast.BoolOp(op=ast.And(), values=parts):
                return conjunction(tuple(truth(self.read(part, names)) for part in parts))
            case ast.BoolOp(op=ast.Or(), values=parts):
                return disjunction(tuple(truth(self.read(part, names)) for part in parts))
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return negated(truth(self.read(part, names)))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                one, other = self.read(left, names), self.read(right, names)
                if isinstance(one, Value | Joined):
                    return Joined((*_parts(one), *_parts(other)))
                return one + other
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.read(left, names) - self.read(right, names)
            case ast.Compare():
                return self._comparison(tree, names)
            case ast.Call(func=ast.Name(id="all" | "any" as word), args=[ast.GeneratorExp() as of]):
                return self._quantified(word, of.elt, of.generators, names)
            case ast.Call(func=ast.Name(id=word), args=arguments) if hasattr(self.words, word):
                return getattr(self.words, word)(*(self.read(one, names) for one in arguments))
        raise self._refused(tree)

    def formula(self, tree: ast.expr, names: Mapping[str, Any]) -> tuple[Formula, Formula]:
        """What defines the results of an expression's words, and its truth value."""
        truth_value = truth(self.read(tree, names))
        return conjunction(tuple(self.words.taken())), truth_value

    def _field(self, tree: ast.AST, record: Any, name: str) -> Any:
        if isinstance(record, Record) and name in record.fields:
            return unwrapped(record.fields[name])
        raise self._refused(tree)

    def _comparison(self, tree: ast.Compare, names: Mapping[str, Any]) -> Formula:
        match tree:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="len"), args=[of]),
                ops=[ast.Gt() | ast.Eq() as operator],
                comparators=[ast.Constant(value=0)],
            ):
                some = truth(self.read(of, names))
                return some if isinstance(operator, ast.Gt) else negated(some)
        operands = [unwrapped(self.read(one, names)) for one in (tree.left, *tree.comparators)]
        parts = [
            self._compared(tree, operator, left, right)
            for operator, left, right in zip(tree.ops, operands, operands[1:], strict=False)
        ]
        return parts[0] if len(parts) == 1 else conjunction(tuple(parts))

    def _compared(self, tree: ast.AST, operator: ast.cmpop, left: Any, right: Any) -> Formula:
        match operator:
            case ast.Eq():
                return equal(left, right)
            case ast.NotEq():
                return negated(equal(left, right))
            case ast.In():
                return right.has(left)
            case ast.NotIn():
                return z3.Not(right.has(left))
            case ast.LtE() if isinstance(left, Value):
                return left.all(lambda k: implies(left.has(k), right.has(k)))
            case ast.LtE():
                return left <= right
            case ast.Lt():
                return left < right
            case ast.GtE():
                return left >= right
            case ast.Gt():
                return left > right
        raise self._refused(tree)

    def _quantified(
        self,
        word: str,
        element: ast.expr,
        generators: list[ast.comprehension],
        names: Mapping[str, Any],
    ) -> Formula:
        if not generators:
            return truth(self.read(element, names))
        head, *rest = generators
        among = self.read(head.iter, names)
        if not isinstance(among, Value) or not isinstance(head.target, ast.Name):
            raise self._refused(head.iter)
        element_of = head.target.id

        def body(key: z3.ExprRef) -> Formula:
            inner = {**names, element_of: key}
            conditions = (among.has(key), *(truth(self.read(one, inner)) for one in head.ifs))
            then = self._quantified(word, element, rest, inner)
            if word == "all":
                return implies(conjunction(conditions), then)
            return conjunction((*conditions, then))

        return among.all(body) if word == "all" else among.some(body)

    def _refused(self, tree: ast.AST) -> NotTranslated:
        return NotTranslated(f"{self.place}: no reading of {ast.unparse(tree)}", has_place=True)
