"""Comprehensions and generators on symbolic values: members that are described, not enumerated."""

import ast
from collections.abc import Iterator
from dataclasses import replace

import z3

from cacheproof.proofs.logic import Formula, conjunction, disjunction, iff, implies, negated
from cacheproof.proofs.symbolic.reading import containers
from cacheproof.proofs.symbolic.reading.execution import Run
from cacheproof.proofs.symbolic.values.state import (
    Empty,
    Lazy,
    Operand,
    Range,
    Ref,
    Reversed,
    State,
    Ways,
    truth_of,
)
from cacheproof.proofs.symbolic.values.values import (
    INT,
    ListOf,
    SequenceOf,
    SetOf,
    Value,
    is_ordered,
)


def comprehension(run: Run, node: ast.ListComp | ast.SetComp, state: State) -> Ways:
    """The members that a filter leaves, or what an element is of each of them."""
    (head,) = node.generators
    for after, among in run.evaluated(head.iter, state):
        lazy = lazy_of(run, node, among, after)
        for there in _of_some_or_none(run, node, lazy, after):
            yield from _described(run, node, lazy, there)


def lazy_of(run: Run, node: ast.AST, among: Operand, state: State) -> Lazy:
    if isinstance(among, Lazy):
        return among
    if isinstance(among, Reversed):
        lazy = lazy_of(run, node, among.of, state)
        forwards = lazy.place
        if forwards is None:
            raise run.refused_in(state, node)
        return replace(lazy, place=lambda member: -forwards(member), backwards=True)
    if isinstance(among, Range):
        number = run.universe.constant(INT, "number")
        inside = z3.And(among.start <= number, number < among.stop)
        return Lazy(Value(run.universe, SetOf(INT), (z3.Lambda([number], inside),)))
    container = state.value(among)
    if isinstance(container, Value):
        source = among if isinstance(among, Ref) else None
        place = container.place if is_ordered(container.kind) else None
        again = _always if isinstance(container.kind, ListOf) else None
        return Lazy(container.keys, source=source, place=place, again=again)
    raise run.refused_in(state, node)


def _described(run: Run, node: ast.ListComp | ast.SetComp, among: Lazy, state: State) -> Ways:
    """The members that a filter leaves, or what the element is of each of them, in the order of
    what it runs over."""
    element, (head,) = node.elt, node.generators
    # what is filtered keeps the places of its source, which are not reversed
    if among.backwards:
        raise run.refused_in(state, node)
    leaf = among.members.key
    member = run.universe.constant(leaf, "member")
    conditions = _conditions(run, head, among, member, state)
    there = conjunction((among.members.has(member), *conditions))
    found = run.universe.fresh(SetOf(leaf), "filtered")
    described = run.universe.of_every(member, leaf, iff(found.has(member), there))
    state = state.assuming(described)
    first = head.target.elts[0] if isinstance(head.target, ast.Tuple) else head.target
    if ast.unparse(first) != ast.unparse(element) or not _begins_with_itself(among):
        if isinstance(node, ast.SetComp):
            raise run.refused_in(state, node)  # equal elements would be one
        among = replace(among, members=found)
        yield state, _mapped(run, node, element, head, among, member, state)
        return
    if isinstance(node, ast.ListComp):
        (there,) = found.terms
        if among.source is not None and among.place is not None:
            found = state.value(among.source).filtered(there)
        elif among.again is None:  # in some order, each once
            _, *order = run.universe.fresh(SequenceOf(leaf), "filtered").terms
            found = Value(run.universe, SequenceOf(leaf), (there, *order))
        else:
            log, _, length = run.universe.fresh(ListOf(leaf), "filtered").terms
            found = Value(run.universe, ListOf(leaf), (log, there, length))
    yield containers.hold(run, found, state)


def _mapped(
    run: Run,
    node: ast.AST,
    element: ast.expr,
    head: ast.comprehension,
    among: Lazy,
    member: z3.ExprRef,
    state: State,
) -> Lazy:
    """What an element is of each member, which an expression of one tells."""
    (inner,) = run.assigned(head.target, among.target(member), state)
    ((_, value),) = run.evaluated(element, inner.assuming(among.members.has(member)))
    if not isinstance(value, z3.ExprRef):
        raise run.refused_in(state, node)
    return replace(among, source=None, target=lambda one: z3.substitute(value, (member, one)))


def _conditions(
    run: Run, head: ast.comprehension, among: Lazy, member: z3.ExprRef, state: State
) -> list[Formula]:
    """A generator's conditions of one member; they must decide nothing else."""
    (inner,) = run.assigned(head.target, among.target(member), state)
    inner = inner.assuming(among.members.has(member))
    conditions = []
    for condition in head.ifs:
        ways = [
            conjunction((*_facts_since(inner, end), truth_of(end, value)))
            for end, value in run.evaluated(condition, inner)
        ]
        conditions.append(disjunction(ways))
        # Python asks the next condition only where this one holds
        inner = inner.assuming(conditions[-1])
    return conditions


def quantified(
    run: Run, node: ast.Call, word: str, generator: ast.GeneratorExp, state: State
) -> Ways:
    (head,) = generator.generators
    for after, among in run.evaluated(head.iter, state):
        if isinstance(among, Empty) or among == ():
            yield after, word == "all"
            continue
        lazy = lazy_of(run, node, among, after)
        for there in _of_some_or_none(run, node, lazy, after):
            yield there, _of_members(run, word, generator, head, lazy, there)


def _of_members(
    run: Run,
    word: str,
    generator: ast.GeneratorExp,
    head: ast.comprehension,
    lazy: Lazy,
    state: State,
) -> Formula:
    """Whether an expression holds of `any` or `all` of the members that a filter leaves."""
    leaf = lazy.members.key
    member = run.universe.constant(leaf, "member")
    conditions = _conditions(run, head, lazy, member, state)
    (inner,) = run.assigned(head.target, lazy.target(member), state)
    there = conjunction((lazy.members.has(member), *conditions))
    inner = inner.assuming(there)
    holds = disjunction(
        conjunction((*_facts_since(inner, end), truth_of(end, value)))
        for end, value in run.evaluated(generator.elt, inner)
    )
    if word == "all":
        return run.universe.of_every(member, leaf, implies(there, holds))
    none = run.universe.of_every(member, leaf, negated(conjunction((there, holds))))
    return negated(none)


def _of_some_or_none(run: Run, node: ast.expr, among: Lazy, state: State) -> Iterator[State]:
    """A state in which there is something to run over, so that what is said of each is
    evaluated, and one in which there is nothing."""
    for branch, is_empty in run.split(among.members.is_empty, state):
        yield branch if is_empty else run.through(node, branch, "of some")


def _facts_since(before: State, after: State) -> list[Formula]:
    """The facts that a path has gained since `before`."""
    return [fact.formula for fact in after.path[len(before.path) :]]


def _always(_: z3.ExprRef) -> Formula:
    return True


def _begins_with_itself(lazy: Lazy) -> bool:
    """Whether the target is the member itself, or a tuple that begins with it."""
    probe = z3.Const("probe", lazy.members.universe.sort(lazy.members.key))
    found = lazy.target(probe)
    return found is probe or (isinstance(found, tuple) and found[0] is probe)
