"""Claims: statements of a method, and what is true behind them whatever state they start in.

A claim makes two texts of the reference manager: one asserts it, which CPython never sees fail; the
other asserts that it is not so, which CPython sees fail wherever it comes to it. The statements of
one that `raises` fail by themselves. They stand in front of a method that changes nothing.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cacheproof.proofs.symbolic.encoder_cache import CLASS, of_reference
from cacheproof.proofs.symbolic.source import Source, source_in

METHOD = "get_cached_num_encoder_embeds"
OPERATION = "embeds"
FOLDER = Path(__file__).parent
TABLES = ("calls", "expressions", "containers", "aliases", "loops", "outside")
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
_CLAIMED = ast.Name("claimed", ast.Store())


@dataclass(frozen=True)
class Claim:
    """Statements, and what is claimed behind them.

    Attributes:
        construct: what of Python matters in them.
        word: "read": the translator proves it; "refused": its gate refuses the text; "unread": the
            text is refused where it is read, since what it means hangs on types.
        helpers: methods of the class that the statements call.
        statements: what a method begins with.
        claimed: an expression that is true behind them; None: they raise.
    """

    construct: str
    name: str
    word: str
    helpers: tuple[ast.stmt, ...]
    statements: tuple[ast.stmt, ...]
    claimed: ast.expr | None

    def __str__(self) -> str:
        return f"{self.construct}: {self.name}"

    @property
    def keeping(self) -> Source | None:
        """The text that CPython never sees fail."""
        return None if self.claimed is None else self._text("assert claimed")

    @property
    def breaking(self) -> Source:
        """The text that CPython sees fail."""
        if self.claimed is None:
            return self._text("")
        return self._text("assert not claimed")

    @property
    def _module(self) -> str:
        """The reference's; of claims of an OrderedDict one whose queue is such."""
        text = _reference().module
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
def _reference() -> Source:
    return of_reference().sources["m"]


def claims(tables: Sequence[str] = TABLES) -> Iterator[Claim]:
    """All claims of the tables, in their order.

    A table has a line `= construct` above claims of it, of each a line `word: name` and, indented,
    the statements, of which functions are methods of the class; the last calls `claim` with what is
    true, or `raises`.

    Raises:
        ValueError: a table is not of that form.
    """
    for table in tables:
        yield from _of_table((FOLDER / f"{table}.txt").read_text())


def _of_table(text: str) -> Iterator[Claim]:
    construct = ""
    for block in _blocks(text):
        first, *rest = block
        if first.startswith("= "):
            construct = first[2:]
            continue
        word, _, name = first.partition(": ")
        if word not in ("read", "refused", "unread") or not rest:
            raise ValueError(f"no claim: {first}")
        body = ast.parse("\n".join(line[4:] for line in rest)).body
        yield replace(_claim(body), construct=construct, name=name, word=word)


def _blocks(text: str) -> Iterator[list[str]]:
    """A line that is not indented, with those that are behind it."""
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


def _claim(body: Sequence[ast.stmt]) -> Claim:
    *before, last = body
    helpers = tuple(one for one in before if isinstance(one, ast.FunctionDef))
    statements = tuple(one for one in before if not isinstance(one, ast.FunctionDef))
    match last:
        case ast.Expr(value=ast.Call(func=ast.Name(id="claim"), args=[claimed])):
            return Claim("", "", "", helpers, statements, claimed)
        case ast.Expr(value=ast.Call(func=ast.Name(id="raises"), args=[])):
            return Claim("", "", "", helpers, statements, None)
    raise ValueError(f"the last statement claims nothing: {ast.unparse(last)}")
