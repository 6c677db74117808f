"""The reference scheduler beside the real one of each release: the same decision at every step."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from cacheproof.differential import finding_file
from cacheproof.differential.campaign import LANES
from cacheproof.differential.examine import examine
from cacheproof.differential.targets import reference_scheduler
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.trace import Trace
from cacheproof.reference.attention_kinds import SlidingWindowManager
from cacheproof.reference.scheduler import running, update, waiting
from cacheproof.reference.scheduler.step import Step
from cacheproof.spec.versions import release_key

FINDINGS = Path(__file__).parents[3] / "docs" / "findings"
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
RELEASES = ["0.33.0", "0.28.0", "0.18.1", "0.13.0"]
OTHER_RELEASES = [
    "0.10.2", "0.11.0", "0.12.0", "0.14.0", "0.14.1", "0.15.1", "0.22.1",
    "0.27.1", "0.29.0", "0.30.0", "0.31.0", "0.32.0",
]  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[*RELEASES, *(pytest.param(one, marks=pytest.mark.full) for one in OTHER_RELEASES)],
)
def target(request: pytest.FixtureRequest) -> Iterator[HostTarget]:
    target = resolve(f"vllm@{request.param}", report=print)
    assert isinstance(target, HostTarget)
    yield target
    target.close()


def partings(target: HostTarget, lanes: Iterable[str] = TRACES) -> tuple[int, list[str]]:
    """How many traces were compared, and where reference and release part in them."""
    reference = reference_for(target)
    assert reference is not None
    traces = [LANES[lane].trace(seed, target.release) for lane in lanes for seed in TRACES[lane]]
    compared, found = 0, []
    for trace, result in zip(traces, target.run(traces), strict=True):
        if result.illegal is None and reference.runs(trace):
            examined = examine(trace, result, target, reference)
            compared += 1
            if examined.difference is not None:
                found.append(f"seed {trace.header.seed}: {examined.difference.sentence}")
    return compared, found


def test_every_decision_is_that_of_the_reference(target: HostTarget) -> None:
    compared, found = partings(target)
    assert found == []
    assert compared > len(SEEDS) // 3


def test_a_prompt_token_that_a_session_loses_is_still_counted() -> None:
    trace = finding_file.load(Path(__file__).parents[1] / "data" / "session_token.jsonl")
    assert isinstance(trace, Trace)
    with closing(resolve("vllm@0.28.0", report=print)) as real:
        reference = reference_for(real)
        assert reference is not None
        (result,) = real.run([trace])
        examined = examine(trace, result, real, reference)
    assert result.records[-1][0]["scheduled"] == {"a": 3}
    assert examined.difference is None


@pytest.mark.parametrize(("finding", "where"), [("turn", "update"), ("hit", "schedule")])
def test_a_failed_load_whose_next_step_ends_a_turn_stops_both_sides(
    finding: str, where: str
) -> None:
    trace = finding_file.load(FINDINGS / f"kv-load-{finding}.jsonl")
    assert isinstance(trace, Trace)
    with closing(resolve("vllm@0.33.0", report=print)) as real:
        reference = reference_for(real)
        assert reference is not None
        examined = examine(trace, real.run([trace])[0], real, reference)
    assert examined.difference is None
    assert ("SC-8", f"AssertionError in {where}") in examined.by_kind
    ideal = ReferenceTarget()
    assert examine(trace, ideal.run([trace])[0], ideal).broken == set()


def test_a_chunk_of_a_prompt_that_is_taken_back_holds_back_prompts_in_the_release() -> None:
    trace = finding_file.load(Path(__file__).parents[1] / "data" / "withdrawn_prefill.jsonl")
    assert isinstance(trace, Trace)
    with closing(resolve("vllm@0.33.0", report=print)) as real:
        (result,) = real.run([trace])
        reference = reference_for(real)
        assert reference is not None
        assert examine(trace, result, real, reference).difference is None
        otherwise = replace(reference.semantics, forgets_withdrawn_prefills=True)
        parted = examine(trace, result, real, ReferenceTarget(otherwise)).difference
    assert parted is not None
    assert parted.event == len(trace.events) - 1


def test_a_reference_that_decides_otherwise_is_seen(
    target: HostTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_less(self: Step, num_new_tokens: int) -> int:
        return max(1, num_new_tokens - 1)

    monkeypatch.setattr(running.Step, "bounded", one_less)
    _, found = partings(target)
    assert len(found) > len(SEEDS) // 10


def test_a_reference_that_loads_nothing_is_seen(
    target: HostTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_scheduler.EncoderTransfers, "has_cache_item", lambda *_: False)
    _, found = partings(target, ["scheduler with loads"])
    assert len(found) > len(FEW) // 3


def test_a_reference_that_gives_nothing_back_behind_a_window_is_seen(
    target: HostTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlidingWindowManager, "get_num_skipped_tokens", lambda *_: 0)
    compared, found = partings(target, ["scheduler with windows"])
    assert (len(found) > len(FEW) // 4) == (compared > 0) == has_groups(target)


def test_a_reference_that_forgets_cross_attention_is_seen(
    target: HostTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_num_encoder_tokens", lambda *_: 0)
    compared, found = partings(target, ["scheduler of encoder-decoders"])
    assert (len(found) > len(FEW) // 4) == (compared > 0) == has_groups(target)


def has_groups(target: HostTarget) -> bool:
    """Whether groups beside full attention are modelled of the release."""
    assert target.release is not None
    return release_key(target.release) >= release_key("0.14.0")


def test_a_reference_that_overlooks_failed_loads_is_seen(
    target: HostTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "fail_loads", lambda *_: set())
    _, found = partings(target, ["scheduler with KV loads"])
    assert len(found) > len(FEW) // 10


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
