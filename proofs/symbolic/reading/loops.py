"""Runs loops: by an invariant, which a table beside the proof states, or turn by turn.

A loop that is run by its invariant leaves the obligations that it holds at first and is kept.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, implies, negated
from cacheproof.proofs.symbolic.reading.comprehensions import lazy_of
from cacheproof.proofs.symbolic.reading.containers import begin_turn, end_turn, in_order
from cacheproof.proofs.symbolic.reading.execution import Run
from cacheproof.proofs.symbolic.reading.expressions import decided
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
"""Most turns of a while loop that is run turn by turn, among a few elements."""


def while_(run: Run, node: ast.While, state: State) -> Iterator[Ended]:
    """A loop that goes on as long as something holds."""
    if node.orelse:
        raise run.refused_in(state, node)
    ends = _turned(run, node, state, TURNS_MAX) if run.unrolls else _kept_going(run, node, state)
    for end in ends:
        yield end, False, None


def _kept_going(run: Run, node: ast.While, state: State) -> Iterator[State]:
    loop = _loop(run, node, state)
    _claim(run, node, "loop starts with", loop, Around(state, state))
    around = _forgotten(
        run,
        state,
        lambda s: [
            end
            for inner, holds in decided(run, node.test, s)
            if holds
            for end in _once(run, node, inner)
        ],
    )
    around = _take(loop, Around(state, around))
    for inner, holds in decided(run, node.test, around):
        if not holds:
            yield inner
            continue
        for end in _once(run, node, inner):
            _claim(run, node, "loop keeps", loop, Around(state, end))
            assert loop.variant is not None
            # an integer that falls and is not negative cannot fall for ever
            less = z3.And(loop.variant(end) < loop.variant(inner), loop.variant(inner) >= 0)
            run.require(run.at(state, node, "loop ends"), end, less)


def _turned(run: Run, node: ast.While, state: State, turns: int) -> Iterator[State]:
    """The rest of a while loop, turn by turn, in at most `turns`."""
    for inner, holds in decided(run, node.test, state):
        if not run.possible(inner.path):
            continue
        if not holds:
            yield inner
            continue
        # a loop that is cut off would be proved of its first turns alone
        if turns == 0:
            raise run.refused_in(state, node)
        for end in _once(run, node, inner):
            yield from _turned(run, node, end, turns - 1)


def _once(run: Run, node: ast.While | ast.For, state: State) -> list[State]:
    """A turn of a loop, which must not return from the method."""
    ends = run.block(node.body, state)
    if any(done for _, done, _ in ends):
        raise run.refused_in(state, node)
    return [end for end, _, _ in ends]


def _claim(run: Run, node: ast.AST, when: str, loop: Loop, around: Around) -> None:
    for rule, claimed in loop.holds(around):
        name = run.at(around.start, node, f"{when} {rule}")
        run.require(name, around.now, claimed, rule)


def _take(loop: Loop, around: Around) -> State:
    known = loop.holds(replace(around, taken=True))
    return around.now.assuming(*(Fact(formula, frozenset({rule})) for rule, formula in known))


def for_(run: Run, node: ast.For, state: State) -> Iterator[Ended]:
    """A for loop, over members or over the numbers of a range."""
    if node.orelse:
        raise run.refused_in(state, node)
    # no table reads `continue`: it becomes a branch before the body is run
    body = _without_continue(node.body)
    node = ast.copy_location(ast.For(node.target, node.iter, body, []), node)
    for after, among in run.evaluated(node.iter, state):
        if isinstance(among, Empty):
            yield after, False, None
        elif isinstance(among, Range):
            yield from (_counted if run.unrolls else _counting)(run, node, among, after)
        else:
            lazy = lazy_of(run, node, among, after)
            none = run.universe.empty(SetOf(lazy.members.key))
            if run.unrolls:
                yield from _turns(run, node, lazy, none, after)
            else:
                yield from _running(run, node, lazy, none, after)


def _turns(run: Run, node: ast.For, lazy: Lazy, seen: Value, state: State) -> Iterator[Ended]:
    """The rest of a loop, turn by turn, each member once."""
    members = lazy.members
    yield state.assuming(_are_done(members, seen)), False, None
    member = run.universe.constant(members.key, "member")
    once = replace(lazy, again=None)
    before = state.assuming(members.has(member), *_comes_next(once, seen, member))
    if not run.possible(before.path):
        return
    for end, returned, answer in _turn(run, node, lazy, before, member):
        if returned:
            yield end, True, answer
        else:
            done = seen.with_member(member, True)
            yield from _turns(run, node, lazy, done, end)


def _turn(run: Run, node: ast.For, lazy: Lazy, state: State, member: z3.ExprRef) -> list[Ended]:
    (inner,) = run.assigned(node.target, lazy.target(member), state)
    if lazy.source is None:
        return run.block(node.body, inner)
    inner, name = begin_turn(run, inner, lazy.source, whole=lazy.takes_values)
    return [
        (end_turn(end, name, lazy.source), returned, answer)
        for end, returned, answer in run.block(node.body, inner)
    ]


def _running(run: Run, node: ast.For, lazy: Lazy, none: Value, state: State) -> Iterator[Ended]:
    """A loop over members, which may return from the method."""
    members = lazy.members

    def once(before: State, member: z3.ExprRef) -> list[Ended]:
        return _turn(run, node, lazy, before, member)

    loop = _loop(run, node, state)
    _claim(run, node, "loop starts with", loop, Around(state, state, none, members, lazy.place))
    member = run.universe.constant(members.key, "member")
    around = _forgotten(
        run,
        state,
        lambda s: [end for end, _, _ in once(s.assuming(members.has(member)), member)],
    )
    seen = run.universe.fresh(SetOf(members.key), "seen")
    of_members = _are_done(seen, members)
    known = around.assuming(of_members, *_in_their_order(lazy, seen))
    known = _take(loop, Around(state, known, seen, members, lazy.place))
    before = known.assuming(members.has(member), *_comes_next(lazy, seen, member))
    for end, returned, answer in once(before, member):
        if returned:
            yield end, True, answer
            continue
        # the members were read once; Python reads them as it goes on
        if lazy.source is not None:
            same = equal(end.value(lazy.source).keys, members)
            run.require(run.at(state, node, "what it runs over stays"), end, same)
        done = seen.with_member(member, True)
        now = Around(state, end, done, members, lazy.place)
        _claim(run, node, "loop keeps", loop, now)
    # from `around`: `known` speaks of the members that were done before one turn
    yield _take(loop, Around(state, around, members, members, lazy.place)), False, None


def _counted(run: Run, node: ast.For, among: Range, state: State) -> Iterator[Ended]:
    """The rest of a loop over a range, turn by turn."""
    yield state.assuming(among.stop <= among.start), False, None
    before = state.assuming(among.start < among.stop)
    if not run.possible(before.path):
        return
    rest = Range(among.start + 1, among.stop)
    for end in _numbered(run, node, among.start, before):
        yield from _counted(run, node, rest, end)


def _counting(run: Run, node: ast.For, among: Range, state: State) -> Iterator[Ended]:
    """A loop over a range, by its invariant: a turn of any number."""
    many = z3.If(among.start < among.stop, among.stop - among.start, 0)
    loop = _loop(run, node, state)
    _claim(run, node, "loop starts with", loop, Around(state, state, turns=z3.IntVal(0)))
    turns = run.universe.constant(INT, "turns")
    number = among.start + turns
    around = _forgotten(run, state, lambda s: _numbered(run, node, number, s))
    known = _take(loop, Around(state, around, turns=turns))
    for end in _numbered(run, node, number, known.assuming(turns >= 0, turns < many)):
        _claim(run, node, "loop keeps", loop, Around(state, end, turns=turns + 1))
    yield _take(loop, Around(state, around, turns=many)), False, None


def _numbered(run: Run, node: ast.For, number: z3.ArithRef, state: State) -> list[State]:
    """A turn of a loop over a range, whose target is bound to a number."""
    return [
        end for one in run.assigned(node.target, number, state) for end in _once(run, node, one)
    ]


def _loop(run: Run, node: ast.AST, state: State) -> Loop:
    """What is known of a loop, by its number among those of its method."""
    owner, method = state.method
    loops = [
        one
        for one in ast.walk(run.sources[owner].methods[method])
        if isinstance(one, ast.For | ast.While)
    ]
    # by its line: `for_` has put another node in the place of the loop
    number = sorted(one.lineno for one in loops).index(node.lineno)  # type: ignore[attr-defined]
    known = run.loops.get((owner, method), ())
    if number >= len(known):
        raise run.refused_in(state, node)
    return known[number]


def _forgotten(run: Run, state: State, turn: Callable[[State], list[State]]) -> State:
    """A state in which nothing is known of what a loop's body changes."""
    cells, attributes, names = dict(state.cells), dict(state.attributes), dict(state.names)
    # turns run here only to see what they change: the turn that is proved leaves obligations
    kept, run.obligations = run.obligations, []
    facts: list[Formula] = []
    # a turn may change more once what it changed before is forgotten: until nothing is new
    while True:
        before = replace(state, cells=dict(cells), attributes=dict(attributes), names=dict(names))
        changed = False
        for end in turn(before):
            if any(one is not other for one, other in zip(end.frames, state.frames, strict=True)):
                raise NotTranslated("a loop lets go of what a caller's variable leads into")
            for cell, value in end.cells.items():
                # forgotten once: a fresh value at each round would look like a change for ever
                if cell in cells and value is not cells[cell] and cells[cell] is state.cells[cell]:
                    cells[cell] = run.universe.fresh(value.kind, "after")
                    facts += in_order(cells[cell])
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
                    del names[name]  # bound in the body: what it was is not known after it
        if not changed:
            break
    run.obligations = kept
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


def _without_continue(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """A loop's body with what follows an `if` that continues as the other branch of that `if`."""
    for number, one in enumerate(body):
        match one:
            case ast.If(test=test, body=[ast.Continue()], orelse=[]):
                rest = _without_continue(body[number + 1 :])
                nothing = ast.copy_location(ast.Pass(), one)
                branch = ast.copy_location(ast.If(test, [nothing], rest), one)
                return [*body[:number], branch]
    return list(body)
