"""Contracts that are asked together give the answer of their texts, of right records and wrong."""

import ast
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, KeysView
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from cacheproof.differential.judges import narrowing
from cacheproof.differential.judges.evaluator import Evaluator
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.kv_cache import KVCacheJudge
from cacheproof.differential.judges.rules import by_subject
from cacheproof.differential.judges.scheduler import SchedulerJudge
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.spec import block_pool, kv_cache, scheduler
from cacheproof.spec.records import Step
from cacheproof.spec.registry import Contract, contracts

SEEDS = range(3)
WRONG = 1500
"""How many wrong records are made of each type."""
ABOUT: dict[type, list[Contract]] = {
    **by_subject(contracts(scheduler.COMPONENT)),
    **by_subject(contracts(kv_cache.COMPONENT)),
    Step: [rule for rule in contracts("encoder_cache") if rule.kind in ("trace", "mirror")],
}
SILENT = {"LV-3", "SC-8", "SC-9", "SC-18"}
"""Contracts that no record met here is near to breaking, or that none is about."""


def _kept(record: Any) -> Any:
    """A record as it is now: what it is about goes on."""
    return record._make(
        set(value) if isinstance(value, KeysView) else deepcopy(value) for value in record
    )


@cache
def met() -> dict[type, list[Any]]:
    """Records that were judged in searches, by their type."""
    found: dict[type, list[Any]] = defaultdict(list)

    def noting(judged: Callable[..., Any], place: int) -> Callable[..., Any]:
        def note(self: object, *given: Any, **named: Any) -> Any:
            found[type(given[place])].append(_kept(given[place]))
            return judged(self, *given, **named)

        return note

    target = ReferenceTarget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SchedulerJudge, "_check", noting(SchedulerJudge._check, 1))
        patch.setattr(KVCacheJudge, "_check", noting(KVCacheJudge._check, 0))
        patch.setattr(Evaluator, "step", noting(Evaluator.step, 0))
        for lane in LANES.values():
            if (
                lane.depth in ("manager", "scheduler", "kv_cache")
                and lane.manager != "encoder_decoder"
            ):
                for seed in SEEDS:
                    trace = lane.trace(seed, None)
                    examine(trace, target.run([trace])[0], target)
    return found


def records(kind: type) -> Iterator[Any]:
    """Right records, and such in which some fields are another record's, or are a little wrong."""
    right = met()[kind]
    draw = random.Random(0)
    yield from right[:500]
    for _ in range(WRONG if right else 0):
        one, other = draw.choice(right), draw.choice(right)
        for name in draw.sample(one._fields, draw.randint(1, len(one._fields))):
            value = getattr(draw.choice((one, other)), name)
            one = one._replace(**{name: wrong(value, draw) if draw.random() < 0.5 else value})
        yield one


def wrong(value: Any, draw: random.Random) -> Any:
    """Another value of the same type: a number beside it, or something more or less of many."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + draw.choice((-1, 1))
        case str():
            return value + "?"
        case tuple() if hasattr(value, "_fields"):
            return value._make(wrong(part, draw) for part in value)
        case tuple() | list():
            kept = [part for part in value if draw.random() < 0.7]
            return type(value)([*kept, *kept[:1]])
        case dict():
            kept = {key: part for key, part in value.items() if draw.random() < 0.8}
            return {key: wrong(part, draw) for key, part in kept.items()}
        case set() | frozenset():
            return type(value)(part for part in value if draw.random() < 0.7)
    return value


def answer(holds: Callable[[Any], bool], record: Any) -> object:
    try:
        return holds(record)
    except LookupError as error:
        return type(error), str(error)


def one_by_one(rules: list[Contract], record: Any) -> object:
    for rule in rules:
        said = answer(rule.predicate, record)
        if said is not True:
            return said
    return True


def differing(kind: type, rules: list[Contract]) -> int:
    """Of how many records the contracts together say what they do not one by one."""
    together = narrowing.of_records(rules)
    return sum(answer(together, one) != one_by_one(rules, one) for one in records(kind))


@pytest.mark.parametrize("kind", ABOUT, ids=lambda kind: kind.__name__)
def test_contracts_together_say_what_each_of_them_says(kind: type) -> None:
    assert differing(kind, ABOUT[kind]) == 0
    for rule in ABOUT[kind]:
        assert differing(kind, [rule]) == 0


def test_nearly_all_contracts_were_held_and_were_broken() -> None:
    silent = {
        rule.id
        for kind, rules in ABOUT.items()
        for rule in rules
        if {True, False} - {answer(rule.predicate, one) for one in records(kind)}
    }
    assert silent == SILENT


class _Emptied(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Name(id="frozenset"):
                return ast.Call(node.func, [], [])
        return self.generic_visit(node)


@pytest.mark.parametrize(
    ("kind", "planted"),
    [
        (block_pool.PoolState, "a conjunct is left out"),
        (kv_cache.Grant, "the set of a tuple is empty"),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_fault_in_how_they_are_put_together_is_noticed(
    monkeypatch: pytest.MonkeyPatch, kind: type, planted: str
) -> None:
    executed = narrowing._executed
    if planted == "a conjunct is left out":
        conjuncts = narrowing.conjuncts
        monkeypatch.setattr(narrowing, "conjuncts", lambda node: [*conjuncts(node)][:1])
    else:
        monkeypatch.setattr(narrowing, "_executed", lambda tree: executed(_Emptied().visit(tree)))
    assert differing(kind, ABOUT[kind]) > 20
