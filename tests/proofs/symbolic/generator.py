"""Random methods within the language, each with a claim that CPython settles.

A seed makes one method: assignments, aliases, calls of helpers by place and by name, items that
are set, taken out and replaced, tuples, conditions, comprehensions. Of each there are two texts:
one claims something at its end, the other denies it.
"""

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from cacheproof.proofs.conformance.claims import ConformanceClaim
from cacheproof.proofs.conformance.cpython import OfCPython
from cacheproof.proofs.conformance.judges import OfTranslator, Said

HELPERS = tuple(
    ast.parse(
        """
def _taken(self):
    self.num_free_slots -= 1
    return self.num_free_slots
def _minus(self, a, b):
    return a - b
def _holders(self, h):
    return self.cached.setdefault(h, set())
def _renew(self, h, r):
    self.cached.pop(h, None)
    self.cached[h] = set()
    return r
def _drop(self, *, h):
    self.cached.pop(h, None)
def _put(self, sizes, h, n):
    sizes[h] = n
    return n
def _mark(self, holders, r):
    holders.add(r)
    return holders
def _is_in(self, r, holders):
    return r in holders
"""
    ).body
)
STATEMENTS_MAX = 5
DEPTH_MAX = 1


@dataclass
class _Scope:
    """Variables that every path has bound, by what they hold."""

    bound: dict[str, list[str]] = field(default_factory=dict)

    def names(self, kind: str) -> list[str]:
        return self.bound.get(kind, [])

    def copy(self) -> "_Scope":
        return _Scope({kind: list(names) for kind, names in self.bound.items()})


class _Writer:
    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._scope = _Scope()
        self._number = 0
        self._pending: dict[str, str] = {}

    def method(self) -> tuple[list[ast.stmt], ast.expr]:
        first = ["self.cached.setdefault(identifier, set())", "n0 = self.num_free_slots"]
        self._scope.bound["number"] = ["n0"]
        lines = [*first, *self._block(self._dice.randint(2, STATEMENTS_MAX), DEPTH_MAX)]
        claimed = ast.parse(self._condition(1), mode="eval").body
        return ast.parse("\n".join(lines)).body, claimed

    def _one(self, *of: str) -> str:
        return self._dice.choice(of)

    def _new(self, kind: str) -> str:
        self._number += 1
        name = f"{kind[0]}{self._number}"
        self._pending[name] = kind
        return name

    def _block(self, count: int, depth: int) -> list[str]:
        return [line for _ in range(count) for line in self._statement(depth)]

    def _statement(self, depth: int) -> list[str]:
        kind = self._one(*["set", "map", "number", "alias", "list", "claims", "tuple", "helper"])
        if depth > 0 and self._dice.random() < 0.2:
            return self._if(depth - 1)
        line: str = getattr(self, f"_{kind}_statement")()
        for node in ast.walk(ast.parse(line)):
            if isinstance(node, ast.Name) and node.id in self._pending:
                self._scope.bound.setdefault(self._pending.pop(node.id), []).append(node.id)
        self._pending.clear()  # of statements that were not taken
        return [line]

    def _if(self, depth: int) -> list[str]:
        before = self._scope.copy()
        lines = [f"if {self._condition(depth)}:"]
        lines += [f"    {one}" for one in self._block(self._dice.randint(1, 2), depth)]
        self._scope = before.copy()
        if self._dice.random() < 0.5:
            lines += ["else:"]
            lines += [f"    {one}" for one in self._block(self._dice.randint(1, 2), depth)]
            self._scope = before
        return lines

    # statements

    def _set_statement(self) -> str:
        return self._one(
            f"{self._set()}.{self._one('add', 'discard')}({self._name()})",
            f"{self._set()}.add(name)",
            f"{self._set()}.clear()",
            "self.cached[identifier] = set()",
            "self.cached.pop(identifier, None)",
            "self.cached = {}",
            "if identifier in self.cached: del self.cached[identifier]",
        )

    def _map_statement(self) -> str:
        sizes = self._map()
        return self._one(
            f"{sizes}[identifier] = {self._any_number()}",
            f"{sizes}.pop(identifier, None)",
            f"{sizes}.setdefault(identifier, {self._any_number()})",
            f"if identifier in {sizes}: {sizes}[identifier] += {self._any_number()}",
            f"{sizes}.clear()",
        )

    def _number_statement(self) -> str:
        value = self._any_number()
        if self._dice.random() < 0.5:
            return f"self.num_free_slots {self._one('=', '+=', '-=')} {value}"
        return f"{self._new('number')} = {value}"

    def _alias_statement(self) -> str:
        if self._dice.random() < 0.6:
            value = self._set()
            if self._dice.random() < 0.3:
                value = "self.cached.pop(identifier, set())"
            return f"{self._new('set')} = {value}"
        value = self._map()
        return f"{self._new('map')} = {value}"

    def _list_statement(self) -> str:
        return self._one(
            f"{self._list()}.append(identifier)",
            f"{self._list()}.clear()",
            f"{self._new('found')} = [h for h in self.cached if h in {self._map()}]",
            f"{self._new('list')}, self.freed = self.freed, []",
            f"{self._new('list')} = self.freed",
        )

    def _claims_statement(self) -> str:
        claims = self._one("self._claims.setdefault(name, {})", *self._scope.names("claims"))
        return self._one(
            f"{self._new('claims')} = self._claims.setdefault(name, {{}})",
            f"{claims}[input_id] = identifier",
            f"{claims}.pop(input_id, None)",
            "self._claims[name] = {}",
            "self._claims.pop(name, None)",
        )

    def _tuple_statement(self) -> str:
        sets = "self.cached.setdefault(identifier, set())"
        return self._one(
            f"{self._new('set')}, self.cached[identifier] = {sets}, set()",
            f"self.cached[identifier], {self._new('set')} = set(), {sets}",
            f"{self._new('number')}, {self._new('number')} = self._taken(), {self._any_number()}",
            f"{self._new('set')}, {self._new('set')} = {sets}, {self._set()}",
        )

    def _helper_statement(self) -> str:
        return self._one(
            "self._drop(h=identifier)",
            "self._renew(r=name, h=identifier)",
            f"self._put(n={self._any_number()}, h=identifier, sizes={self._map()})",
            f"{self._new('set')} = self._mark(r=name, holders={self._set()})",
            f"{self._set()}.{self._one('add', 'discard')}(self._renew(identifier, r=name))",
        )

    # expressions

    def _set(self) -> str:
        return self._one(
            "self.cached.setdefault(identifier, set())",
            "self.cached.get(identifier, set())",
            "self._holders(h=identifier)",
            *self._scope.names("set"),
            *self._scope.names("set"),
        )

    def _map(self) -> str:
        named = self._scope.names("map")
        return self._one("self.freeable", "self.num_embeds_by_hash", *named, *named)

    def _list(self) -> str:
        return self._one("self.freed", *self._scope.names("list"))

    def _name(self) -> str:
        return self._one("name", "name", "self._renew(r=name, h=identifier)")

    def _any_number(self) -> str:
        named = self._scope.names("number")
        return self._one(
            *named,
            *named,
            str(self._dice.randint(0, 3)),
            "self.num_free_slots",
            "self._taken()",
            f"{self._map()}.get(identifier, {self._dice.randint(0, 2)})",
            f"self._minus(b={self._one(*named)}, a={self._dice.randint(0, 3)})",
            f"{self._one(*named)} + {self._dice.randint(0, 2)}",
            f"({self._one(*named)} or {self._dice.randint(0, 2)})",
        )

    def _condition(self, depth: int) -> str:
        if depth > 0 and self._dice.random() < 0.4:
            one, other = self._condition(depth - 1), self._condition(depth - 1)
            return self._one(f"({one} and {other})", f"({one} or {other})", f"(not {one})")
        number = self._any_number
        return self._one(
            f"name in {self._set()}",
            f"self._is_in(holders={self._set()}, r=name)",
            f"(True if {self._set()} else False)",
            "identifier in self.cached",
            f"identifier in {self._map()}",
            f"identifier in {self._list()}",
            f"{number()} {self._one('==', '<', '<=', '!=')} {number()}",
            f"{number()} < {number()} <= {number()}",
            f"{self._map()}.get(identifier) is None",
            f"(True if {self._list()} else False)",
            "any(h == identifier for h in self.cached)",
            "all(h != identifier for h in self.freeable)",
            "name in self._claims",
            "next(reversed(self.freeable), None) == identifier",
            *(f"identifier in {one}" for one in self._scope.names("found")),
        )


def generated(seed: int) -> ConformanceClaim:
    """The method of a seed; whether its claim is so, CPython tells."""
    statements, claimed = _Writer(seed).method()
    return ConformanceClaim(
        "generated", f"seed {seed}", "read", HELPERS, tuple(statements), claimed
    )


@dataclass(frozen=True)
class Judged:
    """What came of one text: whether CPython fails it, and what the translator says."""

    claim: ConformanceClaim
    fails: bool
    said: Said

    @property
    def is_misread(self) -> bool:
        return self.fails and self.said.word == "proved"


class Judge:
    """Holds the translator against CPython, text by text."""

    def __init__(self) -> None:
        self._cpython, self._translator = OfCPython(), OfTranslator()

    def judged(self, claim: ConformanceClaim) -> Iterator[Judged]:
        """The text that claims it, and the one that denies it."""
        for source in (claim.keeping, claim.breaking):
            if source is not None:
                fails = bool(self._cpython.failures(source))
                yield Judged(claim, fails, self._translator.says(source))

    def misread(self, claim: ConformanceClaim) -> bool:
        return any(one.is_misread for one in self.judged(claim))

    def smaller(self, claim: ConformanceClaim) -> ConformanceClaim:
        """The smallest claim on the way down from one that is misread which is misread too."""
        for statements in _without_one(claim.statements):
            less = replace(claim, statements=tuple(statements))
            if self.misread(less):
                return self.smaller(less)
        return claim


def _without_one(statements: Sequence[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """The same with one statement left out, or a condition's branch in its place."""
    for number, one in enumerate(statements):
        before, behind = statements[:number], statements[number + 1 :]
        yield [*before, *behind]
        if isinstance(one, ast.If):
            yield [*before, *one.body, *behind]
            yield [*before, *one.orelse, *behind]
            for body in _without_one(one.body):
                if body:
                    yield [*before, ast.If(one.test, body, one.orelse), *behind]


def text_of(claim: ConformanceClaim) -> str:
    """The statements and what is claimed, to be put into a table."""
    assert claim.claimed is not None
    lines = [ast.unparse(ast.fix_missing_locations(one)) for one in claim.statements]
    return "\n".join([*lines, f"claim({ast.unparse(claim.claimed)})"])
