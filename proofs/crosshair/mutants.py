"""Changes that break the text of a manager, each named by what a caller would notice.

They go by the names of public attributes, so that each fits the reference and every release. A text
with nothing to change is an error: a red twin that is green by accident is none.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass

from cacheproof.proofs.crosshair.states import CLAIM_TABLES
from cacheproof.proofs.crosshair.text import Change


@dataclass(frozen=True)
class ConditionMutant:
    """A change, the condition under which it must be refuted, and by which contract."""

    name: str
    condition: str
    contract: str
    change: Change


class _Rewriter(ast.NodeTransformer):
    def __init__(self, replace: Callable[[ast.AST], ast.AST | None]) -> None:
        self._replace = replace
        self.changes = 0

    def visit(self, node: ast.AST) -> ast.AST:
        replaced = self._replace(node)
        if replaced is None:
            return super().generic_visit(node)
        self.changes += 1
        return ast.copy_location(replaced, node)


def rewriting(replace: Callable[[ast.AST], ast.AST | None], method: str | None = None) -> Change:
    """Put what `replace` returns in the place of every node for which it returns something."""

    def change(owner: ast.ClassDef) -> None:
        rewriter = _Rewriter(replace)
        for one in owner.body:
            if isinstance(one, ast.FunctionDef) and method in (None, one.name):
                one.body = [rewriter.visit(statement) for statement in one.body]  # type: ignore[misc]
        if not rewriter.changes:
            raise ValueError(f"{owner.name} has nothing of that kind to change")

    return change


def without_update(attribute: str, sign: type[ast.operator]) -> Change:
    """Drop every `self.attribute += ...` (or `-=`)."""

    def replace(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.AugAssign(target=ast.Attribute(attr=name), op=operator):
                return ast.Pass() if name == attribute and isinstance(operator, sign) else None
        return None

    return rewriting(replace)


def without_call(attribute: str, called: str) -> Change:
    """Drop every statement `self.attribute.called(...)`."""

    def replace(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr=method))
            ) if (name, method) == (attribute, called):
                return ast.Pass()
        return None

    return rewriting(replace)


def beginning(method: str, statement: str) -> Change:
    """Put a statement in front of a method."""
    return _inserting(method, statement, 0)


def ending(method: str, statement: str) -> Change:
    """Put a statement at the end of a method, which returns nothing."""
    return _inserting(method, statement, None)


def _inserting(method: str, statement: str, place: int | None) -> Change:
    def change(owner: ast.ClassDef) -> None:
        for one in owner.body:
            if isinstance(one, ast.FunctionDef) and one.name == method:
                at = len(one.body) if place is None else place
                one.body[at:at] = ast.parse(statement).body
                return
        raise ValueError(f"{owner.name} has no method {method}")

    return change


def answering(method: str, answer: str) -> Change:
    """Return this in the place of every answer of a method."""

    def replace(node: ast.AST) -> ast.AST | None:
        return ast.parse(f"return {answer}").body[0] if isinstance(node, ast.Return) else None

    return rewriting(replace, method)


def at_the_limit(name: str) -> Change:
    """Turn every strict comparison with `name` into a lax one, and the other way round."""
    turned: dict[type[ast.cmpop], ast.cmpop] = {
        ast.Gt: ast.GtE(),
        ast.GtE: ast.Gt(),
        ast.Lt: ast.LtE(),
        ast.LtE: ast.Lt(),
    }

    def replace(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[ast.Name(id=found)]):
                if found == name and type(operator) in turned:
                    return ast.Compare(left, [turned[type(operator)]], [ast.Name(name, ast.Load())])
        return None

    return rewriting(replace)


def hit_stays_queued(owner: ast.ClassDef) -> None:
    """A hit looks its entry up in the eviction queue, and leaves it there."""

    def replace(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="freeable") as queue, attr="pop"),
                args=[key],
            ):
                return ast.Subscript(queue, key, ast.Load())
        return None

    rewriting(replace, "check_and_update_cache")(owner)


def newest_first(owner: ast.ClassDef) -> None:
    """The entry that became idle last is evicted first."""

    def replace(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Call(func=ast.Attribute(attr="popitem") as pop, keywords=[_]):
                return ast.Call(pop, [], [])
            case ast.Call(func=ast.Name(id="iter") as order, args=[queue]):
                newest = ast.Call(ast.Name("reversed", ast.Load()), [queue], [])
                return ast.Call(order, [newest], [])
        return None

    rewriting(replace, "can_allocate")(owner)


def without_eviction(owner: ast.ClassDef) -> None:
    """An admission grants what would fit, and evicts nothing."""

    def replace(node: ast.AST) -> ast.AST | None:
        return ast.Pass() if isinstance(node, ast.While) else None

    rewriting(replace, "can_allocate")(owner)


def evicts_all(owner: ast.ClassDef) -> None:
    """An admission that evicts one idle entry evicts them all."""

    def replace(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.While(body=body):
                queue = ast.parse("self.freeable", mode="eval").body
                return ast.While(queue, body, [])
        return None

    rewriting(replace, "can_allocate")(owner)


def queued_with_another_size(owner: ast.ClassDef) -> None:
    """An idle entry is to be credited one embedding more than it was debited."""

    def replace(node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Attribute(attr="freeable"))], value=value
            ):
                more = ast.BinOp(value, ast.Add(), ast.Constant(1))
                return ast.Assign(node.targets, more)
        return None

    rewriting(replace)(owner)


NO_NOTICES = answering("get_freed_mm_hashes", "[]")
STARTS_SHORT = ending("__init__", "self.num_free_slots -= 1")
FORGETS = f"for one in {CLAIM_TABLES}:\n    getattr(self, one, {{}}).clear()"
DROPS = "self.cached.clear()\ngetattr(self, 'num_embeds_by_hash', {}).clear()"
"""Older releases have no table of sizes: to ask for it ends the call before EC-6 is judged."""
ITEM = "request.mm_features[input_id].identifier"
CREDITS_AGAIN = beginning("free_encoder_input", "self.num_free_slots += 1")

OF_ENCODER_CACHE = (
    ConditionMutant("a new manager has a slot too few", "start", "EC-1", STARTS_SHORT),
    ConditionMutant(
        "an allocation forgets all claims", "allocate", "remembered", ending("allocate", FORGETS)
    ),
    ConditionMutant(
        "an allocation debits nothing",
        "allocate",
        "EC-1",
        without_update("num_free_slots", ast.Sub),
    ),
    ConditionMutant(
        "a hit debits no freeable slots",
        "check",
        "EC-2",
        without_update("num_freeable_slots", ast.Sub),
    ),
    ConditionMutant(
        "a release credits no freeable slots",
        "release",
        "EC-2",
        without_update("num_freeable_slots", ast.Add),
    ),
    ConditionMutant(
        "an allocation leaves more free than freeable slots",
        "allocate",
        "EC-3",
        without_update("num_free_slots", ast.Sub),
    ),
    ConditionMutant("a hit leaves the entry in the queue", "check", "EC-4", hit_stays_queued),
    ConditionMutant("a reset keeps the queue", "reset", "EC-4", without_call("freeable", "clear")),
    ConditionMutant(
        "an idle entry is queued with another size", "release", "EC-5", queued_with_another_size
    ),
    ConditionMutant(
        "an admission drops all entries",
        "admit",
        "EC-6",
        beginning("can_allocate", DROPS),
    ),
    ConditionMutant(
        "an allocation is held for nobody",
        "allocate",
        "EC-6a",
        ending("allocate", f"self.cached[{ITEM}].clear()"),
    ),
    ConditionMutant("the newest is evicted first", "admit", "EC-7", newest_first),
    ConditionMutant("the newest is evicted first", "update", "EC-7", newest_first),
    ConditionMutant("all that is idle is evicted", "admit", "EC-8a", evicts_all),
    ConditionMutant("notices are lost", "draw", "EC-9", NO_NOTICES),
    ConditionMutant(
        "a release credits again",
        "release",
        "EC-10",
        beginning("free_encoder_input", "self.num_freeable_slots += 1"),
    ),
    ConditionMutant(
        "an item as large as the budget is refused",
        "release_resized",
        "EC-12",
        at_the_limit("encoder_compute_budget"),
    ),
    ConditionMutant(
        "who asks for room holds every entry",
        "admit",
        "EC-11",
        beginning(
            "can_allocate", "for one in self.cached.values():\n    one.add(request.request_id)"
        ),
    ),
    ConditionMutant(
        "an item as large as the budget is refused",
        "admit",
        "EC-12",
        at_the_limit("encoder_compute_budget"),
    ),
    ConditionMutant(
        "an eviction credits nothing", "admit", "EC-13", without_update("num_free_slots", ast.Add)
    ),
    ConditionMutant("an admission evicts nothing", "admit", "EC-15", without_eviction),
    ConditionMutant(
        "a look-up misses what is there",
        "check",
        "EC-16",
        beginning("check_and_update_cache", "return False"),
    ),
    ConditionMutant(
        "a size is told of what is absent",
        "read",
        "EC-17",
        beginning("get_cached_num_encoder_embeds", "return 0"),
    ),
    ConditionMutant(
        "no input that a request may release is told",
        "read",
        "EC-18",
        beginning("get_cached_input_ids", "return set()"),
    ),
    ConditionMutant(
        "a freed request keeps what it holds", "free", "EC-14", beginning("free", "return")
    ),
    ConditionMutant(
        "a question costs a slot",
        "read",
        "EC-1",
        beginning("get_cached_input_ids", "self.num_free_slots -= 1"),
    ),
)

OF_ENCODER_DECODER_CACHE = (
    ConditionMutant("a new manager has a slot too few", "start", "ED-5", STARTS_SHORT),
    ConditionMutant(
        "an allocation forgets all debits", "allocate", "remembered", ending("allocate", FORGETS)
    ),
    ConditionMutant("a release credits again", "release", "ED-1", CREDITS_AGAIN),
    ConditionMutant("a release credits again", "release", "ED-2", CREDITS_AGAIN),
    ConditionMutant("notices are lost", "draw", "ED-3", NO_NOTICES),
    ConditionMutant(
        "a release is an error",
        "release",
        "ED-4",
        beginning("free_encoder_input", "raise KeyError(input_id)"),
    ),
    ConditionMutant("a release credits again", "free", "ED-5", CREDITS_AGAIN),
    ConditionMutant(
        "an allocation debits nothing",
        "allocate",
        "ED-5",
        without_update("num_free_slots", ast.Sub),
    ),
    ConditionMutant(
        "an item as large as the budget is refused",
        "admit",
        "ED-6",
        at_the_limit("encoder_compute_budget"),
    ),
    ConditionMutant(
        "no input that a request may release is told",
        "read",
        "ED-7",
        beginning("get_cached_input_ids", "return set()"),
    ),
    ConditionMutant(
        "a reset costs a slot", "reset", "ED-5", ending("reset", "self.num_free_slots -= 1")
    ),
)
