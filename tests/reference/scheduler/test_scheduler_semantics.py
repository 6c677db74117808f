"""Each flag of the scheduler changes a decision, in the release that brought it."""

import msgspec
import pytest

from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import Group
from cacheproof.differential.traces.scheduler import Pause, Received, ResetPrefix
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import CHANGES, Semantics

SEED_THAT_SHOWS = {
    "scheduler.spares_sure_ends": 1,
    "scheduler.drafts_past_the_end": 9,
    "scheduler.encodes_ahead": 4,
    "kv_cache.admits_whole_sequences": 4,
    "scheduler.unschedules_victims": 5,
    "scheduler.waits_for_long_prompts": 318,
    "scheduler.forgets_drafts": 148,
    "scheduler.keeps_passed_over_in_order": 26,
    "scheduler.sets_passed_over_apart": 166,
    "scheduler.spares_lone_prefill": 0,
    "scheduler.rejoins_passed_over": 31,
    "scheduler.marks_stale_output": 533,
    "scheduler.releases_confirmed": 4,
    "scheduler.rolls_back_for_drafter": 9,
    "scheduler.counts_no_rows": 21,
    "scheduler.pads_drafts": 111,
    "scheduler.looks_ahead_at_once": 27,
    "scheduler.reads_ahead_sparsely": 4,
    "scheduler.omits_nobody": 139,
    "scheduler.pads_wholly": 3295,
    "scheduler.pads_lone_requests": 123,
    "scheduler.keeps_hits_whole": 9,
    "scheduler.passes_over_unschedulable": 16,
    "scheduler.reads_ahead_without": 21,
    "scheduler.releases_ahead": 4,
    "scheduler.counts_running_loras": 31,
    "scheduler.caches_processed": 45,
    "scheduler.keeps_items_whole": 99,
    "scheduler.goes_on_after_preempting_itself": 44,
    "scheduler.counts_listening_sessions": 25,
    "scheduler.admits_holders_first": 14,
    "scheduler.drops_output_of_ended_turns": 104,
    "scheduler.takes_max_tokens_of_chunks": 61,
    "scheduler.drains_when_paused": 55,
    "scheduler.keeps_decoded_of_sessions": 1241,
    "scheduler.keeps_sessions_that_waited": 1241,
    "scheduler.uncounts_trimmed": 21,
    "scheduler.restarts_sessions": 219,
    "scheduler.releases_between_turns": 2110,
    "scheduler.sorts_continued_sessions": 719,
    "scheduler.pads_within_threshold": 2397,
    "scheduler.takes_after_blocks": 0,
    "scheduler.passes_sparse_items": 10,
    "scheduler.runs_urgent_first": 0,
    "scheduler.spares_whole_items": 329,
    "scheduler.sends_all_items": 8,
    "scheduler.ends_at_whole_items": 99,
    "kv_cache.counts_tables": 5,
    "kv_cache.forgets_refused": 5,
    "scheduler.tells_known_tokens": 0,
    "scheduler.spares_second_runner_tokens": 18,
    "scheduler.sends_items_again": 1,
    "scheduler.skips_unused_drafts": 4,
}
SEED_OF_DECODERS_THAT_SHOWS = {"scheduler.fits_cross_attention": 0}
SEED_OF_LOADS_THAT_SHOWS = {
    "scheduler.awaits_transfers": 2,
    "scheduler.awaits_later_transfers": 0,
    "scheduler.fails_lost_transfers": 0,
}
SEED_OF_KV_LOADS_THAT_SHOWS = {
    "scheduler.counts_all_holders": 1,
    "scheduler.ends_once": 47,
    "scheduler.ignores_unknown_sendings": 8,
    "scheduler.resumes_loaded": 5,
    "scheduler.counts_loaded_tokens": 8,
    "scheduler.keeps_until_loaded": 3,
    "scheduler.cuts_behind_the_step": 77,
    "scheduler.reserves_for_prefills": 5,
    "scheduler.sends_computed_blocks": 9,
    "kv_cache.defers_frees": 5,
    "scheduler.spares_unfreeable_victims": 13,
    "scheduler.reserves_for_drafts": 27,
    "scheduler.fits_reserved_drafts": 32,
    "scheduler.skips_reading_elsewhere": 6,
    "scheduler.gives_back_items_ahead": 0,
    "scheduler.spares_lone_loads": 113,
    "scheduler.reserves_for_holders": 4,
    "scheduler.tries_all_holders": 32,
    "scheduler.caches_loads_when_right": 6,
    "scheduler.drops_output_of_failed_loads": 7,
    "scheduler.refuses_reset_beside_transfers": 55,
    "scheduler.tells_loads_within_step": 0,
}
SEED_OF_WINDOWS_THAT_SHOWS = {
    "kv_cache.reuses_unfindable_in_windows": 0,
    "kv_cache.caps_admission": 3,
    "kv_cache.caps_admission_alone": 3,
}
SINCE = {flag: change.again or change.first for flag, change in CHANGES.items()}
OFFERS = {
    "scheduler.retries_failed_loads": lambda trace: any(
        isinstance(one, Received) and one.failed is not None for one in trace.events
    ),
    "scheduler.ends_failed_loads": lambda trace: trace.header.config.kv_connector == "fail",
    "scheduler.loads_encodings": lambda trace: trace.header.config.ec_connector,
    "scheduler.takes_drafts": lambda trace: trace.header.config.num_speculative_tokens > 0,
    "scheduler.skips_reading": lambda trace: any(
        getattr(one, "skip_reading", False) for one in trace.events
    ),
    "block_keys.continues_requests": lambda trace: any(
        getattr(one, "resumable", False) for one in trace.events
    ),
    "scheduler.pauses": lambda trace: any(isinstance(one, Pause) for one in trace.events),
    "scheduler.restarts_running": lambda trace: any(
        isinstance(one, ResetPrefix) and one.running for one in trace.events
    ),
    "scheduler.has_second_runner": lambda trace: trace.header.config.v2_model_runner,
    "scheduler.holds_prefills": lambda trace: trace.header.config.prefill_schedule_interval > 1,
    "kv_cache.retains_sparsely": lambda trace: (
        trace.header.config.prefix_cache_retention_interval is not None
    ),
}
LANE_OF = {
    "scheduler.loads_encodings": "scheduler with loads",
    "kv_cache.retains_sparsely": "scheduler with windows",
    "scheduler.retries_failed_loads": "scheduler with KV loads",
    "scheduler.ends_failed_loads": "scheduler with KV loads",
}
"""What a trace asks for only where a release has it."""


@pytest.mark.sample(3)
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
    without = with_it.without(flag)
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
    without = ReferenceTarget(Semantics.ideal().without(flag))
    trace = _asks(flag, None)[0]
    assert not without.runs(trace)
    (refused,) = without.run([trace])
    assert refused.illegal is not None
    assert refused.illegal.startswith("the reference does not model ")
    with pytest.raises(Illegal, match="at scheduler depth"):
        without.records(trace)


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
