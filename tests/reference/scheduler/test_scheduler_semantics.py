"""Each flag of the scheduler changes a decision, in the release that brought it."""

from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pytest

from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Group
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.scheduler import Pause, Received, ResetPrefix
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import parse
from cacheproof.reference.semantics import Semantics

SEED_THAT_SHOWS = {
    "spares_sure_ends": 1,
    "drafts_past_the_end": 9,
    "encodes_ahead": 4,
    "admits_whole_sequences": 4,
    "unschedules_victims": 5,
    "waits_for_long_prompts": 318,
    "forgets_drafts": 148,
    "keeps_passed_over_in_order": 26,
    "sets_passed_over_apart": 166,
    "spares_lone_prefill": 0,
    "rejoins_passed_over": 31,
    "marks_stale_output": 533,
    "releases_confirmed": 4,
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
    "counts_listening_sessions": 25,
    "admits_holders_first": 14,
    "drops_output_of_ended_turns": 104,
    "takes_max_tokens_of_chunks": 61,
    "drains_when_paused": 55,
    "keeps_decoded_of_sessions": 1241,
    "keeps_sessions_that_waited": 1241,
    "uncounts_trimmed": 21,
    "restarts_sessions": 219,
    "releases_between_turns": 2110,
    "sorts_continued_sessions": 719,
    "pads_within_threshold": 2397,
    "takes_after_blocks": 0,
    "passes_sparse_items": 10,
    "runs_urgent_first": 0,
    "spares_whole_items": 329,
    "sends_all_items": 8,
    "ends_at_whole_items": 99,
    "counts_tables": 5,
    "forgets_refused": 5,
    "tells_known_tokens": 0,
    "spares_second_runner_tokens": 18,
    "sends_items_again": 1,
    "skips_unused_drafts": 4,
}
SEED_OF_DECODERS_THAT_SHOWS = {"fits_cross_attention": 0}
SEED_OF_LOADS_THAT_SHOWS = {
    "awaits_transfers": 2,
    "awaits_later_transfers": 0,
    "fails_lost_transfers": 0,
}
SEED_OF_KV_LOADS_THAT_SHOWS = {
    "counts_all_holders": 1,
    "ends_once": 47,
    "ignores_unknown_sendings": 8,
    "resumes_loaded": 5,
    "counts_loaded_tokens": 8,
    "keeps_until_loaded": 3,
    "cuts_behind_the_step": 77,
    "reserves_for_prefills": 5,
    "sends_computed_blocks": 9,
    "defers_frees": 5,
    "spares_unfreeable_victims": 13,
    "reserves_for_drafts": 27,
    "fits_reserved_drafts": 32,
    "skips_reading_elsewhere": 6,
    "gives_back_items_ahead": 0,
    "spares_lone_loads": 113,
    "reserves_for_holders": 4,
    "tries_all_holders": 32,
    "caches_loads_when_right": 6,
    "drops_output_of_failed_loads": 7,
    "refuses_reset_beside_transfers": 55,
    "tells_loads_within_step": 0,
}
SEED_OF_WINDOWS_THAT_SHOWS = {
    "reuses_unfindable_in_windows": 0,
    "caps_admission": 3,
    "caps_admission_alone": 3,
}
SINCE = {flag.name: flag.metadata["again"] or flag.metadata["since"] for flag in fields(Semantics)}
OFFERS = {
    "retries_failed_loads": lambda trace: any(
        isinstance(one, Received) and one.failed is not None for one in trace.events
    ),
    "ends_failed_loads": lambda trace: trace.header.config.kv_connector == "fail",
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
    "has_second_runner": lambda trace: trace.header.config.v2_model_runner,
    "holds_prefills": lambda trace: trace.header.config.prefill_schedule_interval > 1,
    "retains_sparsely": lambda trace: (
        trace.header.config.prefix_cache_retention_interval is not None
    ),
}
LANE_OF = {
    "loads_encodings": "scheduler with loads",
    "retains_sparsely": "scheduler with windows",
    "retries_failed_loads": "scheduler with KV loads",
    "ends_failed_loads": "scheduler with KV loads",
}
"""What a trace asks for only where a release has it."""


@pytest.mark.parametrize(
    ("flag", "seed", "lane"),
    [
        *((flag, seed, "scheduler") for flag, seed in SEED_THAT_SHOWS.items()),
        *((flag, seed, "scheduler with loads") for flag, seed in SEED_OF_LOADS_THAT_SHOWS.items()),
        *(
            (flag, seed, "scheduler with KV loads")
            for flag, seed in SEED_OF_KV_LOADS_THAT_SHOWS.items()
        ),
        *(
            (flag, seed, "scheduler of encoder-decoders")
            for flag, seed in SEED_OF_DECODERS_THAT_SHOWS.items()
        ),
        *(
            (flag, seed, "scheduler with windows")
            for flag, seed in SEED_OF_WINDOWS_THAT_SHOWS.items()
        ),
    ],
)
def test_each_flag_changes_a_decision(flag: str, seed: int, lane: str) -> None:
    since = SINCE[flag]
    with_it = Semantics.ideal() if since is None else Semantics.of_vllm(since)
    without = replace(with_it, **{flag: False})
    trace = LANES[lane].trace(seed, since)
    left, right = (ReferenceTarget(one).run([trace])[0] for one in (with_it, without))
    assert left.illegal is None
    assert right.illegal is None
    assert compare(left, right) is not None


def _asks(flag: str, release: str | None) -> list[Trace]:
    lane = LANES[LANE_OF.get(flag, "scheduler")]
    traces = [lane.trace(seed, release) for seed in range(60)]
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


def _windows(*kinds: str, **changes: object) -> Trace:
    """A trace over groups of these kinds, otherwise plain."""
    plain = LANES["scheduler with windows"].trace(0, None)
    size = plain.header.config.block_size
    config = msgspec.structs.replace(
        plain.header.config,
        **{
            "groups": tuple(Group(kind, size, 8 if kind != "full" else 0) for kind in kinds),
            "num_speculative_tokens": 0,
            "drafter": False,
            "prefix_cache_retention_interval": None,
            **changes,
        },
    )
    return Trace(msgspec.structs.replace(plain.header, config=config), plain.events)


DRAFTER = {"num_speculative_tokens": 1, "drafter": True, "prefix_caching": True}


@pytest.mark.parametrize(
    ("trace", "release", "unknown"),
    [
        (
            _windows("full", "sliding_window"),
            "0.13.0",
            "groups other than one of full attention before 0.14.0",
        ),
        (
            _windows("full", "chunked_local", **DRAFTER),
            "0.33.0",
            "a drafter beside chunked local attention",
        ),
        (
            _windows("full", "sliding_window", groups=(Group("full", 1),)),
            "0.33.0",
            "groups of several block sizes",
        ),
        (
            _windows("full", "sliding_window", **DRAFTER),
            "0.22.1",
            "a drafter over several groups, in a release that drops twice or caches too little",
        ),
        (
            _windows("full", "sliding_window", prefix_cache_retention_interval=0),
            "0.28.0",
            "windows cached sparsely, beside a drafter or before 0.29.0",
        ),
        (
            _windows("full", "cross", prefix_caching=True),
            "0.33.0",
            "prefix caching beside cross-attention",
        ),
    ],
)
def test_groups_that_are_not_modelled_are_refused_by_name(
    trace: Trace, release: str, unknown: str
) -> None:
    reference = ReferenceTarget(Semantics.of_vllm(release))
    assert not reference.runs(trace)
    (refused,) = reference.run([trace])
    assert refused.illegal == f"the reference does not model {unknown} at scheduler depth"


@pytest.mark.parametrize(
    ("unknown", "config", "event"),
    [
        ("loads for encoder-decoder models", {"ec_connector": True}, {}),
        ("sessions of encoder-decoder models", {}, {"resumable": True}),
    ],
)
def test_what_no_encoder_decoder_model_has_is_refused_by_name(
    unknown: str, config: dict[str, bool], event: dict[str, bool]
) -> None:
    plain = LANES["scheduler of encoder-decoders"].trace(3, None)
    header = msgspec.structs.replace(
        plain.header, config=msgspec.structs.replace(plain.header.config, **config)
    )
    events = [
        msgspec.structs.replace(one, **event) if isinstance(one, Add) else one
        for one in plain.events
    ]
    (refused,) = ReferenceTarget().run([Trace(header, tuple(events))])
    assert refused.illegal == f"the reference does not model {unknown} at scheduler depth"
