"""A failing trace becomes small, stays legal, fails as before, and does so every time alike."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace

from cacheproof.differential.findings.shrinking import shrink as shrinking
from cacheproof.differential.findings.shrinking.edits import cost, merged_requests, shape
from cacheproof.differential.findings.shrinking.shrink import BATCHES_MAX, shrink
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import SCHEMA, Item
from cacheproof.differential.traces.manager import (
    Add,
    ManagerConfig,
    ManagerHeader,
    Notices,
    Update,
    Walk,
)
from cacheproof.differential.traces.scheduler import (
    Abort,
    Schedule,
    SchedulerHeader,
)
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump, parse
from cacheproof.reference.semantics import Semantics
from tests.differential.scheduler_traces import CONFIG

KNOWN_FAULTS = [
    ("0.28.0", "encoder_cache", "EC-6", 0, 6),
    ("0.28.0", "encoder_cache", "EC-6a", 0, 4),
    ("0.27.1", "encoder_cache", "EC-9", 0, 10),
    ("0.33.0", "encoder_decoder", "ED-1", 3, 2),
    ("0.33.0", "encoder_decoder", "ED-2", 0, 7),
    ("0.14.0", "encoder_decoder", "ED-3", 0, 5),
    ("0.14.0", "encoder_decoder", "WM-4", 0, 3),
]


class Breaks:
    """Says which candidates break a contract on a release's semantics; keeps the batch sizes."""

    def __init__(self, release: str, contract: str) -> None:
        self._target = ReferenceTarget(Semantics.of_vllm(release), release=release)
        self._contract = contract
        self.batches: list[int] = []

    def __call__(self, candidates: list[Trace]) -> list[bool]:
        self.batches.append(len(candidates))
        results = self._target.run(candidates)
        return [
            self._contract in examine(trace, result, self._target).violations
            for trace, result in zip(candidates, results, strict=True)
        ]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("release", "manager", "contract", "seed", "most"), KNOWN_FAULTS)
def test_a_known_fault_needs_few_events(
    release: str, manager: str, contract: str, seed: int, most: int
) -> None:
    breaks = Breaks(release, contract)
    trace = manager_trace(seed, manager)
    small, is_whole = shrink(trace, breaks)
    assert is_whole
    assert breaks([small]) == [True]
    assert len(small.events) <= most
    assert parse(dump(small).encode().splitlines(), "shrunk") == small


def test_the_same_trace_shrinks_to_the_same_trace() -> None:
    trace = manager_trace(7, "encoder_cache")
    assert shrink(trace, Breaks("0.28.0", "EC-6a")) == shrink(trace, Breaks("0.28.0", "EC-6a"))


def test_requests_and_identifiers_are_renamed_in_order() -> None:
    small = shrink(manager_trace(0), Breaks("0.28.0", "EC-6")).trace
    assert shape(small) == ("encoder_cache; add a[x]; add b[y y]; walk b; notices; update; walk a")


def test_names_stay_where_the_failure_depends_on_them() -> None:
    trace = manager_trace(0)

    def names_r1(candidates: list[Trace]) -> list[bool]:
        return [any(getattr(e, "request", "") == "r1" for e in c.events) for c in candidates]

    small = shrink(trace, names_r1).trace
    assert [event.request for event in small.events if hasattr(event, "request")]
    assert names_r1([small]) == [True]


def test_no_batch_is_larger_than_asked() -> None:
    breaks = Breaks("0.28.0", "EC-6a")
    shrink(manager_trace(0), breaks, batch=5)
    assert max(breaks.batches) <= 5
    assert len(breaks.batches) <= BATCHES_MAX + 3


@pytest.mark.parametrize("limit", [{"batches": 3}, {"until": 0.0}])
def test_a_search_that_a_limit_ended_is_not_whole(limit: dict[str, Any]) -> None:
    breaks = Breaks("0.28.0", "EC-6")
    small, is_whole = shrink(manager_trace(0), breaks, **limit)
    assert not is_whole
    assert len(small.events) > len(shrink(small, breaks).trace.events)


@pytest.mark.full
def test_a_trace_that_resists_is_returned_as_it_is() -> None:
    trace = manager_trace(0)
    assert shrink(trace, lambda candidates: [False] * len(candidates)) == (trace, True)


def header(capacity: int = 8) -> ManagerHeader:
    return ManagerHeader(SCHEMA, "encoder_cache", ManagerConfig(capacity, capacity))


def keeps(condition: Callable[[Trace], bool]) -> Callable[[list[Trace]], Sequence[bool]]:
    return lambda candidates: [condition(candidate) for candidate in candidates]


def test_masks_become_dense_and_items_short() -> None:
    mask = (False, True, False, True)
    add = Add("r", prompt=9, items=(Item("h", 2, 4, mm_hash="k", is_embed=mask), Item("i", 6, 3)))
    small = shrink(
        Trace(header(), (add, Walk("r", 4), Notices())),
        keeps(lambda trace: any(isinstance(e, Add) and e.items for e in trace.events)),
    ).trace
    assert small.events == (Add("a", prompt=1, items=(Item("x", 0, 1),)),)
    assert small.header == header(1)


def test_two_walks_of_a_request_become_one() -> None:
    trace = Trace(header(), (Add("r", prompt=9), Walk("r", 4), Notices(), Walk("r", 5)))

    def walks_nine(trace: Trace) -> bool:
        return sum(event.tokens for event in trace.events if isinstance(event, Walk)) == 9

    assert shrink(trace, keeps(walks_nine)).trace.events == (Add("a", prompt=1), Walk("a", 9))


def scheduler_header(tokens_a_step: int) -> SchedulerHeader:
    sizes = {"capacity": 16, "compute_budget": 16, "num_blocks": 20}
    config = replace(CONFIG, max_num_batched_tokens=tokens_a_step, **sizes)
    return SchedulerHeader(SCHEMA, "encoder_cache", config)


def test_a_scheduler_takes_few_large_steps_in_the_place_of_many() -> None:
    def gets_far(trace: Trace) -> bool:
        steps = sum(pair == (Schedule(), Update()) for pair in pairwise(trace.events))
        return 24 <= steps * trace.header.config.max_num_batched_tokens <= 40  # type: ignore[union-attr]

    small = shrink(Trace(scheduler_header(4), (Schedule(), Update()) * 8), keeps(gets_far)).trace
    assert small.events == (Schedule(), Update())


def test_a_scheduler_trace_loses_events_and_configuration() -> None:
    events = (
        Add("r0", prompt=20, items=(Item("h", 0, 10),), max_tokens=3, priority=2),
        Schedule(),
        Update(2),
        Add("r1", prompt=5),
        Schedule(),
        Abort("r1"),
        Update(),
    )

    def aborts_with_room(trace: Trace) -> bool:
        aborts = any(isinstance(event, Abort) for event in trace.events)
        return aborts and trace.header.config.num_blocks >= 3  # type: ignore[union-attr]

    small = shrink(Trace(scheduler_header(64), events), keeps(aborts_with_room)).trace
    assert small.events == (Add("a", prompt=1), Abort("a"))
    assert small.header.config.num_blocks == 3  # type: ignore[union-attr]
    assert small.header.config.max_num_batched_tokens == 1  # type: ignore[union-attr]


def test_every_step_of_the_search_is_cheaper() -> None:
    asked: list[Trace] = []

    def always(candidates: list[Trace]) -> list[bool]:
        asked.extend(candidates)
        return [True] * len(candidates)

    trace = manager_trace(3)
    assert all(
        cost(candidate) <= cost(trace) for candidate in [shrink(trace, always).trace, *asked]
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("lane", "keeps_one"), [("encoder-decoder", True), ("encoder cache", False)]
)
def test_requests_of_decoders_with_one_item_keep_to_it(lane: str, keeps_one: bool) -> None:
    most = set()
    for seed in range(20):
        trace = LANES[lane].trace(seed, None)
        for merged in merged_requests(trace):
            if merged is not None:
                adds = [event for event in merged.events if isinstance(event, Add)]
                most.add(max(len(event.items) for event in adds))
    assert (max(most, default=1) == 1) == keeps_one


@pytest.mark.full
def test_requests_of_decoders_that_have_several_items_are_merged() -> None:
    merged = [
        one
        for seed in range(5)
        for one in merged_requests(LANES["encoder-decoder of several items"].trace(seed, None))
    ]
    assert any(one is not None for one in merged)


def test_without_tries_nothing_is_made_to_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_fails(candidates: list[Trace]) -> list[bool]:
        return [False] * len(candidates)

    def never(*_: object) -> NoReturn:
        raise AssertionError("a candidate was made")

    def none_of(*_: object) -> Iterator[Trace]:
        yield never()

    trace = manager_trace(3)
    monkeypatch.setattr(shrinking, "without", never)
    monkeypatch.setattr(shrinking.edits, "simpler_items", none_of)
    assert shrink(trace, none_fails, batches=0) == (trace, False)
    with pytest.raises(AssertionError, match="a candidate was made"):
        shrink(trace, none_fails)
