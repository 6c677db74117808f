"""Each flag of the KV cache alone changes what a manager does."""

from dataclasses import replace
from typing import Any

import pytest

from cacheproof.differential.generators.kv_cache import generate
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.reference_kv_cache import step_records
from cacheproof.reference.semantics import Semantics

SEED_THAT_SHOWS = {
    "reuses_unfindable_first": 0,
    "stacks_without_caching": 7,
    "tells_external_tokens": 0,
    "touches_before_loading": 187,
    "keeps_window_of_last_token": 1,
    "loads_by_token": 60,
    "leaves_out_unreachable": 0,
    "leaves_out_in_lone_windows": 0,
    "caches_aligned": 3,
    "caches_prompt_tail": 9,
    "spares_last_prompt_token": 9,
    "events_carry_extra_keys": 0,
    "events_name_groups": 0,
    "events_tell_kinds": 0,
    "events_name_sessions": 0,
    "keeps_window_in_flight": 3,
    "counts_admitted_hits": 0,
    "tells_longer_hits": 0,
    "knows_prefix_tokens": 0,
    "admits_in_allocation": 0,
    "reserves_blocks": 0,
    "keeps_watermark": 0,
    "defers_frees": 0,
    "aligns_behind_drop": 36,
    "aligns_first_hit_once": 453,
    "caches_block_to_drop": 16,
    "looks_past_limit_to_drop": 122,
    "joins_equal_groups": 55,
    "tells_tokens_of_hashes": 0,
    "shares_no_prefix_reads": 2,
}


def records(seed: int, semantics: Semantics) -> Any:
    config, events = generate(seed)
    try:
        return step_records(config, events, semantics)
    except Illegal as refusal:
        return str(refusal)


@pytest.mark.parametrize("flag", SEED_THAT_SHOWS)
def test_each_flag_changes_a_decision(flag: str) -> None:
    seed = SEED_THAT_SHOWS[flag]
    ideal = Semantics.ideal()
    assert records(seed, replace(ideal, **{flag: False})) != records(seed, ideal)
