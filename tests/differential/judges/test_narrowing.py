"""A narrowed contract gives the answer of its text, in right states and in wrong ones."""

import ast
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cacheproof.differential.judges import narrowing
from cacheproof.differential.judges.evaluator import Evaluator
from cacheproof.differential.judges.examination import judge_of
from cacheproof.differential.judges.manager import _moved
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.rules import (
    FOLLOWED,
    NO_CALL,
    SCHEDULER,
    Rules,
    by_subject,
    rules_for,
)
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import (
    Add,
    ManagerConfig,
    ManagerHeader,
    Notices,
    Reset,
    Walk,
)
from cacheproof.differential.traces.records import CallRecord, Delta, Entry, StepRecord
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call, EncoderCacheState, Making
from cacheproof.spec.registry import ANY_CALL, RELEASE, Contract, contracts
from cacheproof.spec.scheduler_records import StepPlan
from tests.differential.judges.drawing import records

NAMES = ("h0", "h1", "h2", "h3", "h4")
REQUESTS = ("a", "b", "c")
RULES = rules_for("encoder_cache", None, "scheduler")
OF_STATES = [rule for rule in RULES.all if rule.kind == "state" and rule.id.startswith("EC")]
OF_CHANGES = [rule for rule in RULES.all if rule.kind == "transition" and rule.calls & ANY_CALL]
OF_STEPS = RULES.of_step
OF_SCHEDULERS = list(contracts(SCHEDULER, None))
PROMISES = [rule for rule in RULES.all if rule.kind == "promise"]
SEEDS = range(1500)


def _subset(draw: random.Random, of: tuple[str, ...]) -> list[str]:
    return draw.sample(of, draw.randint(0, len(of)))


def state(draw: random.Random) -> EncoderCacheState:
    """A state that may be right, and in which something is wrong more often than not."""
    size = {name: draw.choice((1, 1, 2, 0)) for name in _subset(draw, NAMES)}
    holders = {name: frozenset(_subset(draw, REQUESTS[:2])) for name in size}
    queue = {name: size[name] for name in size if not holders[name]}
    if draw.random() < 0.2:
        queue[draw.choice(NAMES)] = draw.randint(1, 2)
    free = draw.randint(0, 3)
    idle = sum(size[name] for name in size if not holders[name])
    capacity = free + sum(size.values()) + draw.choice((0, 0, 1))
    gone = tuple(name for name in NAMES if name not in size and draw.random() < 0.3)
    return EncoderCacheState(capacity, free, free + idle, size, holders, queue, gone)


def moved(before: EncoderCacheState, draw: random.Random) -> EncoderCacheState:
    """What a call makes of a state: of one entry or two nothing stays as it was, and its counts may
    be wrong."""
    other = state(draw)
    size, holders, queue = dict(before.size), dict(before.holders), dict(before.queue)
    maps: list[tuple[Any, Any]] = [
        (size, other.size),
        (holders, other.holders),
        (queue, other.queue),
    ]
    for name in draw.sample(NAMES, draw.randint(0, 2)):
        for now, then in maps:
            now.pop(name, None)
            if name in then:
                now[name] = then[name]
    free = before.free_slots + sum(before.size.values()) - sum(size.values())
    idle = sum(size[name] for name in size if not holders[name])
    free += draw.choice((0, 0, 0, 1))
    idle += draw.choice((0, 0, 0, 1))
    return before._replace(
        free_slots=free, freeable_slots=free + idle, size=size, holders=holders, queue=queue
    )


def differing(before: EncoderCacheState, after: EncoderCacheState) -> set[str]:
    maps = ((before.size, after.size), (before.holders, after.holders), (before.queue, after.queue))
    return {name for name in NAMES for one, two in maps if one.get(name) != two.get(name)}


def ghost(of: EncoderCacheState, draw: random.Random) -> Ghost:
    """What the requests may be owed beside a state."""
    found = Ghost(size={**dict.fromkeys(NAMES, 1), **of.size})
    if draw.random() < 0.1:
        found.size[draw.choice(NAMES)] = 3
    for name in _subset(draw, NAMES):
        found.idle_since[name] = draw.randint(1, 3)
    for name in _subset(draw, NAMES):
        if name not in found.idle_since:
            found.needed[name] = {draw.choice(REQUESTS)}
    for name in _subset(draw, REQUESTS):
        found.claimed_end[name] = {draw.choice(NAMES): 4}
    return found


def call(operation: str, draw: random.Random) -> Call:
    need, pending, granted = draw.randint(0, 2), draw.randint(0, 1), draw.random() < 0.5
    name, entry = draw.choice(REQUESTS), draw.choice(NAMES)
    return NO_CALL._replace(
        operation=operation,
        request=name,
        identifier=entry,
        need=need,
        end=4,
        budget=draw.randint(0, 2),
        pending=pending,
        granted=granted,
    )


def asked(rule: Contract, **values: Any) -> bool:
    return rule.predicate(*(values[name] for name in rule.parameters))


def missed(rule: Contract, narrowed: narrowing.Holds, *, looks_at_none: bool = False) -> int:
    """How often a contract of states does not hold and what is narrowed says that it does; a
    difference of any other kind is an error."""
    count = 0
    for seed in SEEDS:
        draw = random.Random(seed)
        before = state(draw)
        owed = ghost(before, draw)
        if not asked(rule, s=before, g=owed):
            continue
        after = moved(before, draw)
        changed = set() if looks_at_none else differing(before, after)
        whole, part = asked(rule, s=after, g=owed), narrowed(before, after, owed, changed)
        assert part or not whole
        count += part and not whole
    return count


def breaks(rule: Contract) -> int:
    """How often a contract of states is broken by a move."""
    return missed(rule, lambda pre, s, g, changed: True)


@pytest.mark.parametrize("rule", OF_STATES, ids=lambda rule: rule.id)
def test_a_narrowed_contract_of_states_misses_nothing(rule: Contract) -> None:
    assert missed(rule, narrowing.of_states([rule], FOLLOWED)) == 0
    assert breaks(rule) > 20


@pytest.mark.parametrize("id", ["EC-4", "EC-5"])
def test_one_that_is_told_of_too_few_changes_misses_breaks(id: str) -> None:
    (rule,) = [rule for rule in OF_STATES if rule.id == id]
    assert missed(rule, narrowing.of_states([rule], FOLLOWED), looks_at_none=True) > 20


def test_a_sum_that_is_told_of_too_few_changes_misses_breaks() -> None:
    (rule,) = [rule for rule in OF_STATES if rule.id == "EC-1"]
    before = EncoderCacheState(3, 2, 2, {"h0": 1}, {"h0": frozenset("a")}, {}, ())
    after = before._replace(size={"h0": 2})
    assert not asked(rule, s=after)
    narrowed = narrowing.of_states([rule], FOLLOWED)
    assert narrowed(before, after, Ghost(), ())
    assert not narrowed(before, after, Ghost(), {"h0"})


def test_a_sum_to_which_nothing_brings_anything_refuses_what_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (rule,) = [rule for rule in OF_STATES if rule.id == "EC-2"]
    monkeypatch.setattr(narrowing, "_BROUGHT", dict.fromkeys(narrowing._BROUGHT, "0"))
    with pytest.raises(AssertionError):
        missed(rule, narrowing.of_states([rule], FOLLOWED))


@pytest.mark.parametrize("text", ["2 * s.free_slots", "total(g.size)", "s.free_slots + g.clock"])
def test_what_is_no_sum_of_a_state_s_numbers_is_asked_as_it_stands(text: str) -> None:
    assert narrowing._grown(ast.parse(text, mode="eval").body) is None
    assert narrowing._grown(ast.parse("total(s.size) - s.free_slots", mode="eval").body)


def test_one_that_follows_what_changes_otherwise_misses_breaks() -> None:
    (rule,) = [rule for rule in OF_STATES if rule.id == "EC-6a"]
    before = state(random.Random(0))._replace(size={"h0": 1}, holders={"h0": frozenset()})
    owed = Ghost(needed={"h0": {"a"}})  # since the last call
    assert not asked(rule, s=before, g=owed)
    assert not narrowing.of_states([rule], FOLLOWED)(before, before, owed, ())
    assert narrowing.of_states([rule], FOLLOWED | {"g.needed"})(before, before, owed, ())


def moves(operation: str) -> Iterator[tuple[dict[str, Any], set[str]]]:
    for seed in SEEDS:
        draw = random.Random(seed)
        before = state(draw)
        owed, after = ghost(before, draw), moved(before, draw)
        values = {"pre": before, "post": after, "g": owed, "c": call(operation, draw)}
        yield values, differing(before, after)


@pytest.mark.parametrize("rule", OF_CHANGES, ids=lambda rule: rule.id)
def test_a_narrowed_contract_of_transitions_says_what_its_text_says(rule: Contract) -> None:
    narrowed = narrowing.of_transitions([rule])
    answers = []
    for values, changed in moves(min(rule.calls)):
        answers.append(asked(rule, **values))
        assert narrowed(**values, changed=changed) == answers[-1]
    assert {True, False} == set(answers)


@pytest.mark.parametrize("id", ["EC-6", "EC-7"])
def test_one_of_transitions_that_is_told_of_too_few_changes_misses_breaks(id: str) -> None:
    (rule,) = [rule for rule in OF_CHANGES if rule.id == id]
    narrowed = narrowing.of_transitions([rule])
    missed = [
        not asked(rule, **values) for values, _ in moves("can") if narrowed(**values, changed=())
    ]
    assert sum(missed) > 20


def promises(operation: str) -> Iterator[dict[str, Any]]:
    for seed in SEEDS:
        draw = random.Random(seed)
        now = state(draw)
        owed, making = ghost(now, draw), Making(dict.fromkeys(_subset(draw, NAMES), 1))
        yield {"s": now, "g": owed, "w": making, "c": call(operation, draw)}


@pytest.mark.parametrize("rule", PROMISES, ids=lambda rule: rule.id)
def test_a_narrowed_promise_says_what_its_text_says(rule: Contract) -> None:
    for operation in rule.calls:
        narrowed = narrowing.of_promises([rule], operation)
        answers = set()
        for values in promises(operation):
            answers.add(asked(rule, **values))
            assert narrowed(**values) == asked(rule, **values)
        assert answers == {True, False}


def test_a_promise_that_is_narrowed_for_another_operation_misses_breaks() -> None:
    (rule,) = [rule for rule in PROMISES if rule.id == "CP-5"]
    narrowed = narrowing.of_promises([rule], *RELEASE)
    assert sum(narrowed(**values) and not asked(rule, **values) for values in promises("free")) > 20


def holds(predicate: Callable[[Any], bool], record: object) -> bool | None:
    """What it says of a record; None where that lacks a key that is looked up."""
    try:
        return predicate(record)
    except KeyError:
        return None


ABOUT_RECORDS = {**by_subject(OF_STEPS), **by_subject(OF_SCHEDULERS)}


@pytest.mark.parametrize("subject", ABOUT_RECORDS, ids=lambda subject: subject.__name__)
def test_contracts_about_a_record_say_at_once_what_each_says(subject: type) -> None:
    rules, answers = ABOUT_RECORDS[subject], []
    at_once = narrowing.of_records(rules)
    for record in records(subject, SEEDS):
        answers.append(all(holds(rule.predicate, record) for rule in rules))
        assert bool(holds(at_once, record)) == answers[-1]
    assert {True, False} == set(answers)


def test_without_one_of_them_breaks_are_missed() -> None:
    rules = ABOUT_RECORDS[StepPlan]
    for left_out in rules:
        at_once = narrowing.of_records([rule for rule in rules if rule is not left_out])
        assert any(
            holds(at_once, record) and not holds(left_out.predicate, record)
            for record in records(StepPlan, SEEDS)
        )


def is_narrowed(make: Callable[[list[Contract]], Any], rule: Contract) -> bool:
    """Whether a part of a contract's text asks of fewer entries than it did."""
    texts: list[str] = []

    def noted(text: str, *arguments: Any) -> Any:
        texts.append(text)
        return compile(text, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrowing, "compile", noted, raising=False)
        make([rule])
    return "in changed" in texts[0] or "in (c_identifier,)" in texts[0]


def test_these_contracts_are_narrowed() -> None:
    assert [
        *(
            one.id
            for one in OF_STATES
            if is_narrowed(lambda r: narrowing.of_states(r, FOLLOWED), one)
        ),
        *(one.id for one in OF_CHANGES if is_narrowed(narrowing.of_transitions, one)),
        *(
            f"{one.id} {operation}"
            for one in PROMISES
            for operation in sorted(one.calls)
            if is_narrowed(lambda r, o=operation: narrowing.of_promises(r, o), one)  # type: ignore[misc]
        ),
    ] == ["EC-1", "EC-2", "EC-4", "EC-5", "EC-6", "EC-7", "CP-5 release"]


def test_narrowing_leaves_the_contracts_as_they_are() -> None:
    Rules("encoder_cache", None, depth="scheduler")
    for rule in RULES.all:
        assert ast.unparse(rule.expression.tree) == rule.expression.text


@pytest.mark.parametrize(
    ("before", "after", "entries"),
    [
        ("", "", ""),
        ("ab", "abc", "c"),
        ("abc", "c", "ab"),
        ("abc", "bca", ""),
        ("abc", "ac", "b"),
        ("abc", "bcd", "ad"),
        ("aB", "ab", "b"),
        ("aB", "abc", "bc"),
        ("Abc", "bC", "ac"),
    ],
)
def test_what_came_to_a_queue_left_it_or_changed_in_it(
    before: str, after: str, entries: str
) -> None:
    """An upper-case letter is the entry of the lower-case one, with another size."""
    one, two = ({name.lower(): 1 + name.isupper() for name in text} for text in (before, after))
    assert set(_moved(one, two)) == set(entries)


def test_a_state_is_asked_whole_after_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager keeps an entry over a reset, which the ghost forgets."""
    assert "EC-5" in _broken_after_a_reset()
    monkeypatch.setattr(Evaluator, "doubt", lambda self: None)
    assert "EC-5" not in _broken_after_a_reset()


def _broken_after_a_reset() -> set[str]:
    config = ManagerConfig(capacity=4, compute_budget=4)
    events = (
        Add("a", prompt=8, items=(Item("x", 0, 1), Item("y", 4, 1))),
        Walk("a", 2),
        Notices(),
        Reset(),
        Walk("a", 4),
    )
    trace = Trace(ManagerHeader(schema=1, manager="encoder_cache", config=config), events)
    judge = judge_of(trace, None, Protocol(), None, Reachability())
    allocated = [
        CallRecord("allocate", "a", number, None, None, None, _took(name, 3 - number))
        for number, name in enumerate(("x", "y"))
    ]
    drawn = CallRecord("notices", None, None, None, None, [], None)
    reset = CallRecord("reset", None, None, None, None, None, None)
    records: tuple[list[CallRecord], ...] = ([], [allocated[0]], [drawn], [reset], [allocated[1]])
    for number, (event, calls) in enumerate(zip(events, records, strict=True)):
        judge.judge(number, event, StepRecord([2, []], calls, None, None))
    return set(judge.violations)


def _took(name: str, free: int) -> Delta:
    return Delta(free, free, {name: Entry(["a"], 1)}, None, None)
