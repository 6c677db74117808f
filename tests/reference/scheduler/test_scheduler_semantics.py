"""Each flag of the scheduler changes a decision, in the release that brought it."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from cacheproof.differential.lockstep import compare
from cacheproof.differential.scheduler_generator import scheduler_trace
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.trace import Pause, ResetPrefix, Trace, parse
from cacheproof.reference.semantics import Semantics

SEED_THAT_SHOWS = {
    "spares_sure_ends": 1,
    "unschedules_victims": 5,
    "waits_for_long_prompts": 318,
    "forgets_drafts": 148,
    "keeps_passed_over_in_order": 26,
    "sets_passed_over_apart": 166,
    "spares_lone_prefill": 0,
    "rejoins_passed_over": 31,
    "marks_stale_output": 533,
    "releases_confirmed": 1,
    "rolls_back_for_drafter": 9,
    "counts_no_rows": 21,
    "pads_drafts": 111,
    "looks_ahead_at_once": 27,
    "reads_ahead_sparsely": 4,
    "omits_nobody": 139,
    "pads_wholly": 3295,
    "pads_lone_requests": 123,
    "keeps_hits_whole": 9,
    "passes_over_unschedulable": 16,
    "reads_ahead_without": 21,
    "releases_ahead": 4,
    "counts_running_loras": 31,
    "caches_processed": 45,
    "keeps_items_whole": 99,
    "goes_on_after_preempting_itself": 44,
    "counts_listening_sessions": 1,
    "admits_holders_first": 14,
    "drops_output_of_ended_turns": 104,
    "takes_max_tokens_of_chunks": 61,
    "drains_when_paused": 55,
    "keeps_decoded_of_sessions": 1241,
    "keeps_sessions_that_waited": 1241,
    "uncounts_trimmed": 21,
    "restarts_sessions": 219,
    "sorts_continued_sessions": 719,
    "pads_within_threshold": 2397,
    "takes_after_blocks": 0,
    "passes_sparse_items": 10,
    "runs_urgent_first": 0,
    "spares_whole_items": 329,
    "ends_at_whole_items": 99,
}
SEED_OF_LOADS_THAT_SHOWS = {
    "awaits_transfers": 0,
    "awaits_later_transfers": 0,
    "fails_lost_transfers": 0,
}
SINCE = {flag.name: flag.metadata["since"] for flag in fields(Semantics)}
OFFERS = {
    "loads_encodings": lambda trace: trace.header.config.ec_connector,
    "takes_drafts": lambda trace: trace.header.config.num_speculative_tokens > 0,
    "skips_reading": lambda trace: any(getattr(one, "skip_reading", False) for one in trace.events),
    "continues_requests": lambda trace: any(
        getattr(one, "resumable", False) for one in trace.events
    ),
    "pauses": lambda trace: any(isinstance(one, Pause) for one in trace.events),
    "restarts_running": lambda trace: any(
        isinstance(one, ResetPrefix) and one.running for one in trace.events
    ),
    "holds_prefills": lambda trace: trace.header.config.prefill_schedule_interval > 1,
}
"""What a trace asks for only where a release has it."""


@pytest.mark.parametrize(
    ("flag", "seed", "transfers"),
    [
        *((flag, seed, False) for flag, seed in SEED_THAT_SHOWS.items()),
        *((flag, seed, True) for flag, seed in SEED_OF_LOADS_THAT_SHOWS.items()),
    ],
)
def test_each_flag_changes_a_decision(flag: str, seed: int, transfers: bool) -> None:
    since = SINCE[flag]
    with_it = Semantics.ideal() if since is None else Semantics.of_vllm(since)
    without = replace(with_it, **{flag: False})
    trace = scheduler_trace(seed, release=since, transfers=transfers)
    left, right = (ReferenceTarget(one).run([trace])[0] for one in (with_it, without))
    assert compare(left, right) is not None


def _asks(flag: str, release: str | None) -> list[Trace]:
    transfers = flag == "loads_encodings"
    traces = [scheduler_trace(seed, release=release, transfers=transfers) for seed in range(60)]
    return [trace for trace in traces if OFFERS[flag](trace)]


@pytest.mark.parametrize("flag", OFFERS)
def test_a_trace_asks_for_nothing_that_a_release_lacks(flag: str) -> None:
    assert _asks(flag, None)
    assert not _asks(flag, "0.10.2")


@pytest.mark.parametrize("flag", OFFERS)
def test_what_a_release_lacks_is_refused_by_name(flag: str) -> None:
    without = ReferenceTarget(replace(Semantics.ideal(), **{flag: False}))
    trace = _asks(flag, None)[0]
    assert not without.runs(trace)
    (refused,) = without.run([trace])
    assert refused.illegal is not None
    assert refused.illegal.startswith("the reference does not model ")
    with pytest.raises(Illegal, match="at scheduler depth"):
        without.records(trace)


FINDINGS = Path(__file__).parents[3] / "docs" / "findings"


@pytest.mark.parametrize(
    ("finding", "release", "unknown"),
    [
        ("session-length", "0.33.0", "sessions that outgrow the model"),
        ("session-lost", "0.22.1", "a resumable request under asynchronous scheduling"),
    ],
)
def test_sessions_that_are_not_modelled_are_refused_by_name(
    finding: str, release: str, unknown: str
) -> None:
    path = FINDINGS / f"{finding}.jsonl"
    with path.open("rb") as lines:
        trace = parse(lines, path.name)
    (refused,) = ReferenceTarget(Semantics.of_vllm(release)).run([trace])
    assert refused.illegal == f"the reference does not model {unknown} at scheduler depth"


def test_an_item_that_must_be_whole_and_fits_no_step_is_refused() -> None:
    trace = scheduler_trace(460)
    (refused,) = ReferenceTarget().run([trace])
    assert refused.illegal == "an item of 14 tokens must be whole, and a step has 8"
    (run,) = ReferenceTarget(replace(Semantics.ideal(), refuses_long_whole_items=False)).run(
        [trace]
    )
    assert run.illegal is None
