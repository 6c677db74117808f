"""Engines with their second model runner, whose kernels are interpreted."""

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import msgspec
import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.judges.engine import ANSWERS, STORES
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.canary import canaries_in, plant
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.targets.both_runners import EngineTarget
from cacheproof.differential.targets.host.engine.limits import LIMITS
from cacheproof.differential.targets.host.faults.engine.second import SECOND_FAULTS
from cacheproof.differential.targets.host.faults.engine.sessions import SECOND_SESSION_FAULTS
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.records import UNDER_FIRST
from cacheproof.differential.traces.scheduler import Chunk, Schedule
from cacheproof.differential.traces.trace import Trace
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.releases import NEWEST

LANES_OF_BOTH = [
    lane
    for lane in (one.under("second") for one in LANES.values() if one.depth == "engine")
    if lane.has_runner
]
DROPPING = {"Qwen2.5-VL": 2, "Qwen3-VL": 1, "Qwen2-Audio": 0}
"""Seeds in which workers are told to drop the data of items, of models with several rotary axes and
with one."""
LISTED = {
    "phantom-entry-engine": {"WM-1", "WM-2", "SC-8"},
    "uncomputed-hit-engine": {"SC-15", "EQ-1"},
    "encoder-batch-memory": {"WM-3a"},
    "pruned-videos-chunk": {"SC-8"},
    "pruned-videos-two": {"SC-8"},
    "pruned-videos-hit": {"EQ-1"},
    "pruned-videos-places": {"EQ-1"},
    "stripped-item-engine": set(),
    "embedded-drafter": set(),
    "embedded-sampled": {"EQ-1"},  # the first answers otherwise
}
"""What kept traces of engines break under it."""


PLANTED = {
    **dict.fromkeys(SECOND_FAULTS, "LLaVA"),
    "knows_items_of_first_turns": "LLaVA with sessions",
    "lets_the_newest_go": "Qwen2.5-VL",
    "turns_by_old_positions": "Qwen2.5-VL",
    "rolls_nothing_back": "LLaVA with steps ahead",
    "rolls_back_one_too_many": "LLaVA with steps ahead",
}
"""Faults of it, and the lane in which each shows."""


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineTarget]:
    with closing(resolve(f"engine@{NEWEST}", report=print)) as target:
        assert isinstance(target, EngineTarget)
        yield target


def kept(name: str) -> Trace:
    found = finding_file.load(kept_traces()[name])
    return (found.trace if isinstance(found, Finding) else found).under_runner("second")


def answers(trace: Trace, engine: EngineTarget) -> list[Any]:
    """What the store holds in each step, and what is decoded of it."""
    (result,) = engine.run([trace])
    told: list[Any] = []
    for record in result.records:
        outcome = record.outcome if isinstance(record.outcome, dict) else {}
        told += [outcome["store"]] if "store" in outcome else []
        decoded = outcome.get("outputs", {}).items()
        told += [(name, [token for token, *_ in tokens]) for name, tokens in decoded]
    return told


def test_a_lane_takes_a_runner_along_to_another_process() -> None:
    lane = LANES["LLaVA"].under("second")
    assert lane.trace(3, NEWEST).runner == "second"
    assert LANES["LLaVA"].under("first").trace(3, NEWEST).runner == "first"
    made, arguments = lane.__reduce__()
    assert callable(made)
    assert isinstance(arguments, tuple)
    assert made(*arguments) == lane


def test_a_lane_without_a_scheduler_has_no_runner_and_whisper_no_second_one() -> None:
    assert not LANES["block keys"].under("first").has_runner
    assert LANES["Whisper"].under("first").has_runner
    assert not LANES["Whisper"].under("second").has_runner


@pytest.mark.full
@pytest.mark.parametrize("lane", LANES_OF_BOTH, ids=lambda lane: lane.name)
def test_the_second_runner_answers_as_the_torch_runner_does(
    lane: Lane, engine: EngineTarget, runner: ReferenceTarget
) -> None:
    with closing(Attribution.of_target(load(), engine, runner)) as attribution:
        for seed in {0, 1, DROPPING.get(lane.name, 1)}:
            trace = lane.trace(seed, NEWEST)
            (result,) = engine.run([trace])
            seen = examine(trace, result, engine, runner)
            assert seen.illegal is None
            assert seen.difference is None
            for place, told in attribution.of(trace, result, seen, lane.name).items():
                broken = seen.by_kind[place]
                assert told.fault or broken.contract.harm == "efficiency", place


@pytest.mark.full
def test_workers_are_told_to_drop_the_data_of_items(engine: EngineTarget) -> None:
    """So that the seeds above say something."""
    for name, seed in DROPPING.items():
        (result,) = engine.run([LANES[name].under("second").trace(seed, NEWEST)])
        outcomes = [one.outcome for one in result.records if isinstance(one.outcome, dict)]
        assert any(one.get("dropped") for one in outcomes), name


@pytest.mark.full
@pytest.mark.parametrize("name", LISTED)
def test_a_known_fault_shows_under_it_or_does_not(name: str, engine: EngineTarget) -> None:
    trace = kept(name)
    (result,) = engine.run([trace])
    assert set(examine(trace, result, engine).violations) == LISTED[name]


@pytest.mark.full
def test_faults_of_a_store_are_found_under_it(engine: EngineTarget) -> None:
    lane = LANES["LLaVA"].under("second")
    found = plant(canaries_in(lane, engine), engine, lane)
    assert set(found) == {
        f"{one} (LLaVA, second model runner)" for one in ("EQ-1", "WM-1", "WM-3a")
    }
    assert all(found.values())


@pytest.mark.full
def test_the_memory_of_copies_is_seen_where_the_release_has_none(engine: EngineTarget) -> None:
    """Else a planted fault would be found by a real one alone."""
    for name in ("LLaVA", "Qwen2.5-VL with pruned videos"):
        trace = LANES[name].under("second").trace(0, NEWEST)
        for fault, broken in ((None, False), ("keeps_what_it_cut_off", True)):
            (result,) = engine.run([trace], fault)
            assert ("WM-3a" in examine(trace, result, engine).violations) == broken, name


@pytest.mark.full
@pytest.mark.parametrize("name", ["LLaVA", "Qwen2.5-VL", "Qwen2-Audio", "Cohere2Vision"])
def test_both_runners_give_one_answer(name: str, engine: EngineTarget) -> None:
    for seed in range(3):
        trace = LANES[name].trace(seed, NEWEST)
        first = answers(trace.under_runner("first"), engine)
        assert first
        assert answers(trace.under_runner("second"), engine) == first


@pytest.mark.full
def test_runners_that_are_told_otherwise_may_hold_other_entries(engine: EngineTarget) -> None:
    """By prompt lookup the second has more drafts, which leave less to others."""
    trace = LANES["LLaVA with steps ahead"].under("second").trace(9, NEWEST)
    (result,) = engine.run([trace])
    steps = [one.outcome for one in result.records if isinstance(one.outcome, dict)]
    assert any(one[UNDER_FIRST].get("store", one.get("store")) != one.get("store") for one in steps)
    assert "EQ-1" not in examine(trace, result, engine).broken


@pytest.mark.full
@pytest.mark.parametrize(("kept", "kind"), [("outputs", ANSWERS), ("store", STORES)])
def test_another_answer_under_the_first_breaks_a_contract(
    kept: str, kind: str, engine: EngineTarget
) -> None:
    trace = LANES["LLaVA"].under("second").trace(1, NEWEST)
    (result,) = engine.run([trace])
    assert "EQ-1" not in examine(trace, result, engine).broken
    at, told = next(
        (number, record.outcome)
        for number, record in enumerate(result.records)
        if isinstance(record.outcome, dict) and record.outcome.get(kept)
    )
    if kept == "outputs":
        name, ((token, *scores), *others) = next(iter(told[kept].items()))
        otherwise: Any = {**told[kept], name: [[token + 1, *scores], *others]}
    else:
        otherwise = {}
    changed = {**told, UNDER_FIRST: {**told[UNDER_FIRST], kept: otherwise}}
    records = [*result.records]
    records[at] = records[at]._replace(outcome=changed)
    seen = examine(trace, msgspec.structs.replace(result, records=records), engine)
    assert {one for one in seen.by_kind if one[0] == "EQ-1"} == {("EQ-1", kind)}
    assert seen.by_kind["EQ-1", kind].event == at


@pytest.mark.full
def test_an_answer_that_the_first_gave_earlier_is_compared(engine: EngineTarget) -> None:
    """With drafts either runner may be ahead of the other."""
    trace = LANES["LLaVA"].under("second").trace(1, NEWEST)
    (result,) = engine.run([trace])
    records = [*result.records]
    *_, (before, name), (last, _) = [
        (number, name)
        for number, one in enumerate(records)
        if isinstance(one.outcome, dict)
        for name in one.outcome.get("outputs", ())
        if name == "r2"
    ]

    def answered(at: int, tokens: list[Any]) -> None:
        outcome = records[at].outcome
        outputs = {**outcome[UNDER_FIRST]["outputs"], name: tokens}
        told = {**outcome[UNDER_FIRST], "outputs": {n: one for n, one in outputs.items() if one}}
        records[at] = records[at]._replace(outcome={**outcome, UNDER_FIRST: told})

    ((token, *scores),) = records[last].outcome["outputs"][name]
    answered(before, [*records[before].outcome["outputs"][name], [token + 1, *scores]])
    answered(last, [])
    seen = examine(trace, msgspec.structs.replace(result, records=records), engine)
    assert seen.by_kind["EQ-1", ANSWERS].event == last


@pytest.mark.full
def test_a_batch_of_both_comes_back_in_its_order(engine: EngineTarget) -> None:
    mixed = [LANES["LLaVA"].trace(seed, NEWEST) for seed in range(4)]
    assert [one.runner for one in mixed] == ["first", "second"] * 2
    together = engine.run(mixed)
    assert [len(one.records) for one in together] == [len(one.events) for one in mixed]
    assert [engine.run([one])[0] for one in mixed] == together


@pytest.mark.full
def test_a_host_that_breaks_leaves_no_answers_to_the_next_question(engine: EngineTarget) -> None:
    lane = LANES["LLaVA"].under("second")
    (alone,) = engine.run([lane.trace(1, NEWEST)])
    with pytest.raises(HarnessError):
        engine.run([lane.trace(0, NEWEST)], "no such fault")
    assert engine.run([lane.trace(1, NEWEST)]) == [alone]


@pytest.mark.full
@pytest.mark.parametrize(("fault", "lane"), PLANTED.items())
def test_a_fault_of_it_is_seen(
    fault: str, lane: str, engine: EngineTarget, runner: ReferenceTarget
) -> None:
    for seed in range(6):
        trace = LANES[lane].under("second").trace(seed, NEWEST)
        seen = [
            examine(trace, engine.run([trace], one)[0], engine, runner) for one in (None, fault)
        ]
        without, planted = seen
        assert without.difference is None
        assert planted.illegal is None
        if planted.difference is not None and planted.broken - without.broken:
            return
    raise AssertionError(f"{fault} is not seen in {lane}")


@pytest.mark.full
def test_a_session_of_many_turns_ends_who_takes_a_place_for_each(
    engine: EngineTarget, runner: ReferenceTarget
) -> None:
    """As before PR #37028: docs/explain/runner.md#the-second-model-runner."""
    plain = LANES["LLaVA"].under("second").trace(1, NEWEST).header
    config = msgspec.structs.replace(plain.config, num_blocks=64, max_model_len=160)
    step = (Schedule(), Update()) * 2
    turns = [(*step, Chunk("a", 2, max_tokens=2)) for _ in range(LIMITS["max_num_seqs"])]
    events = (Add("a", 8, max_tokens=2, resumable=True), *chain(*turns), *step)
    trace = Trace(msgspec.structs.replace(plain, config=config), events)
    assert examine(trace, engine.run([trace])[0], engine, runner).broken == set()
    (ended,) = engine.run([trace], "takes_a_place_for_each_turn")
    assert ended.records[-1].raised is not None
    assert ended.records[-1].raised.message == "No free indices"
    assert examine(trace, engine.run([trace])[0], engine, runner).broken == set()


def test_every_fault_of_it_is_planted() -> None:
    of_many_turns = {"takes_a_place_for_each_turn"}
    assert PLANTED.keys() | of_many_turns == SECOND_FAULTS.keys() | SECOND_SESSION_FAULTS.keys()
    assert len(PLANTED) >= 15


@pytest.mark.full
def test_what_it_does_not_run_is_refused_by_name(engine: EngineTarget) -> None:
    (result,) = engine.run([LANES["Whisper"].trace(0, NEWEST).under_runner("second")])
    assert result.illegal == "the second model runner keeps no store for an encoder-decoder"
    (result,) = engine.run(
        [LANES["LLaVA"].trace(0, NEWEST).under_runner("second")], "loses_a_token"
    )
    assert result.illegal is not None
    assert result.illegal.startswith("loses_a_token is a fault of the other model runner")
