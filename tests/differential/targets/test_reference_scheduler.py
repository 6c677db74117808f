"""The reference scheduler beside the real one of each release: the same decision at every step."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from cacheproof.differential.findings import finding_file
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets import reference_scheduler
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.attention_kinds import SlidingWindowManager
from cacheproof.reference.scheduler import running, update, waiting
from cacheproof.reference.scheduler.step import ScheduleStep
from cacheproof.reference.semantics import offered_by
from cacheproof.spec.versions import Versions, release_key
from tests.differential.targets.parameters import newest_and

SEEDS = range(150)
FEW = range(60)
TRACES = {
    "scheduler": SEEDS,
    "scheduler with loads": FEW,
    "scheduler with reused media ids": FEW,
    "scheduler with windows": FEW,
    "scheduler with KV loads": FEW,
    "scheduler of encoder-decoders": FEW,
}
OTHERS = [
    "0.10.2", "0.11.0", "0.12.0", "0.13.0", "0.14.0", "0.14.1", "0.15.1", "0.18.1", "0.22.1",
    "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0",
]  # fmt: skip


@pytest.fixture(
    scope="module",
    params=newest_and(*OTHERS),
)
def target(
    request: pytest.FixtureRequest, hosted: Callable[[str], AbstractContextManager[HostTarget]]
) -> Iterator[HostTarget]:
    with hosted(request.param) as target:
        yield target


@pytest.fixture(scope="module")
def ran(target: HostTarget) -> Callable[[str], list[tuple[Trace, TraceResult]]]:
    """The traces of a lane, each with what came of it in the release, which runs it once."""

    @cache
    def run(lane: str) -> list[tuple[Trace, TraceResult]]:
        traces = [LANES[lane].trace(seed, target.release) for seed in TRACES[lane]]
        return list(zip(traces, target.run(traces), strict=True))

    return run


Partings = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def partings(target: HostTarget, ran: Callable[[str], list[tuple[Trace, TraceResult]]]) -> Partings:
    """How many traces of these lanes are compared, and where reference and release part in them."""

    def part(lanes: Iterable[str] = TRACES) -> tuple[int, list[str]]:
        reference = reference_for(target)
        assert reference is not None
        compared, found = 0, []
        for trace, result in (one for lane in lanes for one in ran(lane)):
            if result.illegal is None and reference.runs(trace):
                examined = examine(trace, result, target, reference)
                compared += 1
                if examined.difference is not None:
                    found.append(f"seed {trace.header.seed}: {examined.difference.sentence}")
        return compared, found

    return part


@pytest.mark.full
def test_every_decision_is_that_of_the_reference(partings: Partings) -> None:
    compared, found = partings()
    assert found == []
    assert compared > len(SEEDS) // 3


@pytest.mark.full
def test_a_prompt_token_that_a_session_loses_is_still_counted() -> None:
    trace = finding_file.load(Path(__file__).parent / "data" / "session_token.jsonl")
    assert isinstance(trace, Trace)
    with closing(resolve("vllm@0.28.0", report=print)) as real:
        reference = reference_for(real)
        assert reference is not None
        (result,) = real.run([trace])
        examined = examine(trace, result, real, reference)
    assert result.records[-1].outcome["scheduled"] == {"a": 3}
    assert examined.difference is None


@pytest.mark.parametrize(
    ("finding", "where"), [("turn", "update"), ("turn-hit", "schedule: a session waits")]
)
def test_a_failed_load_whose_next_step_ends_a_turn_stops_both_sides(
    newest: HostTarget, finding: str, where: str
) -> None:
    trace = finding_file.load(kept_traces()[f"kv-load-{finding}"])
    assert isinstance(trace, Trace)
    reference = reference_for(newest)
    assert reference is not None
    examined = examine(trace, newest.run([trace])[0], newest, reference)
    assert examined.difference is None
    assert ("SC-8", f"AssertionError in {where}") in examined.by_kind
    ideal = ReferenceTarget()
    assert examine(trace, ideal.run([trace])[0], ideal).broken == set()


@pytest.mark.parametrize(
    ("finding", "broken"),
    [
        ("kv-load-shared", {"SC-20": ">=0.14.0,<0.19.0", "SC-8": ">=0.19.0,<0.31.0"}),
        ("kv-load-hit-sent", {"KT-1": ">=0.11.1", "KT-2": ">=0.11.1"}),
        ("session-placeholders", {"SC-8": ">=0.25.0,<0.31.0"}),
    ],
)
def test_a_finding_breaks_what_its_page_says_and_both_sides_agree(
    target: HostTarget, finding: str, broken: dict[str, str]
) -> None:
    trace = finding_file.load(kept_traces()[finding])
    assert isinstance(trace, Trace)
    reference = reference_for(target)
    assert reference is not None
    assert target.release is not None
    (result,) = target.run([trace])
    if result.illegal is not None or not reference.runs(trace):
        pytest.skip(f"{target.release} does not offer it, or the reference does not model it")
    examined = examine(trace, result, target, reference)
    assert examined.difference is None
    assert examined.broken == {
        contract for contract, where in broken.items() if target.release in Versions(where)
    }
    ideal = ReferenceTarget()
    assert examine(trace, ideal.run([trace])[0], ideal).broken == set()


def test_who_shares_a_failed_load_computes_its_last_token_in_the_release(
    newest: HostTarget,
) -> None:
    trace = finding_file.load(kept_traces()["kv-load-shared"])
    assert isinstance(trace, Trace)
    reference = reference_for(newest)
    assert reference is not None
    otherwise = reference.semantics.without("scheduler.computes_last_after_failures")
    (result,) = newest.run([trace])
    parted = examine(trace, result, newest, ReferenceTarget(otherwise)).difference
    assert parted is not None
    assert parted.event == len(trace.events) - 1


def test_a_chunk_of_a_prompt_that_is_taken_back_holds_back_prompts_in_the_release(
    newest: HostTarget,
) -> None:
    trace = finding_file.load(Path(__file__).parent / "data" / "withdrawn_prefill.jsonl")
    assert isinstance(trace, Trace)
    (result,) = newest.run([trace])
    reference = reference_for(newest)
    assert reference is not None
    assert examine(trace, result, newest, reference).difference is None
    otherwise = reference.semantics.changed({"scheduler.forgets_withdrawn_prefills": True})
    parted = examine(trace, result, newest, ReferenceTarget(otherwise)).difference
    assert parted is not None
    assert parted.event == len(trace.events) - 1


def test_a_reference_that_decides_otherwise_is_seen(
    partings: Partings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_less(self: ScheduleStep, num_new_tokens: int) -> int:
        return max(1, num_new_tokens - 1)

    monkeypatch.setattr(running.ScheduleStep, "bounded", one_less)
    _, found = partings()
    assert len(found) > len(SEEDS) // 10


def test_a_reference_that_loads_nothing_is_seen(
    target: HostTarget, partings: Partings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_scheduler.EncoderTransfers, "has_cache_item", lambda *_: False)
    _, found = partings(["scheduler with loads"])
    loads = LANES["scheduler with loads"].is_offered_by(target.release)
    assert (len(found) > len(FEW) // 3) == loads
    assert bool(found) == loads


def test_a_reference_that_gives_nothing_back_behind_a_window_is_seen(
    target: HostTarget, partings: Partings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlidingWindowManager, "get_num_skipped_tokens", lambda *_: 0)
    compared, found = partings(["scheduler with windows"])
    assert (len(found) > len(FEW) // 4) == (compared > 0) == has_groups(target)


def test_a_reference_that_forgets_cross_attention_is_seen(
    target: HostTarget, partings: Partings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_num_encoder_tokens", lambda *_: 0)
    compared, found = partings(["scheduler of encoder-decoders"])
    assert (len(found) > len(FEW) // 4) == (compared > 0) == has_groups(target)


def has_groups(target: HostTarget) -> bool:
    """Whether groups beside full attention are modelled of the release."""
    assert target.release is not None
    return release_key(target.release) >= release_key("0.14.0")


def test_a_reference_that_overlooks_failed_loads_is_seen(
    target: HostTarget, partings: Partings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "fail_loads", lambda *_: set())
    _, found = partings(["scheduler with KV loads"])
    reports = offered_by(target.release).scheduler.retries_failed_loads
    assert (len(found) > len(FEW) // 10) == reports
    assert bool(found) == reports


@pytest.mark.full
def test_the_ideal_breaks_no_contract() -> None:
    ideal = ReferenceTarget()
    calls = 0
    for lane, seed in ((lane, seed) for lane, seeds in TRACES.items() for seed in seeds):
        trace = LANES[lane].trace(seed, None)
        examined = examine(trace, ideal.run([trace])[0], ideal)
        assert not list(examined.breaks()), f"{lane}, seed {seed}"
        calls += examined.calls
    assert calls > 10_000


def test_a_retention_interval_that_releases_refuse_is_refused_in_a_sentence() -> None:
    lane = LANES["scheduler with windows"]
    trace = next(
        trace for seed in FEW if (trace := lane.trace(seed, "0.33.0")).header.config.groups
    )
    config = trace.header.config
    odd = replace_struct(config, prefix_cache_retention_interval=config.block_size + 1)
    (result,) = ReferenceTarget().run(
        [replace_struct(trace, header=replace_struct(trace.header, config=odd))]
    )
    assert result.illegal is not None
    assert "non-negative multiple of scheduler_block_size" in result.illegal


def test_a_trace_is_refused_for_what_it_asks_itself_whatever_was_asked_about_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0.14.0 holds no prefills back, which one of the traces asks for."""
    plain = LANES["scheduler"].trace(0, "0.14.0")
    config = replace_struct(plain.header.config, prefill_schedule_interval=2)
    other = Trace(replace_struct(plain.header, config=config), plain.events)

    def answers() -> list[bool]:
        target = ReferenceTarget(offered_by("0.14.0"))
        return [
            answer
            for trace in (plain, other, plain)
            for answer in (target.compares(trace), target.run([trace])[0].illegal is None)
        ]

    assert answers() == [True, True, False, False, True, True]
    first = reference_scheduler._unknown_of(ReferenceTarget(offered_by("0.14.0")), plain)
    monkeypatch.setattr(reference_scheduler, "_unknown_of", lambda target, trace: first)
    assert answers() != [True, True, False, False, True, True]
