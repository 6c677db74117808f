"""What a class's text must be for the translator to read it: all else is refused before it is run.

The translator reads statements and expressions one by one. What they mean depends on more than
their own text: on what the module does with a name, on decorators and bases, on what makes a name
local, on where an effect stands. What is said here of a text makes that plain, so that what is
left means what it says. Each refusal is a check by itself, and its docstring a line of
docs/reference/language.md; what a module and a class may be, gate_module.py says, and what a module
may run when it is imported, gate_import.py.
"""

import ast
import builtins
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.gate.gate_module import of_class, of_module, unbound
from cacheproof.proofs.symbolic.gate.gate_surface import OF_SURFACE, missing, not_of_requests
from cacheproof.proofs.symbolic.reading.source import Source, reached_from
from cacheproof.proofs.symbolic.values.language import (
    BUILTINS,
    CHANGES,
    EXPRESSIONS,
    OF_POOL,
    OF_THE_END,
    ONCE,
    OPERATORS,
    ORDERED,
    PARTS,
    STATEMENTS,
    VIEWS,
    NotTranslated,
    Refusal,
)

_READ = (*STATEMENTS, *EXPRESSIONS, *OPERATORS, *PARTS)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def refuse_subject(subject: Subject) -> None:
    """Refuse a subject of which a text that is run cannot be read: those under proof, and those
    that are run beside them, such as the ghost's.

    Raises:
        NotTranslated: names the file, the line, and what stands there.
    """
    called = [one.method for one in subject.operations if one.method]
    for owner, source in subject.sources.items():
        under_proof = owner in subject.under_proof
        refuse_unread(
            source,
            called if under_proof else subject.told.get(owner, ()),
            is_pool=bool(subject.objects),
            is_record=not under_proof,
        )
        if owner == "m":
            _refuse(source, missing(source, subject.also_called))
            for check in OF_SURFACE:
                _refuse(source, check(source, called))
            _refuse(source, not_of_requests(source, called, subject.absent))


def refuse_unread(
    source: Source, operations: Collection[str], *, is_pool: bool = False, is_record: bool = False
) -> None:
    """Refuse a class of which more than the text of its methods says what a call does.

    Args:
        source: the class.
        operations: the methods that are called.
        is_pool: whether the block pool's machine reads it, which reads some more.
        is_record: whether it may be a dataclass.

    Raises:
        NotTranslated: names the file, the line, and what stands there.
    """
    reached = {name for one in operations for name in reached_from(one, [source])}
    text = CalledMethods(
        source, [one for name, one in source.methods.items() if name in reached], is_pool
    )
    refusals = [of_module(source), *of_class(source, is_record=is_record)]
    for found in (*refusals, *(check(text) for check in CHECKS), unbound(source)):
        _refuse(source, found)


def _refuse(source: Source, refusals: Iterator[Refusal]) -> None:
    for refusal in refusals:
        place = f"{source.path}:{getattr(refusal.node, 'lineno', 0)}"
        raise NotTranslated(f"{place}: no reading of {refusal.what}", has_place=True)


@dataclass(frozen=True)
class CalledMethods:
    """The methods of a class that a call may run."""

    source: Source
    methods: list[ast.FunctionDef]
    is_pool: bool
    _parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for method in self.methods:
            for node in ast.walk(method):
                for child in ast.iter_child_nodes(node):
                    self._parents[child] = node

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All that is run; not annotations, nor what is raised."""
        return [node for method in self.methods for node in _run_in(method)]

    def parent(self, node: ast.AST) -> ast.AST:
        return self._parents[node]

    def has_effects(self, node: ast.AST) -> bool:
        """Whether a method of this class is run there, or one that changes a container."""
        return any(self.is_effect(one) for one in ast.walk(node))

    def is_effect(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in CHANGES or name in self.source.methods
            case ast.Attribute(attr=name):
                return name in self.source.properties
        return False


Check = Callable[[CalledMethods], Iterator[Refusal]]
CHECKS: list[Check] = []


def _check(check: Check) -> Check:
    CHECKS.append(check)
    return check


@_check
def _unread_nodes(text: CalledMethods) -> Iterator[Refusal]:
    """Statements, expressions and operators that the tables above do not name."""
    read = (*_READ, *OF_POOL) if text.is_pool else _READ
    for node in text.nodes:
        if not isinstance(node, read):
            where = node if hasattr(node, "lineno") else text.parent(node)
            yield Refusal(where, f"{type(node).__name__} in a method")


@_check
def _constants(text: CalledMethods) -> Iterator[Refusal]:
    """Fractions, complex numbers, bytes and the ellipsis."""
    for node in text.nodes:
        if isinstance(node, ast.Constant) and isinstance(
            node.value, float | complex | bytes | type(...)
        ):
            yield Refusal(node, ast.unparse(node))


@_check
def _operands(text: CalledMethods) -> Iterator[Refusal]:
    """`-` in front of anything but a number; `is` with anything but `None` at its right."""
    for node in text.nodes:
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                if not isinstance(operand, ast.Constant):
                    yield Refusal(node, ast.unparse(node))
            case ast.Compare(ops=operators, comparators=others):
                for operator, other in zip(operators, others, strict=True):
                    if isinstance(operator, ast.Is | ast.IsNot) and not _is_none(other):
                        yield Refusal(node, ast.unparse(node))


@_check
def _signatures(text: CalledMethods) -> Iterator[Refusal]:
    """Decorators but `property`; `*args`, `**kwargs`, positional-only and type parameters; a first
    parameter that is not `self`; defaults that are not constants; annotations that call."""
    for method in text.methods:
        if [ast.unparse(one) for one in method.decorator_list] not in ([], ["property"]):
            yield Refusal(method, f"a decorated method, {method.name}")
        given = method.args
        if given.vararg or given.kwarg:
            yield Refusal(method, f"{method.name}, which takes any number of arguments")
        if given.posonlyargs:
            yield Refusal(method, f"{method.name}, which has positional-only parameters")
        if getattr(method, "type_params", []):
            yield Refusal(method, f"{method.name}, which has type parameters")
        if [one.arg for one in given.args[:1]] != ["self"]:
            yield Refusal(method, f"{method.name}, whose first parameter is not self")
        for default in (*given.defaults, *given.kw_defaults):
            if default is not None and not isinstance(default, ast.Constant):
                yield Refusal(method, f"{method.name}, with a default {ast.unparse(default)}")
        for note in _annotations(method):
            if any(isinstance(one, ast.Call | ast.NamedExpr) for one in ast.walk(note)):
                yield Refusal(note, f"an annotation that is run: {ast.unparse(note)}")


@_check
def _local_names(text: CalledMethods) -> Iterator[Refusal]:
    """Parameters and variables that hide a builtin or the class, or bind `self` anew; names of
    parameters, variables and keywords that begin with two underscores, which Python changes."""
    hidden = {*BUILTINS, ORDERED, text.source.name}
    for method in text.methods:
        for node in ast.walk(method):
            match node:
                case ast.arg(arg=name) | ast.keyword(arg=str(name)) | ast.Name(id=name):
                    if name.startswith("__"):
                        yield Refusal(node, f"the name {name}")
    for method in text.methods:
        for given in (*method.args.args[1:], *method.args.kwonlyargs):
            if given.arg in hidden or given.arg == "self":
                yield Refusal(given, f"a parameter named {given.arg}")
    for node in text.nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                if name in hidden or name == "self":
                    yield Refusal(node, f"a local name {name}")
            case ast.Name(id=name) if name == text.source.name:
                yield Refusal(node, f"{name} in a method")


@_check
def _attributes(text: CalledMethods) -> Iterator[Refusal]:
    """Attributes in the place of methods, and those that begin with two underscores; properties
    that are called, and methods that are not."""
    called = {id(one.func) for one in text.nodes if isinstance(one, ast.Call)}
    for node in text.nodes:
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in text.source.methods:
                is_property = name in text.source.properties
                if is_property == (id(node) in called):
                    yield Refusal(node, f"{ast.unparse(node)} as if it were another kind of method")
            case ast.Attribute(attr=name) if name.startswith("__"):
                yield Refusal(node, ast.unparse(node))
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                if name in text.source.methods:
                    yield Refusal(node, f"an attribute in the place of the method {name}")


@_check
def _targets(text: CalledMethods) -> Iterator[Refusal]:
    """Several targets in one assignment; `del` of several things, or of what is no item; an
    annotation without a value; `else` of a loop; what a loop or a comprehension binds but names,
    each once."""
    for node in text.nodes:
        match node:
            case ast.For(target=target) | ast.comprehension(target=target) if not _is_of_names(
                target
            ):
                yield Refusal(target, f"{ast.unparse(target)} bound by a loop")
            case ast.Assign(targets=[_, _, *_]) | ast.AnnAssign(value=None):
                yield Refusal(node, ast.unparse(node))
            case ast.Delete(targets=targets):
                if len(targets) != 1 or not isinstance(targets[0], ast.Subscript):
                    yield Refusal(node, ast.unparse(node))
            case ast.For(orelse=[_, *_]) | ast.While(orelse=[_, *_]):
                yield Refusal(node, "else of a loop")


@_check
def _raised(text: CalledMethods) -> Iterator[Refusal]:
    """`raise` of anything but one of Python's exceptions by its name, which `except Exception`
    catches; a call in what it is given but of a method of the class."""
    for node in text.nodes:
        if isinstance(node, ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            known = getattr(builtins, raised.id, None) if isinstance(raised, ast.Name) else None
            is_plain = isinstance(known, type) and issubclass(known, Exception)
            others = [
                one
                for one in ast.walk(node)
                if isinstance(one, ast.Call)
                and one is not node.exc
                and not (isinstance(one.func, ast.Attribute) and text.is_effect(one))
            ]
            if not is_plain or others:
                yield Refusal(node, ast.unparse(node))


@_check
def _places_of_effects(text: CalledMethods) -> Iterator[Refusal]:
    """Effects in a comprehension, in an assertion, in the target of an augmented assignment, and in
    its value where the target is an item."""
    asked: list[ast.expr]
    for node in text.nodes:
        match node:
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                asked, where = [node], "a comprehension"
            case ast.Assert(test=test):
                asked, where = [test], "an assertion"
            case ast.AugAssign(target=ast.Subscript() as target, value=value):
                asked, where = [target, value], "an augmented assignment"
            case ast.AugAssign(target=asked_of):
                asked, where = [asked_of], "an augmented target"
            case _:
                continue
        for one in asked:
            if text.has_effects(one):
                yield Refusal(one, f"effects in {where}: {ast.unparse(one)}")


@_check
def _comprehensions(text: CalledMethods) -> Iterator[Refusal]:
    """Comprehensions with several `for`, inside one another, with `next`, or with what is evaluated
    of some members alone: `and`, `or`, `... if ... else`, chained comparisons, a second `if`, and
    what stands before an `if`, unless that is a name; a generator but as the one argument of `any`
    and `all`."""
    for node in text.nodes:
        if not isinstance(node, _COMPREHENSIONS):
            continue
        if len(node.generators) != 1:
            yield Refusal(node, ast.unparse(node))
        inside = [one for part in ast.iter_child_nodes(node) for one in ast.walk(part)]
        if any(isinstance(one, _COMPREHENSIONS) or _is_call(one, {"next"}) for one in inside):
            yield Refusal(node, f"what one member decides for all: {ast.unparse(node)}")
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        ifs = [one for head in node.generators for one in head.ifs]
        is_filter = isinstance(element, ast.Name)
        if any(map(_decides, inside)) or len(ifs) > 1 or (ifs and not is_filter):
            yield Refusal(node, f"what is evaluated of some members alone: {ast.unparse(node)}")
        if isinstance(node, ast.GeneratorExp):
            parent = text.parent(node)
            if not (_is_call(parent, {"any", "all"}) and parent.args == [node]):  # type: ignore[attr-defined]
                yield Refusal(node, ast.unparse(node))


@_check
def _views(text: CalledMethods) -> Iterator[Refusal]:
    """Views, iterators and ranges that are kept, compared or asked for their truth value: they go
    on showing what they are of, so they are run through where they stand."""
    for node in text.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in VIEWS:
                at_once = _is_run_through(text, node) or _is_call(
                    text.parent(node), {"iter", "reversed"}
                )
                asked = isinstance(text.parent(node), ast.Compare)
                if not at_once and not (asked and name == "values"):
                    yield Refusal(node, f"a view that is kept: {ast.unparse(node)}")
            case ast.Call(func=ast.Name(id="range" | "enumerate" | "reversed")):
                if not _is_run_through(text, node):
                    yield Refusal(node, f"an iterator that is kept: {ast.unparse(node)}")
            case ast.Call(func=ast.Name(id="iter")):
                inner = node.args[0] if len(node.args) == 1 else node
                if not _is_call(text.parent(node), {"next"}) or _is_call(inner, {*BUILTINS}):
                    yield Refusal(node, f"an iterator that is kept: {ast.unparse(node)}")
            case ast.Call(func=ast.Name(id="next"), args=[first, *_]):
                if not _is_call(first, {"iter", "reversed"}):
                    yield Refusal(node, f"next of what is no iterator: {ast.unparse(node)}")


@_check
def _recursion(text: CalledMethods) -> Iterator[Refusal]:
    """Methods that may call themselves."""
    of_class = text.source.methods
    calls = {
        name: {one.attr for one in ast.walk(method) if isinstance(one, ast.Attribute)} & {*of_class}
        for name, method in of_class.items()
    }
    for method in text.methods:
        reached, to_do = set(), [*calls[method.name]]
        while to_do:
            if (name := to_do.pop()) not in reached:
                reached.add(name)
                to_do += calls[name]
        if method.name in reached:
            yield Refusal(method, f"{method.name}, which may call itself")


@_check
def _ordered_dicts(text: CalledMethods) -> Iterator[Refusal]:
    """`move_to_end` and `popitem` of anything but an attribute that is always an `OrderedDict`."""
    bound = [
        (ast.unparse(target), ast.unparse(value))
        for method in text.source.methods.values()
        for node in ast.walk(method)
        for target, value in _assigned(node)
    ]
    for node in text.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in OF_THE_END
        ):
            name = ast.unparse(node.func.value)
            values = {value for target, value in bound if target == name}
            if not name.startswith("self.") or values != {f"{ORDERED}()"}:
                yield Refusal(node, f"{ast.unparse(node)} where it may be no {ORDERED}")


def _run_in(method: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a method's body, but annotations and what is raised."""
    to_do: list[ast.AST] = list(method.body)
    while to_do:
        node = to_do.pop(0)
        yield node
        if isinstance(node, ast.Raise):
            continue
        skipped = node.annotation if isinstance(node, ast.AnnAssign) else None
        to_do += [child for child in ast.iter_child_nodes(node) if child is not skipped]


def _decides(node: ast.AST) -> bool:
    """Whether an expression has a part that is not always evaluated."""
    is_chain = isinstance(node, ast.Compare) and len(node.ops) > 1
    return is_chain or isinstance(node, ast.BoolOp | ast.IfExp)


def _is_of_names(target: ast.expr) -> bool:
    """Whether it is a name, or a tuple of names of which no two are alike."""
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [one.id for one in parts if isinstance(one, ast.Name)]
    return len(names) == len(parts) == len(set(names))


def _annotations(method: ast.FunctionDef) -> Iterator[ast.expr]:
    for node in ast.walk(method):
        match node:
            case ast.arg(annotation=ast.expr() as note) | ast.AnnAssign(annotation=note):
                yield note
    if method.returns is not None:
        yield method.returns


def _is_run_through(text: CalledMethods, node: ast.AST) -> bool:
    """Whether a loop, a comprehension or a builtin runs through it where it stands."""
    parent = text.parent(node)
    if isinstance(parent, ast.For | ast.comprehension):
        return parent.iter is node
    return _is_call(parent, ONCE)


def _is_call(node: ast.AST, names: Collection[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets of an assignment, and what is put there; of several at once, each what all get."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _paired(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.AugAssign(target=target, value=value):
            yield target, value


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    match target, value:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values):
            for one, other in zip(targets, values, strict=False):
                yield from _paired(one, other)
        case ast.Tuple(elts=targets), _:
            for one in targets:
                yield from _paired(one, value)
        case _:
            yield target, value


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
