"""Runs loops: by an invariant, which a table beside the proof states, or turn by turn.

A loop that is run by its invariant leaves the obligations that it holds at first and is kept.
"""

import ast
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, implies, negated
from cacheproof.proofs.symbolic.reading.expressions import Expressions
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.records import equal
from cacheproof.proofs.symbolic.values.state import (
    Around,
    Empty,
    Ended,
    Fact,
    Lazy,
    Loop,
    Range,
    State,
    term_of,
)
from cacheproof.proofs.symbolic.values.values import INT, SetOf, Value

TURNS_MAX = 8
"""How often a while loop may be run turn by turn, among a few elements."""


class Loops(Expressions):
    """Runs loops, whose bodies and conditions have any effect on a state."""

    @abstractmethod
    def _block(self, body: Sequence[ast.stmt], state: State) -> list[Ended]:
        """Where a run of some statements may end."""

    def _while(
        self, node: ast.While, test: ast.expr, body: Sequence[ast.stmt], state: State
    ) -> Iterator[State]:
        if self.unrolls:
            yield from self._turned(node, test, body, state, TURNS_MAX)
            return
        loop = self._loop(node, state)
        self._claim(node, "loop starts with", loop, Around(state, state))
        around = self._forgotten(
            state,
            lambda s: [
                end
                for inner, holds in self._decided(test, s)
                if holds
                for end in self._once(node, body, inner)
            ],
        )
        around = self._take(loop, Around(state, around))
        for inner, holds in self._decided(test, around):
            if not holds:
                yield inner
                continue
            for end in self._once(node, body, inner):
                self._claim(node, "loop keeps", loop, Around(state, end))
                assert loop.variant is not None
                less = z3.And(loop.variant(end) < loop.variant(inner), loop.variant(inner) >= 0)
                self.require(self._at(state, node, "loop ends"), end, less)

    def _turned(
        self, node: ast.While, test: ast.expr, body: Sequence[ast.stmt], state: State, turns: int
    ) -> Iterator[State]:
        """A loop turn by turn, of which so many may be left."""
        for inner, holds in self._decided(test, state):
            if not self._possible(inner.path):
                continue
            if not holds:
                yield inner
                continue
            if turns == 0:
                raise self._refused_in(state, node)
            for end in self._once(node, body, inner):
                yield from self._turned(node, test, body, end, turns - 1)

    def _once(self, node: ast.AST, body: Sequence[ast.stmt], state: State) -> list[State]:
        """A turn of a loop, which must not return from the method."""
        ends = self._block(body, state)
        if any(done for _, done, _ in ends):
            raise self._refused_in(state, node)
        return [end for end, _, _ in ends]

    def _claim(self, node: ast.AST, when: str, loop: Loop, around: Around) -> None:
        for rule, claimed in loop.holds(around):
            name = self._at(around.start, node, f"{when} {rule}")
            self.require(name, around.now, claimed, rule)

    def _take(self, loop: Loop, around: Around) -> State:
        known = loop.holds(replace(around, taken=True))
        return around.now.assuming(*(Fact(formula, frozenset({rule})) for rule, formula in known))

    def _for(
        self, node: ast.For, target: ast.expr, among: Any, body: Sequence[ast.stmt], state: State
    ) -> Iterator[Ended]:
        if isinstance(among, Empty):
            yield state, False, None
        elif isinstance(among, Range):
            run = self._counted if self.unrolls else self._counting
            yield from run(node, among, body, state)
        elif self.unrolls:
            lazy = self._lazy(node, among, state)
            none = self.universe.empty(SetOf(lazy.members.key))
            yield from self._turns(target, lazy, body, none, state)
        else:
            yield from self._running(node, target, self._lazy(node, among, state), body, state)

    def _turns(
        self, target: ast.expr, lazy: Lazy, body: Sequence[ast.stmt], seen: Value, state: State
    ) -> Iterator[Ended]:
        """The rest of a loop, turn by turn, each member once."""
        members = lazy.members
        yield state.assuming(_are_done(members, seen)), False, None
        member = self.universe.constant(members.key, "member")
        once = replace(lazy, again=None)
        before = state.assuming(members.has(member), *_comes_next(once, seen, member))
        if not self._possible(before.path):
            return
        for end, returned, answer in self._turn(target, lazy, body, before, member):
            if returned:
                yield end, True, answer
            else:
                done = seen.with_member(member, True)
                yield from self._turns(target, lazy, body, done, end)

    def _turn(
        self,
        target: ast.expr,
        lazy: Lazy,
        body: Sequence[ast.stmt],
        state: State,
        member: z3.ExprRef,
    ) -> list[Ended]:
        (inner,) = self._assign(target, lazy.target(member), state)
        if lazy.source is None:
            return self._block(body, inner)
        inner, name = self.running_over(inner, lazy.source, whole=lazy.takes_values)
        return [
            (self.run_over(end, name, lazy.source), returned, answer)
            for end, returned, answer in self._block(body, inner)
        ]

    def _running(
        self, node: ast.For, target: ast.expr, lazy: Lazy, body: Sequence[ast.stmt], state: State
    ) -> Iterator[Ended]:
        """A loop over members, which may return from the method."""
        members = lazy.members
        none = self.universe.empty(SetOf(members.key))

        def once(before: State, member: z3.ExprRef) -> list[Ended]:
            return self._turn(target, lazy, body, before, member)

        loop = self._loop(node, state)
        self._claim(node, "loop starts with", loop, Around(state, state, none, members, lazy.place))
        member = self.universe.constant(members.key, "member")
        around = self._forgotten(
            state,
            lambda s: [end for end, _, _ in once(s.assuming(members.has(member)), member)],
        )
        seen = self.universe.fresh(SetOf(members.key), "seen")
        of_members = _are_done(seen, members)
        known = around.assuming(of_members, *_in_their_order(lazy, seen))
        known = self._take(loop, Around(state, known, seen, members, lazy.place))
        before = known.assuming(members.has(member), *_comes_next(lazy, seen, member))
        for end, returned, answer in once(before, member):
            if returned:
                yield end, True, answer
                continue
            if lazy.source is not None:
                same = equal(end.value(lazy.source).keys, members)
                self.require(self._at(state, node, "what it runs over stays"), end, same)
            done = seen.with_member(member, True)
            now = Around(state, end, done, members, lazy.place)
            self._claim(node, "loop keeps", loop, now)
        yield self._take(loop, Around(state, around, members, members, lazy.place)), False, None

    def _counted(
        self, node: ast.For, among: Range, body: Sequence[ast.stmt], state: State
    ) -> Iterator[Ended]:
        """A loop that is run so many times, turn by turn."""
        yield state.assuming(among.stop <= among.start), False, None
        before = state.assuming(among.start < among.stop)
        if not self._possible(before.path):
            return
        rest = Range(among.start + 1, among.stop)
        for end in self._once(node, body, before):
            yield from self._counted(node, rest, body, end)

    def _counting(
        self, node: ast.For, among: Range, body: Sequence[ast.stmt], state: State
    ) -> Iterator[Ended]:
        """A loop that is run so many times, whatever the number of the turn is."""
        many = z3.If(among.start < among.stop, among.stop - among.start, 0)
        loop = self._loop(node, state)
        self._claim(node, "loop starts with", loop, Around(state, state, turns=z3.IntVal(0)))
        around = self._forgotten(state, lambda s: self._once(node, body, s))
        turns = self.universe.constant(INT, "turns")
        known = self._take(loop, Around(state, around, turns=turns))
        for end in self._once(node, body, known.assuming(turns >= 0, turns < many)):
            self._claim(node, "loop keeps", loop, Around(state, end, turns=turns + 1))
        yield self._take(loop, Around(state, around, turns=many)), False, None

    def _loop(self, node: ast.AST, state: State) -> Loop:
        """What is known of a loop, by its number among those of its method."""
        owner, method = state.names[""]
        loops = [
            one
            for one in ast.walk(self.sources[owner].methods[method])
            if isinstance(one, ast.For | ast.While)
        ]
        number = sorted(one.lineno for one in loops).index(node.lineno)  # type: ignore[attr-defined]
        known = self.loops.get((owner, method), ())
        if number >= len(known):
            raise self._refused_in(state, node)
        return known[number]

    def _forgotten(self, state: State, run: Callable[[State], list[State]]) -> State:
        """A state in which nothing is known of what a loop's body changes."""
        cells, attributes, names = dict(state.cells), dict(state.attributes), dict(state.names)
        kept, self.obligations = self.obligations, []
        facts: list[Formula] = []
        while True:
            before = replace(
                state, cells=dict(cells), attributes=dict(attributes), names=dict(names)
            )
            changed = False
            for end in run(before):
                if any(
                    one is not other for one, other in zip(end.frames, state.frames, strict=True)
                ):
                    raise NotTranslated("a loop lets go of what a caller's variable leads into")
                for cell, value in end.cells.items():
                    if (
                        cell in cells
                        and value is not cells[cell]
                        and cells[cell] is state.cells[cell]
                    ):
                        cells[cell] = self.universe.fresh(value.kind, "after")
                        facts += self.in_order(cells[cell])
                        changed = True
                for place, operand in end.attributes.items():
                    if (
                        operand is not attributes[place]
                        and attributes[place] is state.attributes[place]
                    ):
                        term = term_of(operand)
                        if not isinstance(term, z3.ExprRef):
                            raise NotTranslated(f"{place} is bound anew in a loop")
                        attributes[place] = z3.FreshConst(term.sort(), place[1])
                        changed = True
                for name in end.names:
                    if name in names and end.names[name] is not names[name]:
                        del names[name]  # bound in the body: what it was is not known behind it
            if not changed:
                break
        self.obligations = kept
        forgotten = replace(state, cells=cells, attributes=attributes, names=names)
        return forgotten.assuming(*facts).snapshot(anew=True)


def _are_done(members: Value, seen: Value) -> Formula:
    return members.all(lambda k: implies(members.has(k), seen.has(k)))


def _in_their_order(lazy: Lazy, seen: Value) -> list[Formula]:
    """What came before a member that is done is done."""
    members, place = lazy.members, lazy.place
    if place is None:
        return []

    def closed(one: z3.ExprRef, other: z3.ExprRef) -> Formula:
        earlier = conjunction((members.has(one), seen.has(other), place(one) < place(other)))
        return implies(earlier, seen.has(one))

    return [members.all(lambda one: members.all(lambda other: closed(one, other)))]


def _comes_next(lazy: Lazy, seen: Value, member: z3.ExprRef) -> list[Formula]:
    """A member comes when those before it are done; once, or again."""
    members, place, again = lazy.members, lazy.place, lazy.again
    new = negated(seen.has(member))
    known = [new if again is None else disjunction((new, again(member)))]
    if place is not None:
        known.append(
            members.all(
                lambda one: implies(
                    conjunction((members.has(one), place(one) < place(member))), seen.has(one)
                )
            )
        )
    return known
