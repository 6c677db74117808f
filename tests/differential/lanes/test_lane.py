"""A lane says which releases have what it is about: what a release lacks is not searched there, and
no planted fault is looked for. Its traces are ones that a file can hold."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.traces.trace_file import dump, parse
from cacheproof.reference.releases import NEWEST

SEEDS = range(8)
BEFORE = ("0.10.2", "0.11.0", "0.12.0", "0.13.0", "0.22.1")
"""The last releases before one that offers a further lane."""


@pytest.mark.parametrize("lane", LANES.values(), ids=lambda lane: lane.name)
def test_a_trace_of_any_lane_is_read_from_its_file_as_it_was_written(lane: Lane) -> None:
    for trace in (lane.trace(seed, None) for seed in SEEDS):
        assert parse(dump(trace).encode().splitlines(), "file") == trace


@pytest.mark.full
@pytest.mark.parametrize(
    "release", [NEWEST, *(pytest.param(one, marks=pytest.mark.full) for one in BEFORE)]
)
def test_a_release_runs_some_trace_of_every_lane_that_it_offers(
    release: str, hosted: Callable[[str], AbstractContextManager[HostTarget]]
) -> None:
    with hosted(release) as target:
        offered = [
            lane
            for lane in LANES.values()
            if lane.is_offered_by(target.model) and target.runs_depth(lane.depth)
        ]
        refused = {}
        for lane in offered:
            results = target.run([lane.trace(seed, target.model) for seed in SEEDS])
            if all(result.illegal is not None for result in results):
                refused[lane.name] = results[0].illegal
    assert offered
    assert refused == {}
