"""Runs the statements of a method on symbolic values: where it may be after each of them."""

import ast
from collections.abc import Iterator, Mapping

import z3

from cacheproof.proofs.symbolic.reading import containers
from cacheproof.proofs.symbolic.reading.execution import Run, Statement
from cacheproof.proofs.symbolic.reading.expressions import decided, each
from cacheproof.proofs.symbolic.reading.loops import for_, while_
from cacheproof.proofs.symbolic.values.state import Ended, State, term_of, truth_of


def _pass(run: Run, node: ast.Pass, state: State) -> Iterator[Ended]:
    yield state, False, None


def _expression(run: Run, node: ast.Expr, state: State) -> Iterator[Ended]:
    match node.value:
        case ast.Constant():
            yield state, False, None
        case ast.Call(
            func=ast.Attribute(value=of, attr="pop"), args=[key, ast.Constant()], keywords=[]
        ) if "pop" not in run.sources[state.method[0]].methods:
            # whatever was there, nobody asks for it
            for after, (container, at) in each(run, [of, key], state):
                yield containers.drop(run, container, at, after), False, None
        case value:
            for after, _ in run.evaluated(value, state):
                yield after, False, None


def _return(run: Run, node: ast.Return, state: State) -> Iterator[Ended]:
    if node.value is None:
        yield state, True, None
        return
    for after, answer in run.evaluated(node.value, state):
        yield after, True, answer


def _assert(run: Run, node: ast.Assert, state: State) -> Iterator[Ended]:
    for after, value in run.evaluated(node.test, state):
        name = run.at(state, node, "assert")
        yield run.require(name, after, truth_of(after, value)), False, None


def _if(run: Run, node: ast.If, state: State) -> Iterator[Ended]:
    for branch, holds in decided(run, node.test, state):
        yield from run.block(node.body if holds else node.orelse, branch)


def _raise(run: Run, node: ast.Raise, state: State) -> list[Ended]:
    """What leads here must not happen."""
    run.require(run.at(state, node, ast.unparse(node)), state, False)
    return []


def _assign(run: Run, node: ast.Assign, state: State) -> Iterator[Ended]:
    (target,) = node.targets
    for after, operand in run.evaluated(node.value, state):
        for end in run.assigned(target, operand, after):
            yield end, False, None


def _annotated(run: Run, node: ast.AnnAssign, state: State) -> Iterator[Ended]:
    if node.value is None:
        raise run.refused_in(state, node)
    for after, operand in run.evaluated(node.value, state):
        for end in run.assigned(node.target, operand, after):
            yield end, False, None


def _augmented(run: Run, node: ast.AugAssign, state: State) -> Iterator[Ended]:
    match node.target:
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if only_counts(run, name, state):
            for after, operand in run.evaluated(node.value, state):
                number = term_of(operand)
                if isinstance(number, bool) or not isinstance(number, int | z3.ArithRef):
                    raise run.refused_in(state, node)
                yield after, False, None
        case target:
            load = ast.parse(ast.unparse(target), mode="eval").body
            for one in ast.walk(load):
                ast.copy_location(one, target)
            sum_ = ast.copy_location(ast.BinOp(load, node.op, node.value), node)
            yield from run.executed(ast.copy_location(ast.Assign([target], sum_), node), state)


def only_counts(run: Run, name: str, state: State) -> bool:
    """Whether an attribute of which nothing is proved is a number from the start, and stays one."""
    owner, _ = state.method
    return (owner, name) not in state.attributes and run.sources[owner].is_counter(name)


def _delete(run: Run, node: ast.Delete, state: State) -> Iterator[Ended]:
    match node.targets:
        case [ast.Subscript(value=container, slice=key)]:
            for after, (of, at) in each(run, [container, key], state):
                yield containers.delete(run, node, of, at, after), False, None
        case _:
            raise run.refused_in(state, node)


STATEMENTS: Mapping[type[ast.stmt], Statement] = {
    ast.AnnAssign: _annotated,
    ast.Assert: _assert,
    ast.Assign: _assign,
    ast.AugAssign: _augmented,
    ast.Delete: _delete,
    ast.Expr: _expression,
    ast.For: for_,
    ast.If: _if,
    ast.Pass: _pass,
    ast.Raise: _raise,
    ast.Return: _return,
    ast.While: while_,
}
