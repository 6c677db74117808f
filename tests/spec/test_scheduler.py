"""What keeps and what breaks each contract of the scheduler that is judged step by step."""

from typing import NamedTuple

import pytest

from cacheproof.spec.registry import by_id
from cacheproof.spec.scheduler_kv import Holding, KVReads, Progress
from cacheproof.spec.scheduler_records import (
    Arrival,
    Claims,
    Fills,
    Inputs,
    Overtaking,
    Presence,
    Reads,
    Room,
    Service,
    Span,
    Spending,
    StepPlan,
    Stops,
    Stretch,
    Telling,
    Victims,
)

READS = Reads(
    wanted={"a": {"x", "y"}},
    available={"x", "y", "z"},
    claimed={"a": {"x"}},
    dropped={"z"},
)
FILLS = Fills(filled=("x", "y"), kept={"z"})
STOPS = Stops(ends={"a": 8, "b": 12, "c": 16}, refused={"a": 8}, allowed={"b": {12, 20}})
NOBODY: frozenset[str] = frozenset()
OVERTAKING = Overtaking({"a", "b"}, {"a"}, NOBODY, {"b"}, NOBODY, NOBODY)
ARRIVAL = Arrival(
    tokens=20,
    tokens_max=64,
    embeddings=8,
    slots=8,
    compute=8,
    blocks=4,
    blocks_max=4,
    together=16,
    together_max=16,
)
INPUTS = Inputs(encodes={"a": {1, 2}, "b": {0}}, withheld={"a": {0}, "b": {1}})
STRETCH = Stretch(steps=20, steps_max=20)
TELLING = Telling(tokens={"a": 4, "b": 3}, drafts={"b": 2}, encodes={"a": [0]}, total=7)
CLAIMS = Claims(reads={"a": {0, 1}, "b": {0}}, claimed={"a": {0, 1, 2}, "b": {0}})
SPENDING = Spending(budget_full=8, budget=3, pending=1, taken=4)
VICTIMS = Victims(preempted={"c": 2, "d": 3}, stay={"a": 0, "b": 1})
PROGRESS = Progress(starts={"a": 4, "b": 0}, computed={"a": 4, "b": 0, "c": 7})
KV_READS = KVReads(reads={"a": {1: 8, 2: 3}}, right={"a": {1: 8, 2: 5}})
HOLDING = Holding(free=3, held=4, blocks=7, ends={"a": 9, "b": 8}, slots={"a": 16, "b": 8})
PRESENCE = Presence(owed={"a", "b"}, there={"a", "b"})
PLAN = StepPlan(
    token_budget=8,
    tokens={"a": 4, "b": 1},
    encoder_budget=4,
    encodes={},
    whole_items=0,
    windows={"a": Span(0, 4), "b": Span(7, 8)},
    items={"a": (), "b": ()},
    running_max=2,
    running=2,
)
ROOM = Room(configured=16, largest=4, slots=16)
SERVICE = Service(
    refused="ValueError",
    seqs=4,
    step=16,
    least=1,
    together=16,
    prompt=63,
    chunk=64,
    prompt_max=64,
    blocks=4,
    blocks_max=4,
)


def holds(contract: str, subject: NamedTuple) -> bool:
    return bool(by_id(contract).predicate(subject))


@pytest.mark.parametrize(
    ("contract", "subject"),
    [
        ("SC-2", READS),
        ("SC-2", READS._replace(wanted={})),
        ("SC-3", STOPS),
        ("SC-3", STOPS._replace(ends={"a": 4, "b": 20, "c": 16})),
        ("SC-3", STOPS._replace(refused={}, allowed={})),
        ("SC-5", FILLS),
        ("SC-5", FILLS._replace(filled=())),
        ("SC-7", OVERTAKING),
        ("SC-7", OVERTAKING._replace(overtaken=NOBODY, stale=NOBODY, transfer=NOBODY)),
        ("SC-9", INPUTS),
        ("SC-9", Inputs({}, {})),
        ("SC-10", TELLING),
        ("SC-10", Telling({}, {}, {}, 0)),
        ("SC-11", CLAIMS),
        ("SC-12", SPENDING),
        ("SC-13", VICTIMS),
        ("SC-13", VICTIMS._replace(stay={})),
        ("SC-14", PROGRESS),
        ("SC-15", KV_READS),
        ("SC-16", HOLDING),
        ("SC-17", HOLDING),
        ("SC-18", SERVICE._replace(refused="")),
        ("SC-19", PRESENCE),
        ("SC-20", PLAN),
        ("SC-20", PLAN._replace(windows={})),
        ("SC-21", ROOM),
        ("SC-21", ROOM._replace(largest=20, slots=20)),
        ("DF-1", READS),
        ("DF-1", READS._replace(dropped={"y"})),
        ("LV-2", ARRIVAL),
        ("LV-3", STRETCH),
    ],
)
def test_what_a_correct_scheduler_does_keeps_the_contract(
    contract: str, subject: NamedTuple
) -> None:
    assert holds(contract, subject)


@pytest.mark.parametrize(
    ("contract", "subject"),
    [
        ("SC-2", READS._replace(available={"x", "z"})),
        ("SC-2", READS._replace(wanted={"a": {"x"}, "b": {"v"}})),
        ("SC-3", STOPS._replace(ends={"a": 9, "b": 12})),
        ("SC-3", STOPS._replace(ends={"a": 8, "b": 11})),
        ("SC-3", STOPS._replace(allowed={"b": set()})),
        ("SC-5", FILLS._replace(filled=("x", "z"))),
        ("SC-5", FILLS._replace(filled=("x", "y", "x"))),
        ("SC-7", OVERTAKING._replace(transfer=NOBODY)),
        ("SC-7", OVERTAKING._replace(overtaken={"a", "b", "c"})),
        ("SC-9", INPUTS._replace(withheld={"a": {0}, "b": {0, 2}})),
        ("SC-9", INPUTS._replace(encodes={"a": {1, 0}, "b": {0}})),
        ("SC-10", TELLING._replace(drafts={"b": 3})),
        ("SC-10", TELLING._replace(drafts={"c": 1})),
        ("SC-10", TELLING._replace(encodes={"c": [0]})),
        ("SC-10", TELLING._replace(total=8)),
        ("SC-11", CLAIMS._replace(claimed={"a": {0, 2}, "b": {0}})),
        ("SC-12", SPENDING._replace(budget=2)),
        ("SC-12", SPENDING._replace(taken=5)),
        ("SC-13", VICTIMS._replace(preempted={"a": 0}, stay={"b": 1})),
        ("SC-14", PROGRESS._replace(starts={"a": 5})),
        ("SC-14", PROGRESS._replace(starts={"c": 6})),
        ("SC-15", KV_READS._replace(right={"a": {1: 8, 2: 2}})),
        ("SC-16", HOLDING._replace(free=2)),
        ("SC-16", HOLDING._replace(held=5)),
        ("SC-17", HOLDING._replace(slots={"a": 8, "b": 8})),
        ("SC-18", SERVICE),
        ("SC-19", PRESENCE._replace(there={"a"})),
        ("SC-19", PRESENCE._replace(owed={"b"})),
        ("SC-20", PLAN._replace(windows={"a": Span(0, 4), "b": Span(-1, 1)})),
        ("SC-21", ROOM._replace(slots=17)),
        ("SC-21", ROOM._replace(largest=20)),
        ("SC-21", ROOM._replace(slots=4)),
        ("DF-1", READS._replace(dropped={"x"})),
        ("LV-2", ARRIVAL._replace(tokens=64)),
        ("LV-2", ARRIVAL._replace(embeddings=9)),
        ("LV-2", ARRIVAL._replace(compute=7)),
        ("LV-2", ARRIVAL._replace(blocks=5)),
        ("LV-2", ARRIVAL._replace(together=17)),
        ("LV-3", STRETCH._replace(steps=21)),
    ],
)
def test_what_it_must_not_do_breaks_the_contract(contract: str, subject: NamedTuple) -> None:
    assert not holds(contract, subject)


@pytest.mark.parametrize("reason", ["stale", "adapter", "transfer", "item", "prompt"])
def test_any_listed_reason_lets_a_request_be_overtaken(reason: str) -> None:
    nobody = Overtaking({"a"}, NOBODY, NOBODY, NOBODY, NOBODY, NOBODY)
    assert not holds("SC-7", nobody)
    assert holds("SC-7", nobody._replace(**{reason: {"a"}}))


@pytest.mark.parametrize(
    "beyond",
    [{"seqs": 17}, {"least": 0}, {"together": 17}, {"prompt": 64}, {"chunk": 65}, {"blocks": 5}],
    ids=lambda beyond: next(iter(beyond)),
)
def test_what_is_beyond_a_documented_limit_may_be_refused(beyond: dict[str, int]) -> None:
    assert holds("SC-18", SERVICE._replace(**beyond))
