"""Each flag of the KV cache alone changes what a manager does."""

from typing import Any

import pytest

from cacheproof.differential.generators.kv_cache import generate
from cacheproof.differential.targets.host.protocol import Illegal
from cacheproof.differential.targets.reference_kv_cache import step_records
from cacheproof.reference.semantics import Semantics

SEED_THAT_SHOWS = {
    "kv_cache.reuses_unfindable_first": 0,
    "kv_cache.stacks_without_caching": 7,
    "kv_cache.tells_external_tokens": 0,
    "kv_cache.touches_before_loading": 187,
    "kv_cache.keeps_window_of_last_token": 1,
    "kv_cache.loads_by_token": 60,
    "kv_cache.leaves_out_unreachable": 0,
    "kv_cache.leaves_out_in_lone_windows": 0,
    "kv_cache.caches_aligned": 3,
    "kv_cache.caches_findable_tails": 9,
    "kv_cache.caches_prompt_tail": 9,
    "kv_cache.spares_last_prompt_token": 9,
    "kv_cache.events_carry_extra_keys": 0,
    "kv_cache.events_name_groups": 0,
    "kv_cache.events_tell_kinds": 0,
    "kv_cache.events_name_sessions": 0,
    "kv_cache.keeps_window_in_flight": 3,
    "kv_cache.counts_admitted_hits": 0,
    "kv_cache.tells_longer_hits": 0,
    "kv_cache.knows_prefix_tokens": 0,
    "kv_cache.admits_in_allocation": 0,
    "kv_cache.reserves_blocks": 0,
    "kv_cache.keeps_watermark": 0,
    "kv_cache.defers_frees": 0,
    "kv_cache.aligns_behind_drop": 36,
    "kv_cache.aligns_first_hit_once": 453,
    "kv_cache.caches_block_to_drop": 16,
    "kv_cache.looks_past_limit_to_drop": 122,
    "kv_cache.joins_equal_groups": 55,
    "kv_cache.tells_tokens_of_hashes": 0,
    "kv_cache.shares_no_prefix_reads": 2,
}

BEHIND = dict.fromkeys(
    ("kv_cache.caches_prompt_tail", "kv_cache.spares_last_prompt_token"),
    "kv_cache.caches_findable_tails",
)
"""What a flag decides where another one does not hold."""


def records(seed: int, semantics: Semantics) -> Any:
    config, events = generate(seed)
    try:
        return step_records(config, events, semantics)
    except Illegal as refusal:
        return str(refusal)


@pytest.mark.parametrize("flag", SEED_THAT_SHOWS)
def test_each_flag_changes_a_decision(flag: str) -> None:
    seed = SEED_THAT_SHOWS[flag]
    base = Semantics.ideal().without(*filter(None, [BEHIND.get(flag)]))
    assert records(seed, base.without(flag)) != records(seed, base)
