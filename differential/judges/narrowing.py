"""Contracts narrowed to the entries that a call changed.

Most contracts speak of all entries, and a call changes one or two of them. What this makes of a
contract's own text says the same and looks at fewer entries: it keeps the text and narrows what
`all` or a sum ranges over, where one of four rules says that the entries it leaves out cannot break
it.

    key by key   a conjunct that asks the same of every entry by itself, of a state that held it
                 before the call: what did not change, still holds
    difference   a conjunct that asks only of entries that are in a map before the call and not in
                 it afterwards: what did not change, is not asked about
    one point    a conjunct that asks only of the call's own entry
    sum          an equation between numbers of a state and sums over its entries, of a state that
                 held it before the call: both sides have grown by the same, and a sum by what those
                 that changed bring

Whatever no rule covers is asked as it stands. A test holds both texts to the same answers.
"""

import ast
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any, get_origin, get_type_hints

from cacheproof.spec import subset, vocabulary
from cacheproof.spec.registry import Contract

CHANGED = "changed"
"""The entries of which the state, or what is `followed` of the ghost, is not what it was."""
Narrow = Callable[[ast.expr], ast.expr]
Holds = Callable[..., bool]
_DOMAIN = ast.Name(CHANGED, ast.Load())
_RECORD = "record"


_BROUGHT = {
    "total": "{0}[h] if h in {0} else 0",
    "total_unheld": "{0}[h] if h in {0} and not {1}[h] else 0",
}
"""What an entry brings to the sum that a word of contracts is."""


def of_states(rules: Iterable[Contract], followed: Set[str]) -> Holds:
    """Whether all these contracts of states hold, under pre, s, g and changed, provided that they
    did before the call, of `pre`. `followed` are the maps of the ghost that change as `changed`
    says."""

    def narrow(conjunct: ast.expr) -> ast.expr:
        match conjunct:
            case ast.Call(func=ast.Name(id="within"), args=[part, whole]):
                by_key = subset.key_by_key(part, whole)
                narrowed = narrow(by_key)
                return conjunct if narrowed is by_key else narrowed
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                sides = _grown(left), _grown(right)
                if None not in sides:
                    return ast.parse(f"{sides[0]} == {sides[1]}", mode="eval").body
        generator, over = _quantified(conjunct)
        maps = followed | {one for one in _attributes(conjunct) if one.startswith("s.")}
        if over is None or ast.unparse(over.iter) not in maps:
            return conjunct
        parts = [generator.elt, *over.ifs]
        is_by_key = all(_is_of_key(part, _key(over), maps) for part in parts)
        return _narrowed(generator, over, _DOMAIN) if is_by_key else conjunct

    return _compiled(("pre", "s", "g", CHANGED), [(rule, narrow) for rule in rules])


def of_transitions(rules: Iterable[Contract]) -> Holds:
    """Whether all these contracts of transitions hold, under pre, post, g, c and changed."""

    def narrow(conjunct: ast.expr) -> ast.expr:
        generator, over = _quantified(conjunct)
        if over is None or not _is_of_gone(generator, over):
            return conjunct
        element = _Swapped().visit(copy.deepcopy(generator.elt))
        return _narrowed(ast.GeneratorExp(element, [over]), over, _DOMAIN)

    return _compiled(("pre", "post", "g", "c", CHANGED), [(rule, narrow) for rule in rules])


def of_promises(rules: Iterable[Contract], operation: str) -> Holds:
    """Whether all these promises about calls of one operation hold, under s, g, w and c."""

    def narrow(conjunct: ast.expr) -> ast.expr:
        generator, over = _quantified(conjunct)
        if over is None:
            return conjunct
        other = f"{_key(over)} != c.identifier"
        if other not in map(ast.unparse, _disjuncts(generator.elt, operation)):
            return conjunct
        return _narrowed(generator, over, ast.parse("(c.identifier,)", mode="eval").body)

    return _compiled(("s", "g", "w", "c"), [(rule, narrow) for rule in rules])


def of_records(rules: Sequence[Contract]) -> Holds:
    """Whether all these contracts hold of one record, which each of them takes alone. Their texts
    are asked as they stand, without a call of Python for each: loops take the place of `all`, and
    of a tuple in which a loop looks entries up the set of its entries."""
    if not rules:
        return lambda record: True
    (kind,) = {one for rule in rules for one in _kinds(rule)}
    lines = [
        line
        for rule in rules
        for conjunct in conjuncts(_Renamed(rule.parameters[0]).visit(_copy(rule)))
        for line in _asked(conjunct, set())
    ]
    body = "\n    ".join([*lines, "return True"])
    function = _Members(kind).visit(ast.parse(f"def holds({_RECORD}):\n    {body}"))
    return _executed(_Looked((_RECORD,)).visit(function))


def _kinds(rule: Contract) -> Iterator[type]:
    """The types of what a contract takes."""
    return (one for name, one in rule.predicate.__annotations__.items() if name != "return")


def _copy(rule: Contract) -> ast.expr:
    return copy.deepcopy(rule.expression.tree)


class _Renamed(ast.NodeTransformer):
    """Gives the only parameter of a contract the name that all contracts about one record share."""

    def __init__(self, parameter: str) -> None:
        self._parameter = parameter

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(_RECORD, node.ctx) if node.id == self._parameter else node


class _Members(ast.NodeTransformer):
    """Looks entries up in the set of a tuple's entries, where a loop looks up several."""

    def __init__(self, kind: type) -> None:
        self._tuples = {
            name for name, one in get_type_hints(kind).items() if get_origin(one) is tuple
        }
        self._found: dict[str, None] = {}
        self._loops = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        sets = [ast.parse(f"of_{one} = frozenset({_RECORD}.{one})").body[0] for one in self._found]
        node.body = [*sets, *node.body]
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        node.iter = self.visit(node.iter)
        self._loops += 1
        node.body = [self.visit(one) for one in node.body]
        self._loops -= 1
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        self._loops += 1
        self.generic_visit(node)
        self._loops -= 1
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Compare(
                ops=[ast.In() | ast.NotIn()],
                comparators=[ast.Attribute(value=ast.Name(id=name), attr=attribute)],
            ) if self._loops and name == _RECORD and attribute in self._tuples:
                self._found[attribute] = None
                return ast.Compare(node.left, node.ops, [ast.Name(f"of_{attribute}", ast.Load())])
        return node


def _grown(node: ast.expr) -> str | None:
    """By how much a number of a state, a sum over its entries, or what these add up to, is more
    than before the call; None where it is something else."""
    text = ast.unparse(node)
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right):
            parts = _grown(left), _grown(right)
            operator = "+" if isinstance(sign, ast.Add) else "-"
            return None if None in parts else f"({parts[0]} {operator} {parts[1]})"
        case ast.Attribute(value=ast.Name(id="s")):
            return f"({text} - {_before(text)})"
        case ast.Call(func=ast.Name(id=word), args=args) if word in _BROUGHT:
            if any(_root(one) != "s" for one in args):
                return None
            now = _BROUGHT[word].format(*map(ast.unparse, args))
            return f"sum([({now}) - ({_before(now)}) for h in {CHANGED}])"
    return None


def _before(text: str) -> str:
    """An expression about the state after a call, made to speak of the state before it."""
    tree = ast.parse(text, mode="eval")
    for one in ast.walk(tree):
        if isinstance(one, ast.Name) and one.id == "s":
            one.id = "pre"
    return ast.unparse(tree)


def _compiled(parameters: Sequence[str], narrows: Iterable[tuple[Contract, Narrow]]) -> Holds:
    lines = _gathered(
        narrow(conjunct) for rule, narrow in narrows for conjunct in conjuncts(rule.expression.tree)
    )
    body = "\n    ".join([*lines, "return True"])
    tree = _Looked(parameters).visit(ast.parse(f"def holds({', '.join(parameters)}):\n    {body}"))
    return _executed(tree)


def _executed(tree: ast.AST) -> Holds:
    """The function of a module's text."""
    names: dict[str, Any] = {word: getattr(vocabulary, word) for word in vocabulary.WORDS}
    exec(compile(ast.unparse(tree), "<narrowed contracts>", "exec"), names)
    holds: Holds = names["holds"]
    return holds


def _gathered(conjuncts: Iterable[ast.expr]) -> list[str]:
    """The lines that ask conjuncts, of which all that ask of what changed are one loop: what is
    asked of each of these entries, by where it must be for that, and what it brings to sums."""
    lines: list[str] = []
    equations: list[str] = []
    sums = _Sums()
    asked: dict[str, dict[str, list[str]]] = {}
    for conjunct in conjuncts:
        generator, over = _quantified(conjunct)
        if over is not None and ast.unparse(over.iter) == CHANGED and len(over.ifs) == 1:
            there = asked.setdefault(_key(over), {}).setdefault(ast.unparse(over.ifs[0]), [])
            there += _asked(generator.elt, {_key(over)})
        elif over is not None:
            lines += _asked(conjunct, set())
        else:
            equations += _asked(sums.visit(conjunct), set())
    if sums.brought:
        lines += [f"{name} = 0" for name in sums.brought]
        asked.setdefault("h", {})
    for key, elements in asked.items():
        lines.append(f"for {key} in {CHANGED}:")
        for place, parts in elements.items():
            lines += [f"    if {place}:", *(f"        {part}" for part in parts)]
        if key == "h":
            lines += [f"    {name} += {brought}" for name, brought in sums.brought.items()]
    return [*lines, *equations]


class _Sums(ast.NodeTransformer):
    """Puts names in the place of sums of what those that changed bring, which is `brought`."""

    def __init__(self) -> None:
        self.brought: dict[str, str] = {}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(func=ast.Name(id="sum"), args=[ast.ListComp(elt=brought)]):
                name = f"brought_{len(self.brought)}"
                self.brought[name] = ast.unparse(brought)
                return ast.Name(name, ast.Load())
        return self.generic_visit(node)


def _asked(node: ast.expr, keys: Set[str]) -> list[str]:
    """The lines that ask a conjunct, in loops over `keys`: a loop in the place of `all`."""
    match node:
        case ast.BoolOp(op=ast.Or(), values=[*others, last]) if _quantified(last)[1] is not None:
            rest = ast.unparse(ast.BoolOp(ast.Or(), others))
            return [f"if not ({rest}):", *(f" {line}" for line in _asked(last, keys))]
    generator, over = _quantified(node)
    if over is None or _key(over) in keys:
        parts = list(conjuncts(node))
        if len(parts) > 1:
            return [line for part in parts for line in _asked(part, keys)]
        return [f"if not ({ast.unparse(node)}): return False"]
    lines = [f"for {_key(over)} in {ast.unparse(over.iter)}:"]
    lines += [f"{' ' * depth}if {ast.unparse(one)}:" for depth, one in enumerate(over.ifs, 1)]
    depth = " " * len(lines)
    return [*lines, *(depth + line for line in _asked(generator.elt, {*keys, _key(over)}))]


class _Looked(ast.NodeTransformer):
    """Looks each attribute of the parameters up once."""

    def __init__(self, parameters: Sequence[str]) -> None:
        self._parameters = parameters
        self._names: dict[str, str] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        looked = [ast.parse(f"{name} = {text}").body[0] for text, name in self._names.items()]
        node.body = [*looked, *node.body]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not isinstance(node.value, ast.Name) or node.value.id not in self._parameters:
            return self.generic_visit(node)
        text = ast.unparse(node)
        return ast.Name(self._names.setdefault(text, text.replace(".", "_")), ast.Load())


def _quantified(node: ast.expr) -> tuple[ast.GeneratorExp, ast.comprehension | None]:
    """What `all` is asked of, and what it ranges over; None where it is no single `all`."""
    match node:
        case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp(generators=[over]) as one]):
            return one, over
    return ast.GeneratorExp(node, []), None


def _narrowed(generator: ast.GeneratorExp, over: ast.comprehension, domain: ast.expr) -> ast.expr:
    """`all` over those of a domain that it ranges over."""
    is_there = ast.Compare(ast.Name(_key(over), ast.Load()), [ast.In()], [over.iter])
    narrowed = ast.comprehension(over.target, domain, [is_there, *over.ifs], 0)
    return ast.Call(ast.Name("all", ast.Load()), [ast.GeneratorExp(generator.elt, [narrowed])], [])


class _Swapped(ast.NodeTransformer):
    """Entries that are in a map of the ghost and in one of a state are looked for in the state's:
    the ghost's remembers those that left long ago."""

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        match node.ifs:
            case [ast.Compare(left=left, ops=[ast.In()], comparators=[other]), *rest] if (
                ast.unparse(left) == ast.unparse(node.target)
                and _root(node.iter) == "g"
                and _root(other) in ("pre", "post")
            ):
                is_there = ast.Compare(left, [ast.In()], [node.iter])
                return ast.comprehension(node.target, other, [is_there, *rest], 0)
        return node


def conjuncts(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of a contract's text all of which are to hold."""
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            for part in parts:
                yield from conjuncts(part)
        case _:
            yield node


def _disjuncts(node: ast.expr, operation: str) -> Iterator[ast.expr]:
    """What a call of the operation can still be held to by: `c.operation == ...` is left out where
    it is true."""
    match node:
        case ast.BoolOp(op=ast.Or(), values=parts):
            for part in parts:
                yield from _disjuncts(part, operation)
        case ast.BoolOp(op=ast.And()):
            left = [
                part
                for part in conjuncts(node)
                if ast.unparse(part) != f"c.operation == {operation!r}"
            ]
            if len(left) == 1:
                yield from left
        case _:
            yield node


def _key(over: ast.comprehension) -> str:
    return ast.unparse(over.target)


def _attributes(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute):
            yield ast.unparse(one)


def _is_of_key(node: ast.AST, key: str, maps: Set[str]) -> bool:
    """Whether an expression says something of one key in these maps, and of nothing else."""
    match node:
        case ast.BoolOp(values=parts):
            return all(_is_of_key(part, key, maps) for part in parts)
        case ast.UnaryOp(operand=operand):
            return _is_of_key(operand, key, maps)
        case ast.Compare(left=ast.Name(id=name), ops=[ast.In() | ast.NotIn()], comparators=[where]):
            return name == key and ast.unparse(where) in maps
        case ast.Compare(left=left, comparators=others):
            return all(_is_of_key(part, key, maps) for part in [left, *others])
        case ast.Subscript(value=value, slice=ast.Name(id=name)):
            return name == key and ast.unparse(value) in maps
        case _:
            return isinstance(node, ast.Constant)


def _is_of_gone(generator: ast.GeneratorExp, over: ast.comprehension) -> bool:
    """Whether it asks only of entries that one map has before the call, and not afterwards."""
    asked = {ast.unparse(part) for one in over.ifs for part in conjuncts(one)}
    match generator.elt:
        case ast.Compare(left=left, ops=[ast.In()], comparators=[where]):
            asked.add(f"{ast.unparse(left)} not in {ast.unparse(where)}")
    before, after = f"{_key(over)} in pre.", f"{_key(over)} not in post."
    return any(one.replace(before, after) in asked for one in asked if one.startswith(before))


def _root(node: ast.AST) -> str:
    """The parameter whose attribute an expression is."""
    match node:
        case ast.Attribute(value=ast.Name(id=name)):
            return name
    return ""
