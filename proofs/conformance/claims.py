"""Claims: statements of a method, and what is true behind them whatever state they start in.

A claim makes two texts of the reference manager: one asserts it, which CPython never sees fail; the
other asserts that it is not so, which CPython sees fail wherever it comes to it. The statements of
a claim that `raises` fail by themselves. They stand in front of a method that changes nothing.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from inspect import getfile
from pathlib import Path

from cacheproof.proofs.symbolic.reading.source import Source, source_in
from cacheproof.reference.encoder_cache import EncoderCacheManager

CLASS = EncoderCacheManager.__name__
METHOD = "get_cached_num_encoder_embeds"
OPERATION = "embeds"
FOLDER = Path(__file__).parent
TABLES = (
    *("calls", "expressions", "containers", "aliases", "loops", "turns", "outside"),
    "plain",
)
WORDS = ("read", "refused", "unread", "unproved", "alarmed")
_GIVEN = """
identifier = request.mm_features[input_id].identifier
name = request.request_id
"""
"""What statements may speak of beside the method's parameters."""
_QUEUE, _ORDERED_QUEUE = (
    f"self.freeable: dict[str, int] = {value}" for value in ("{}", "OrderedDict()")
)
_IMPORTS = "from collections import Counter, OrderedDict"
ORDERED = "methods of an OrderedDict"
"""The construct of claims of a manager whose queue is an OrderedDict."""
LOGGED = "what is logged"
"""The construct of claims of a module with a logger."""
_LOGGER = """
from vllm.logger import init_logger
logger = init_logger(__name__)
"""
_CLAIMED = ast.Name("claimed", ast.Store())


@dataclass(frozen=True)
class Stated:
    """What is stated of a loop, as a proof's table states it: expressions that are true where it
    begins anew, in which `seen` are the members that are done, `members` those that there are, and
    `turns` the turns that are done; and a number that goes down in a while loop."""

    line: int
    invariants: list[ast.expr] = field(default_factory=list)
    variant: ast.expr | None = None


@dataclass(frozen=True)
class ConformanceClaim:
    """Statements, and what is claimed behind them.

    Attributes:
        construct: what of Python matters in them.
        word: "read": the translator proves it; "refused": its gate refuses the text; "unread": the
            text is refused where it is read, since what it means hangs on types; "unproved":
            what is stated of a loop is not so, and no proof comes of it; "alarmed": it is taken for
            what may raise, though it does not.
        helpers: methods of the class that the statements call.
        statements: what a method begins with.
        claimed: an expression that is true behind them; None: they raise.
        loops: what is stated of loops, by method, in their order.
    """

    construct: str
    name: str
    word: str
    helpers: tuple[ast.stmt, ...]
    statements: tuple[ast.stmt, ...]
    claimed: ast.expr | None
    loops: Mapping[str, Sequence[Stated]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.construct}: {self.name}"

    @cached_property
    def keeping(self) -> Source | None:
        """The text that CPython never sees fail."""
        return None if self.claimed is None else self._text("assert claimed")

    @cached_property
    def breaking(self) -> Source:
        """The text that CPython sees fail."""
        if self.claimed is None:
            return self._text("")
        return self._text("assert not claimed")

    @property
    def _module(self) -> str:
        """The reference's module; for claims of an OrderedDict one whose queue is such, for claims
        of logging one with a logger."""
        text = _reference()
        if self.construct == LOGGED:
            return text.replace("from collections import Counter", f"{_IMPORTS}{_LOGGER}")
        if not self.is_of_ordered:
            return text
        text = text.replace(_QUEUE, _ORDERED_QUEUE)
        return text.replace("from collections import Counter", _IMPORTS)

    @property
    def is_of_ordered(self) -> bool:
        return self.construct == ORDERED

    def _text(self, asserted: str) -> Source:
        tree = ast.parse(self._module)
        found = next(one for one in tree.body if isinstance(one, ast.ClassDef))
        method = next(
            one for one in found.body if isinstance(one, ast.FunctionDef) and one.name == METHOD
        )
        named = [] if self.claimed is None else [ast.Assign([_CLAIMED], self.claimed)]
        end = [*named, *ast.parse(asserted).body]
        method.body = [*ast.parse(_GIVEN).body, *self.statements, *end, *method.body[1:]]
        found.body += self.helpers
        return source_in(ast.unparse(ast.fix_missing_locations(tree)), CLASS, "text")


@cache
def _reference() -> str:
    return Path(getfile(EncoderCacheManager)).read_text()


def claims(tables: Sequence[str] = TABLES) -> Iterator[ConformanceClaim]:
    """All claims of the tables, in their order.

    A table has a line `= construct` above its claims, for each claim a line `word: name` and,
    indented, the statements, of which functions are methods of the class; the last calls `claim`
    with what is true, or `raises`. After a loop, calls of `invariant` and `variant` state what a
    proof needs.

    Raises:
        ValueError: a table is not of that form.
    """
    for table in tables:
        yield from _of_table((FOLDER / f"{table}.txt").read_text())


def _of_table(text: str) -> Iterator[ConformanceClaim]:
    construct = ""
    for block in _blocks(text):
        first, *rest = block
        if first.startswith("= "):
            construct = first[2:]
            continue
        word, _, name = first.partition(": ")
        if word not in WORDS or not rest:
            raise ValueError(f"no claim: {first}")
        body = ast.parse("\n".join(line[4:] for line in rest)).body
        yield replace(_claim(body), construct=construct, name=name, word=word)


def _blocks(text: str) -> Iterator[list[str]]:
    """Each line that is not indented, with the indented lines after it."""
    block: list[str] = []
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            if block:
                yield block
            block = [line]
        elif line.startswith(" "):
            block.append(line)
    if block:
        yield block


def _claim(body: Sequence[ast.stmt]) -> ConformanceClaim:
    *before, last = body
    loops: dict[str, list[Stated]] = {}
    helpers = []
    for one in before:
        if isinstance(one, ast.FunctionDef):
            one.body = _without_stated(one.body, loops.setdefault(one.name, []))
            helpers.append(one)
    plain = [one for one in before if not isinstance(one, ast.FunctionDef)]
    statements = _without_stated(plain, loops.setdefault(METHOD, []))
    in_order = {
        name: sorted(stated, key=lambda one: one.line) for name, stated in loops.items() if stated
    }
    match last:
        case ast.Expr(value=ast.Call(func=ast.Name(id="claim"), args=[expression])):
            claimed: ast.expr | None = expression
        case ast.Expr(value=ast.Call(func=ast.Name(id="raises"), args=[])):
            claimed = None
        case _:
            raise ValueError(f"the last statement claims nothing: {ast.unparse(last)}")
    return ConformanceClaim("", "", "", tuple(helpers), tuple(statements), claimed, in_order)


def _without_stated(body: Sequence[ast.stmt], stated: list[Stated]) -> list[ast.stmt]:
    """Statements without what is stated of the loops among them, which is added to the list."""
    left: list[ast.stmt] = []
    for one in body:
        match one:
            case ast.Expr(value=ast.Call(func=ast.Name(id="invariant"), args=[expression])):
                _of_last(left, stated).invariants.append(expression)
                continue
            case ast.Expr(value=ast.Call(func=ast.Name(id="variant"), args=[expression])):
                loop = _of_last(left, stated)
                stated[stated.index(loop)] = replace(loop, variant=expression)
                continue
            case ast.For() | ast.While() | ast.If():
                one.body = _without_stated(one.body, stated)
                one.orelse = _without_stated(one.orelse, stated)
        left.append(one)
    return left


def _of_last(left: Sequence[ast.stmt], stated: list[Stated]) -> Stated:
    line = left[-1].lineno
    found = next((one for one in stated if one.line == line), None)
    if found is None:
        found = Stated(line)
        stated.append(found)
    return found
