"""Faults to be looked for: variants of the gallery, flags of the semantics, changed statements.

Each is run on the reference, in one lane. The unmodified reference breaks no contract there.
"""

import ast
import copy
import importlib
import inspect
import signal
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.search.gallery.kill_matrix import VARIANTS, target_of
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.proofs.symbolic.mutants import EVERY
from cacheproof.reference.semantics import Semantics

LIST = Path(__file__).parent / "guided.json"
SECONDS_MAX = 3
"""Of processor time for a trace: a changed statement may make a loop run for ever."""
IDEAL = ReferenceTarget()


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault and the lane that it is looked for in. `pilot` is the trace that broke a contract
    first when the faults were chosen, None where none did. Of a changed statement `name` is its
    module and function, and `change` says what is otherwise."""

    kind: Literal["variant", "flag", "statement"]
    name: str
    lane: str
    half: Literal["tuning", "held out"]
    pilot: int | None = None
    change: str = ""

    @property
    def words(self) -> str:
        """What it is, in a table."""
        return f"`{self.name}`" + (f": {self.change}" if self.change else "")


class DoesNotEnd(BaseException):
    """A trace took longer than any does."""


@dataclass(frozen=True)
class Fault:
    """A target with the fault; of a changed statement also the function, and what it does then."""

    target: ReferenceTarget
    planted: str | None = None
    function: types.FunctionType | None = None
    changed: types.CodeType | None = None

    def result(self, trace: Trace) -> TraceResult:
        """What the target does with a trace."""
        if self.function is None or self.changed is None:
            return self.target.run([trace], self.planted)[0]
        before = self.function.__code__
        self.function.__code__ = self.changed
        try:
            return self.target.run([trace])[0]
        finally:
            self.function.__code__ = before

    def breaks(self, trace: Trace, unmodified: bytes) -> bool:
        """Whether a trace breaks a contract; `unmodified` is what the reference does with it, which
        breaks none. A trace that does not end, or that no record comes of, shows nothing."""
        try:
            with limited():
                result = self.result(trace)
            if msgspec.msgpack.encode(result) == unmodified:
                return False
            return bool(examine(trace, result, self.target).violations)
        except (DoesNotEnd, HarnessError):
            return False


@contextmanager
def limited() -> Iterator[None]:
    """Raises DoesNotEnd where this process works very long on its body."""

    def stop(*_: object) -> None:
        raise DoesNotEnd

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def unmodified(trace: Trace) -> bytes:
    """What the reference does with a trace, as `Fault.breaks` takes it."""
    return msgspec.msgpack.encode(IDEAL.run([trace])[0])


def listed() -> list[Listed]:
    """The faults that are measured."""
    return msgspec.json.decode(LIST.read_bytes(), type=list[Listed])


def fault_of(one: Listed) -> Fault:
    """A listed fault, to be run. Raises LookupError where there is no such fault any more."""
    match one.kind:
        case "variant":
            variant = next((v for v in VARIANTS if v.name == one.name), None)
            if variant is None:
                raise LookupError(f"no variant {one.name} in the gallery")
            return Fault(target_of(variant), variant.fault)
        case "flag":
            return Fault(ReferenceTarget(Semantics.ideal().without(one.name)))
        case "statement":
            module, _, name = one.name.partition(":")
            return Fault(IDEAL, None, *changed_statement(module, name, one.change))


def changed_statement(
    module: str, name: str, words: str
) -> tuple[types.FunctionType, types.CodeType]:
    """A function of the reference, and what it does with the change of those words."""
    loaded = importlib.import_module(f"cacheproof.reference.{module}")
    owner, _, bare = name.rpartition(".")
    found: Any = inspect.getattr_static(getattr(loaded, owner) if owner else loaded, bare)
    node = _node_of(module, name)
    changed = copy.deepcopy(node)
    nodes = list(ast.walk(changed))
    for place in range(len(nodes)):
        for change in EVERY:
            done = change(changed, nodes[place])
            if done == words:
                return getattr(found, "__func__", found), _code_of(changed, owner)
            if done is not None:
                changed = copy.deepcopy(node)
                nodes = list(ast.walk(changed))
    raise LookupError(f"no change {words!r} of {module}:{name}")


@cache
def _tree_of(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(f"cacheproof.reference.{module}")))


def _node_of(module: str, name: str) -> ast.FunctionDef:
    body: Sequence[ast.stmt] = _tree_of(module).body
    for part in name.split("."):
        named = (one for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef))
        found = next(one for one in named if one.name == part)
        body = found.body
    assert isinstance(found, ast.FunctionDef)
    return found


def _code_of(function: ast.FunctionDef, owner: str) -> types.CodeType:
    """What a changed function does."""
    body: ast.stmt = function
    if owner:
        body = ast.ClassDef(owner, [], [], [function], [])
    future = ast.parse("from __future__ import annotations").body
    tree = ast.fix_missing_locations(ast.Module([*future, body], []))
    code = compile(tree, f"<{function.name}, changed>", "exec")
    for name in filter(None, (owner, function.name)):
        inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
        code = next(one for one in inner if one.co_name == name)
    return code
