"""Schedulers, each with one fault."""

from cacheproof.differential.search.gallery.variant import (
    AS_NEWEST,
    Variant,
    scheduler_with,
    scheduler_without,
)
from cacheproof.differential.targets.host.faults import manager as faults
from cacheproof.differential.targets.host.faults import manager_calls as manager_call_faults
from cacheproof.differential.targets.host.faults import scheduler as scheduler_faults

DECODERS = "scheduler of encoder-decoders"
KV_LOADS = "scheduler with KV loads"

VARIANTS: tuple[Variant, ...] = (
    scheduler_without(
        "stalled-request-keeps-entries",
        "A waiting request that gets no KV blocks keeps its claims (as before PR #31857).",
        (5, 8, 12),
        "scheduler.takes_after_blocks",
        "encoder_cache.frees_stalled",
    ),
    scheduler_without(
        "chunk-starts-and-splits",
        "An item on which a chunk starts is split though items must be whole (before PR #52412).",
        (99, 121, 183),
        "scheduler.keeps_items_whole",
        "scheduler.spares_whole_items",
    ),
    scheduler_without(
        "roll-back-splits",
        f"A chunk is rolled back for a drafter into the item before ({AS_NEWEST}).",
        (99, 203),
        "scheduler.ends_at_whole_items",
    ),
    scheduler_without(
        "threshold-below-an-item",
        f"The threshold for long prefills cuts a chunk back to an item's start ({AS_NEWEST}).",
        (329, 349),
        "scheduler.spares_whole_items",
    ),
    scheduler_without(
        "drafter-waits-for-ever",
        "A chunk stops before an item that a drafter would read, and that does not fit (before "
        "vLLM 0.33.0).",
        (181, 188, 248),
        "scheduler.reads_ahead_without",
        "scheduler.releases_ahead",
    ),
    scheduler_without(
        "padded-beyond-the-threshold",
        f"A request that joins is padded with drafts beyond its threshold ({AS_NEWEST}).",
        (2589,),
        "scheduler.pads_within_threshold",
    ),
    scheduler_without(
        "drafter-reads-what-was-passed-over",
        "An item whose first embedding only a drafter reads is not encoded (before vLLM 0.28.0).",
        (21, 83, 171),
        "scheduler.reads_ahead_sparsely",
    ),
    scheduler_without(
        "passed-over-in-reverse",
        "Requests that a step passes over come back in reverse (before vLLM 0.14.0).",
        (162, 276),
        "scheduler.keeps_passed_over_in_order",
    ),
    scheduler_without(
        "long-prompt-is-overtaken",
        "A prompt that must be computed at once is overtaken while steps are too full for it "
        "(before vLLM 0.12.0).",
        (484,),
        "scheduler.waits_for_long_prompts",
    ),
    scheduler_without(
        "prefix-stays-behind",
        "Workers are not given the items of a cached prefix, and are to encode them later "
        f"({AS_NEWEST}).",
        (15, 118),
        "scheduler.sends_all_items",
    ),
    scheduler_without(
        "load-stays-behind",
        f"Workers are not given the items of a prefix whose load fails ({AS_NEWEST}).",
        (64, 66),
        "scheduler.sends_all_items",
        lane=KV_LOADS,
    ),
    scheduler_without(
        "takes-what-fits-no-step",
        f"An item that must be whole, and is longer than a step, is taken in ({AS_NEWEST}).",
        (2849,),
        "scheduler.refuses_long_whole_items",
    ),
    scheduler_without(
        "failed-load-is-found",
        f"What a step loads can be found at once, right or not ({AS_NEWEST}).",
        (
            481,
            770,
        ),
        "scheduler.caches_loads_when_right",
        lane=KV_LOADS,
    ),
    scheduler_without(
        "failed-load-is-delivered",
        f"Steps in flight over a load that failed bring tokens ({AS_NEWEST}).",
        (
            13,
            36,
        ),
        "scheduler.drops_output_of_failed_loads",
        lane=KV_LOADS,
    ),
    scheduler_without(
        "load-reserves-for-itself",
        f"Blocks are kept free for a request whose load failed and that has none ({AS_NEWEST}).",
        (
            33,
            45,
        ),
        "scheduler.reserves_for_holders",
        lane=KV_LOADS,
    ),
    scheduler_without(
        "holders-wait-behind-a-load",
        f"Who holds blocks waits behind a load that finds none ({AS_NEWEST}).",
        (
            3534,
            11311,
        ),
        "scheduler.tries_all_holders",
        lane=KV_LOADS,
    ),
    scheduler_without(
        "load-too-large-beside-drafts",
        f"A load leaves blocks to drafts though nobody has any ({AS_NEWEST}).",
        (254,),
        "scheduler.spares_lone_loads",
        lane=KV_LOADS,
    ),
    scheduler_without(
        "items-ahead-of-a-failed-load",
        f"Who is thrown back by a failed load keeps its items ahead ({AS_NEWEST}).",
        (140,),
        "scheduler.gives_back_items_ahead",
        lane=KV_LOADS,
    ),
    scheduler_without(
        "reset-beside-a-load",
        f"Requests start over while a load holds blocks ({AS_NEWEST}).",
        (
            93,
            107,
        ),
        "scheduler.refuses_reset_beside_transfers",
        lane=KV_LOADS,
    ),
    scheduler_without(
        "load-into-given-back-blocks",
        "Who ends during a load gives back its blocks (before vLLM 0.16.0).",
        (
            3,
            52,
        ),
        "scheduler.keeps_until_loaded",
        lane=KV_LOADS,
    ),
    scheduler_without(
        "load-counts-whole-blocks",
        "A load counts for whole blocks, whatever it brought (before vLLM 0.18.0).",
        (
            3,
            4,
        ),
        "scheduler.counts_loaded_tokens",
        lane=KV_LOADS,
    ),
    scheduler_without(
        "load-beside-a-step-in-flight",
        "Blocks are given back that a step in flight writes (before vLLM 0.24.0).",
        (
            54,
            65,
        ),
        "kv_cache.defers_frees",
        lane=KV_LOADS,
    ),
    scheduler_with(scheduler_faults.schedules_beyond_the_budget),
    scheduler_with(scheduler_faults.encodes_beyond_the_budget),
    scheduler_with(scheduler_faults.admits_everybody),
    scheduler_with(scheduler_faults.splits_items),
    scheduler_with(scheduler_faults.computes_into_items),
    scheduler_with(scheduler_faults.stops_early),
    scheduler_with(scheduler_faults.encodes_again),
    scheduler_with(scheduler_faults.withholds_what_is_encoded),
    scheduler_with(scheduler_faults.drops_what_is_encoded),
    scheduler_with(scheduler_faults.looks_past_the_first),
    scheduler_with(scheduler_faults.drops_what_is_read),
    scheduler_with(scheduler_faults.computes_the_same_again),
    scheduler_with(scheduler_faults.stops),
    scheduler_with(scheduler_faults.raises_in_update),
    scheduler_with(scheduler_faults.refuses_requests),
    scheduler_with(scheduler_faults.forgets_who_waits),
    scheduler_with(scheduler_faults.calls_all_tokens_drafts),
    scheduler_with(scheduler_faults.keeps_drafts),
    scheduler_with(scheduler_faults.offers_less),
    scheduler_with(scheduler_faults.preempts_the_most_urgent),
    scheduler_with(scheduler_faults.counts_a_block_too_few),
    scheduler_with(scheduler_faults.tells_of_a_block_too_few),
    scheduler_with(scheduler_faults.begins_before_the_first),
    scheduler_with(scheduler_faults.has_a_slot_too_many),
    scheduler_with(scheduler_faults.reads_what_nobody_wrote),
    scheduler_with(scheduler_faults.hands_out_what_is_loaded, KV_LOADS),
    scheduler_with(scheduler_faults.reads_what_nobody_wrote, KV_LOADS),
    scheduler_with(scheduler_faults.overlooks_failed_loads, KV_LOADS),
    scheduler_with(scheduler_faults.sends_from_the_second, KV_LOADS),
    scheduler_with(faults.frees_nothing),
    scheduler_without(
        "scheduler-credits-decoders-again",
        f"Every output credits an encoder-decoder request's item again ({AS_NEWEST}).",
        (),
        "encoder_cache.releases_decoder_once",
        lane=DECODERS,
    ),
    scheduler_with(faults.frees_nothing, DECODERS),
    scheduler_with(scheduler_faults.stops, DECODERS),
    scheduler_with(scheduler_faults.stops, "scheduler with windows"),
    *map(scheduler_with, manager_call_faults.MANAGER_CALL_FAULTS.values()),
    scheduler_with(manager_call_faults.allocates_again, DECODERS),
)
