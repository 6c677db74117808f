"""Traces made of written-down choices: the same again, alike but for some, and all legal."""

import random
from itertools import islice

import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget

LANES_TRIED = ("encoder cache", "scheduler", "scheduler with KV loads", "KV cache")


def by_stream(made) -> dict[str, list[float]]:
    given: dict[str, list[float]] = {}
    for name, drawn in made:
        given.setdefault(name, []).append(drawn)
    return given


@pytest.mark.parametrize("lane", LANES_TRIED)
def test_the_same_choices_make_the_same_trace(script, lane: str) -> None:
    first = script.Making("one", {})
    trace = first.trace(lane)
    assert script.Making("another", by_stream(first.made)).trace(lane) == trace
    assert script.Making("another", {}).trace(lane) != trace


@pytest.mark.parametrize("lane", LANES_TRIED)
@pytest.mark.parametrize("way", ["swarm", "novelty", "feedback"])
def test_the_reference_refuses_only_items_longer_than_a_step_and_breaks_nothing(
    script, way: str, lane: str
) -> None:
    target = ReferenceTarget()
    traces = list(islice(script.WAYS[way](lane, 3), 8))
    results = target.run(traces)
    refused = [result.illegal for result in results if result.illegal is not None]
    assert all(reason.startswith("an item of") for reason in refused)
    assert len(refused) < len(traces) / 2
    assert not any(
        script.examine(trace, result, target).violations
        for trace, result in zip(traces, results, strict=True)
    )


@pytest.mark.parametrize("way", ["today", "swarm", "novelty", "feedback"])
def test_a_way_makes_the_same_traces_of_a_base_each_time_and_others_of_another(
    script, way: str
) -> None:
    def made(base: int) -> list[object]:
        return list(islice(script.WAYS[way]("scheduler", base), 6))

    assert made(1) == made(1)
    assert made(1) != made(2)


def test_today_is_what_a_search_has_of_its_seeds(script) -> None:
    lane = LANES["scheduler"]
    first = 2 * script.SEEDS_OF_A_BASE
    expected = [lane.trace(seed, None) for seed in range(first, first + 3)]
    assert list(islice(script.as_today("scheduler", 2), 3)) == expected


def test_generators_draw_from_their_own_streams_again_when_a_trace_is_made(script) -> None:
    before = LANES["scheduler"].trace(7, None)
    script.Making("one", {}).trace("scheduler")
    assert LANES["scheduler"].trace(7, None) == before


def test_a_child_keeps_some_choices_of_its_parent_and_draws_others_anew(script) -> None:
    parent = script.Making("one", {})
    parent.trace("scheduler")
    kept_and_drawn = set()
    for seed in range(20):
        given = script.child_of(parent.made, random.Random(seed))
        kept = sum(drawn is not None for some in given.values() for drawn in some)
        kept_and_drawn.add((kept > 0, kept < len(parent.made)))
    assert kept_and_drawn == {(True, True)}


def test_a_trace_meets_states_pairs_of_them_and_settings(script) -> None:
    met = [
        name for seed in range(6) for name in script.met_by(LANES["scheduler"].trace(seed, None))
    ]
    assert any(name.startswith("eviction:") for name in met)
    assert "eviction&async_scheduling=False" in met
    assert any(name.startswith("shared&") for name in met)
