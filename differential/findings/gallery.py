"""The gallery: faulty variants of the reference, and which contract kills each.

A check that nothing can fail says nothing. A seeded search drives every variant as a correct
scheduler would, and its records are judged by the contracts. Beside it runs the green twin: the
unmodified reference over the same seeds and the same call protocol, which nothing may kill.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from cacheproof.differential.generators.block_hash import block_hash_trace
from cacheproof.differential.generators.kv_cache import kv_cache_trace
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.generators.media_hash import media_hash_trace
from cacheproof.differential.judges.examine import examine
from cacheproof.differential.judges.rules import SCHEDULER, rules_for
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host import (
    block_hash_faults,
    faults,
    kv_cache_faults,
    manager_call_faults,
    media_hash_faults,
    scheduler_faults,
)
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.reference_manager import MANAGERS, Factory
from cacheproof.differential.targets.reference_media_hash import missing_media_libraries
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.variants import (
    admission,
    block_pool,
    encoder_decoder_cache,
    holding,
    kv_cache,
    ledger,
    notices,
)
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics
from cacheproof.spec.registry import Contract, contracts

SEEDS = range(60)
BLOCK_HASH = "block_hash"
MEDIA_HASH = "media_hash"
KV_CACHE = "kv_cache"
KV_CACHE_TRACES = 16
SCHEDULER_TRACES = 30
KEPT_BECAUSE = {
    "EC-14": "it says at the call what EC-7 notices at a later eviction, and under asynchronous "
    "scheduling too, where EC-7 is not judged",
    "ED-1": "the headline of the public report, which ED-5 implies",
    "ED-2": "it names the call at fault, where ED-5 names the sum",
    "BP-1": "it names the block that is queued and held, where BP-3 names the sum",
    "MH-3a": "the public report, which MH-3 implies",
    "BK-1": "it names what the key of a block forgot, where BK-2 says that two prefixes differ",
    "SC-1b": "it names the budget, where SC-5 says that an item is encoded twice to exceed it",
    "SC-1c": "it names the limit, where EC-6 is what comes of running what was never scheduled",
    "SC-10": "it names what the workers are told of nobody, where SC-15 is what comes of it",
    "DF-1": "it names the notice that came too early, where WM-2 says that a read misses",
    "LV-2": "it speaks when the request arrives, LV-1 only once steps come back empty",
    "BK-3": "two keys for one content lose a hit (BK-4); that growing gave the other is a fault",
}

AS_NEWEST = f"as vLLM {NEWEST}"
"""Of a variant without a flag that the newest release lacks too."""
_DECODERS = "scheduler of encoder-decoders"
_KV_LOADS = "scheduler with KV loads"


@dataclass(frozen=True)
class Variant:
    """One faulty manager, hasher of blocks or media, KV cache manager, or scheduler.

    `factory` makes the manager; the others are faulty by their `semantics`, or by a fault planted
    in them. `resized` lets identifiers come back with another size, and drives
    the manager as a scheduler does that lets them pass. `shape` names the groups of a KV cache,
    `lane` the traces of a scheduler, and `seeds` those at which a rare fault shows itself.
    """

    name: str
    sentence: str
    manager: str
    factory: Factory | None
    resized: bool = False
    semantics: Semantics = field(default_factory=Semantics.ideal)
    fault: str | None = None
    shape: str | None = None
    seeds: tuple[int, ...] = ()
    lane: str = SCHEDULER


def _faulty(fault: type[EncoderCacheManager], *, resized: bool = False) -> Variant:
    is_decoder = issubclass(fault, EncoderDecoderCacheManager)
    return Variant(
        name=re.sub(r"(?<!^)(?=[A-Z])", "-", fault.__name__).lower(),
        sentence=_sentence(fault),
        manager="encoder_decoder" if is_decoder else "encoder_cache",
        factory=fault,
        resized=resized,
    )


def _sentence(fault: Callable[..., Any]) -> str:
    """What a fault's docstring says, on one line."""
    assert fault.__doc__ is not None
    return " ".join(fault.__doc__.split())


def _without(
    flag: str, name: str, sentence: str, manager: str = "encoder_cache", *, resized: bool = False
) -> Variant:
    """The reference without one upstream fix."""

    lacking = Semantics.ideal().without(flag).encoder_cache

    def make(capacity: int, _: EncoderCacheSemantics) -> Any:
        return MANAGERS[manager](capacity, lacking)

    return Variant(name, sentence, manager, make, resized)


def _hasher_without(name: str, sentence: str, *flags: str) -> Variant:
    """The reference's block hasher without upstream fixes."""
    semantics = Semantics.ideal().without(*flags)
    return Variant(name, sentence, BLOCK_HASH, None, semantics=semantics)


def _hasher_with(fault: Callable[..., Any]) -> Variant:
    """The reference's block hasher with a fault planted in it."""
    name = fault.__name__.replace("_", "-")
    return Variant(name, _sentence(fault), BLOCK_HASH, None, fault=fault.__name__)


def _media_hasher_without(name: str, sentence: str, *flags: str) -> Variant:
    """The reference's media hasher without upstream fixes."""
    variant = _hasher_without(name, sentence, "media.hashes_media_content", *flags)
    return replace(variant, manager=MEDIA_HASH)


def _media_hasher_with(fault: Callable[..., Any]) -> Variant:
    """The reference's media hasher with a fault planted in it."""
    variant = _hasher_with(fault)
    return replace(variant, manager=MEDIA_HASH, name=f"media-{variant.name}")


def _kv_cache_without(
    flag: str, name: str, sentence: str, shape: str | None = None, seeds: tuple[int, ...] = ()
) -> Variant:
    """The reference's KV cache manager without one upstream fix."""
    semantics = Semantics.ideal().without(flag)
    return Variant(name, sentence, KV_CACHE, None, semantics=semantics, shape=shape, seeds=seeds)


def _kv_cache_with(
    fault: Callable[..., Any], shape: str | None = None, seeds: tuple[int, ...] = ()
) -> Variant:
    """The reference's KV cache manager with a fault planted in it."""
    return replace(_hasher_with(fault), manager=KV_CACHE, shape=shape, seeds=seeds)


def _scheduler_without(
    name: str, sentence: str, seeds: tuple[int, ...], *flags: str, lane: str = SCHEDULER
) -> Variant:
    """The reference's scheduler without upstream fixes."""
    variant = _hasher_without(name, sentence, *flags)
    return replace(variant, manager=SCHEDULER, seeds=seeds, lane=lane)


def _scheduler_with(fault: Callable[..., Any], lane: str = SCHEDULER) -> Variant:
    """The reference's scheduler with a fault planted in it."""
    variant = _hasher_with(fault)
    name = f"{lane.replace(' ', '-')}-{variant.name}"
    return replace(variant, manager=SCHEDULER, name=name, lane=lane)


VARIANTS: tuple[Variant, ...] = (
    _faulty(ledger.ResetLeaksSlots),
    _faulty(ledger.ResetKeepsQueue),
    _faulty(ledger.EvictionCreditsNothing),
    _faulty(ledger.AllocationDebitsOnce),
    _faulty(ledger.IdleIsNotFreeable),
    _faulty(ledger.EvictsWhenTheStepEnds),
    _faulty(ledger.HitResizesEntry, resized=True),
    _without(
        "encoder_cache.remembers_sizes",
        "size-of-the-releaser",
        "An entry is credited the size of the item that releases it last.",
        resized=True,
    ),
    _faulty(ledger.EmptyItemIsResident),
    _faulty(holding.HitKeepsEntryQueued),
    _faulty(holding.QueueIsCleanedLate),
    _faulty(holding.HitReplacesHolder),
    _faulty(holding.HitIsHeldForNobody),
    _without(
        "encoder_cache.holds_until_last_occurrence",
        "first-occurrence-releases",
        "A repeated item is released at its first occurrence (as before PR #54284).",
    ),
    _faulty(holding.ReleaseSwapsOutShared),
    _faulty(holding.EvictsHeldWhenShort),
    _faulty(holding.FreeReleasesFirstOnly),
    _faulty(holding.ReleaseSkipsShared),
    _faulty(holding.ReleaseCreditsAgain),
    _faulty(holding.SecondReleaseEvicts),
    _faulty(holding.SecondReleaseRenewsEntry),
    _faulty(holding.SecondReleaseRaises),
    _faulty(admission.RefusesExactFit),
    _faulty(admission.LooksForRoomFirst),
    _faulty(admission.IgnoresComputeBudget),
    _faulty(admission.BudgetCountsPending),
    _faulty(admission.IgnoresPending),
    _faulty(admission.GrantsWithoutRoom),
    _faulty(admission.RefusalTakesHold),
    _faulty(admission.RefusalEvicts),
    _faulty(admission.NewestEvictedFirst),
    _faulty(admission.ReleasesToTheFront),
    _faulty(admission.EvictsEverythingIdle),
    _faulty(notices.EvictionIsNotReported),
    _faulty(notices.NoticesAreLost),
    _faulty(notices.NoticesComeLate),
    _faulty(notices.IdleIsReported),
    _without(
        "encoder_cache.drops_stale_notices",
        "stale-notice",
        "An entry evicted and encoded again in one step is reported (as before PR #52482).",
    ),
    _faulty(notices.HitsTheDeparted),
    _without(
        "encoder_cache.releases_decoder_once",
        "decoder-credits-every-release",
        "An encoder-decoder item is credited on every update (#55733).",
        "encoder_decoder",
    ),
    _without(
        "encoder_cache.delays_decoder_notices",
        "decoder-reports-at-once",
        "An encoder-decoder entry is reported in the step of its encode (as before PR #32789).",
        "encoder_decoder",
    ),
    _faulty(encoder_decoder_cache.DecoderAllocationDebitsTwice),
    _faulty(encoder_decoder_cache.DecoderAllocationIsFree),
    _faulty(encoder_decoder_cache.DecoderCreditIsCapped),
    _faulty(encoder_decoder_cache.DecoderDebitsForTwoReleases),
    _faulty(encoder_decoder_cache.DecoderReportsTwice),
    _faulty(encoder_decoder_cache.DecoderReportsLate),
    _faulty(encoder_decoder_cache.DecoderNeverReports),
    _faulty(encoder_decoder_cache.DecoderSecondReleaseRaises),
    _faulty(encoder_decoder_cache.DecoderNeverCredits),
    _faulty(encoder_decoder_cache.DecoderRefusesExactFit),
    _faulty(encoder_decoder_cache.DecoderIgnoresComputeBudget),
    _hasher_without(
        "item-without-offset",
        "A block key does not say where in the block an item stands (as before PR #36708).",
        "block_keys.keys_item_offsets",
        "block_keys.tags_block_keys",
    ),
    _hasher_without(
        "untagged-keys",
        "A block key does not say which of its names is a salt (as before vLLM 0.31.0).",
        "block_keys.tags_block_keys",
        "block_keys.keys_adapter_paths",
    ),
    _hasher_without(
        "adapter-by-name",
        "A block key holds the adapter's name and not its path (as before vLLM 0.31.0).",
        "block_keys.keys_adapter_paths",
    ),
    _hasher_without(
        "only-the-last-item",
        "A block that fills while decoding names the last item alone (as before vLLM 0.31.0).",
        "block_keys.finds_items_when_grown",
    ),
    _hasher_without(
        "item-behind-its-end",
        "A block that begins where the last item ended names it while decoding (as before 0.19.0).",
        "block_keys.finds_items_when_grown",
        "block_keys.passes_items_at_boundary",
    ),
    _hasher_without(
        "discarded-token-stays",
        "The key of a block that a discarded token filled stays when the prompt goes on (as before "
        "vLLM 0.32.0).",
        "block_keys.drops_keys_of_discarded",
    ),
    _hasher_without(
        "embeds-without-mask",
        f"A block key does not say which positions are embeddings ({AS_NEWEST}).",
        "block_keys.keys_embed_masks",
    ),
    _hasher_without(
        "embeds-forgotten",
        "A block key does not cover prompt embeddings (as vLLM 0.11.0).",
        "block_keys.keys_prompt_embeds",
    ),
    _hasher_without(
        "pickled-keys",
        f"Keys are hashes of pickles, which tell shared objects from equal ones ({AS_NEWEST}).",
        "block_keys.keys_by_content",
    ),
    _hasher_with(block_hash_faults.forgets_items),
    _hasher_with(block_hash_faults.forgets_the_prefix),
    _hasher_with(block_hash_faults.hashes_growth_otherwise),
    _hasher_with(block_hash_faults.never_repeats),
    _hasher_with(block_hash_faults.leaves_the_last_key_out),
    _media_hasher_without(
        "media-without-types",
        f"Values are hashed as their bytes, media as the file that they came from ({AS_NEWEST}).",
    ),
    _media_hasher_without(
        "media-end-to-end",
        "Names and values are hashed end to end (as before vLLM 0.31.0).",
        "media.frames_media_chunks",
    ),
    _media_hasher_with(media_hash_faults.forgets_forms),
    _media_hasher_with(media_hash_faults.forgets_frames),
    _media_hasher_with(media_hash_faults.forgets_kinds_of_containers),
    _media_hasher_with(media_hash_faults.forgets_image_ids),
    _media_hasher_with(media_hash_faults.leans_on_order),
    _media_hasher_with(media_hash_faults.leans_on_layout),
    _media_hasher_with(media_hash_faults.never_repeats),
    _media_hasher_with(media_hash_faults.raises_now_and_then),
    _kv_cache_with(kv_cache_faults.keeps_hits_queued),
    _kv_cache_with(kv_cache_faults.leaks_a_block),
    _kv_cache_with(kv_cache_faults.frees_the_first_block_first),
    _kv_cache_with(kv_cache_faults.hands_out_what_was_used_last),
    _kv_cache_with(kv_cache_faults.hands_out_a_block_twice),
    _kv_cache_with(kv_cache_faults.hands_out_a_shared_block),
    _kv_cache_with(block_pool.hit_counts_the_first_holder_only),
    _kv_cache_with(block_pool.hit_counts_twice),
    _kv_cache_with(block_pool.hit_forgets_the_hash),
    _kv_cache_with(block_pool.shared_block_is_queued),
    replace(
        # under trims_null_heads no null block is ever given back
        _kv_cache_with(block_pool.null_block_is_queued),
        semantics=Semantics.ideal().without("kv_cache.trims_null_heads"),
    ),
    _kv_cache_with(block_pool.unfindable_blocks_are_stacked_backwards),
    _kv_cache_with(block_pool.eviction_leaves_the_map),
    _kv_cache_with(block_pool.eviction_forgets_duplicates),
    _kv_cache_with(block_pool.eviction_forgets_one_hash, shape="coarse full and window"),
    _kv_cache_with(block_pool.new_block_keeps_its_hash),
    _kv_cache_with(block_pool.one_block_more_is_evicted),
    _kv_cache_with(block_pool.held_block_keeps_its_hash),
    _kv_cache_with(block_pool.reset_leaves_the_blocks),
    _kv_cache_with(block_pool.reset_of_held_blocks),
    _kv_cache_with(block_pool.reset_counts_the_null_block),
    _kv_cache_with(block_pool.reset_is_not_told, shape="full"),
    _kv_cache_with(block_pool.removal_is_told_for_the_last_duplicate),
    _kv_cache_with(block_pool.eviction_by_id_is_not_told),
    _kv_cache_without(
        "kv_cache.reuses_unfindable_first",
        "unfindable-blocks-wait",
        "A freed block without a hash waits behind blocks that can be found (as before 0.24.0).",
    ),
    _kv_cache_without(
        "kv_cache.tells_tokens_of_hashes",
        "events-with-other-tokens",
        f"A KV event carries the tokens of blocks that it leaves out ({AS_NEWEST}).",
        shape="coarse full and window",
    ),
    _kv_cache_with(kv_cache_faults.keeps_silent_about_evictions),
    _kv_cache_with(kv_cache_faults.tells_no_parent),
    _kv_cache_with(kv_cache_faults.counts_no_lookups),
    _kv_cache_with(kv_cache_faults.refuses_to_be_reset),
    _kv_cache_with(kv_cache_faults.hits_backwards),
    _kv_cache_with(kv_cache.hit_leaves_no_token),
    _kv_cache_with(kv_cache.hit_of_the_first_group_counts, shape="full and window"),
    _kv_cache_with(kv_cache.window_hit_of_one_block),
    _kv_cache_with(kv_cache.window_hit_of_a_block_more),
    _kv_cache_with(kv_cache.window_is_a_token_short),
    _kv_cache_with(kv_cache.block_leaves_with_its_first_token),
    _kv_cache_with(kv_cache.chunk_ends_a_token_early),
    _kv_cache_with(kv_cache.window_keeps_everything),
    _kv_cache_with(kv_cache.resumed_request_counts_as_begun),
    _kv_cache_with(kv_cache.hit_is_not_counted),
    _kv_cache_with(kv_cache.refusal_keeps_the_hit),
    _kv_cache_with(kv_cache.look_ahead_has_no_slots),
    _kv_cache_with(kv_cache.look_ahead_gets_a_block),
    _kv_cache_with(kv_cache.slots_end_behind_the_model),
    _kv_cache_with(kv_cache.answer_names_the_first_block),
    _kv_cache_with(kv_cache.encoder_grows_with_the_text, shape="cross"),
    _kv_cache_with(kv_cache.encoder_is_not_counted, shape="cross"),
    _kv_cache_with(kv_cache.encoder_has_no_blocks, shape="cross"),
    _kv_cache_with(kv_cache.reserved_blocks_are_taken),
    _kv_cache_with(kv_cache.watermark_is_ignored),
    _kv_cache_with(kv_cache.watermark_stops_the_running),
    _kv_cache_with(kv_cache.sequence_need_not_fit),
    _kv_cache_with(kv_cache.window_must_fit_as_a_whole, shape="window", seeds=(67, 120)),
    _kv_cache_with(kv_cache.whole_prompt_is_cached),
    _kv_cache_with(kv_cache.decoded_blocks_are_not_cached),
    _kv_cache_with(kv_cache.failed_load_is_cached),
    _kv_cache_with(kv_cache.load_takes_no_blocks),
    _kv_cache_with(kv_cache.put_off_free_forgets_a_group),
    _kv_cache_with(kv_cache.put_off_free_is_carried_out),
    _kv_cache_with(kv_cache.free_forgets_a_group),
    _kv_cache_with(kv_cache_faults.caches_what_is_loading),
    _kv_cache_with(kv_cache_faults.caches_nothing_computed),
    _kv_cache_with(kv_cache_faults.caches_what_nobody_reads, shape="coarse full and window"),
    _kv_cache_without(
        "kv_cache.touches_before_loading",
        "load-takes-a-hit",
        "A group takes for a load what another group has hit (#33775).",
        shape="full and window",
        seeds=(325,),
    ),
    _kv_cache_without(
        "kv_cache.keeps_window_in_flight",
        "window-moves-too-early",
        "Tokens whose step is in flight move the window, and are then rejected (as before 0.26.0).",
        shape="window",
        seeds=(34, 81),
    ),
    _kv_cache_without(
        "kv_cache.keeps_window_of_last_token",
        "load-leaves-out-the-window",
        f"A load of a whole prompt leaves out what its last token reads ({AS_NEWEST}).",
        shape="window",
    ),
    _kv_cache_without(
        "kv_cache.aligns_behind_drop",
        "drop-breaks-the-alignment",
        "A window's hit ends a block before where blocks of all groups end (as before 0.20.0).",
        shape="coarse full and window",
        seeds=(36,),
    ),
    _kv_cache_without(
        "kv_cache.aligns_first_hit_once",
        "first-hit-aligned-twice",
        "A hit of a window's first blocks is aligned before a drafter's block is dropped, and "
        f"again after it ({AS_NEWEST}).",
        shape="coarse full and window",
        seeds=(60,),
    ),
    _kv_cache_without(
        "kv_cache.shares_no_prefix_reads",
        "common-prefix-of-the-departed",
        "Blocks of an ended request count as held by a running one (as vLLM 0.31.0).",
        shape="full",
        seeds=(72,),
    ),
    _scheduler_without(
        "stalled-request-keeps-entries",
        "A waiting request that gets no KV blocks keeps its claims (as before PR #31857).",
        (5, 8, 12),
        "scheduler.takes_after_blocks",
        "encoder_cache.frees_stalled",
    ),
    _scheduler_without(
        "chunk-starts-and-splits",
        "An item on which a chunk starts is split though items must be whole (before PR #52412).",
        (99, 121, 183),
        "scheduler.keeps_items_whole",
        "scheduler.spares_whole_items",
    ),
    _scheduler_without(
        "roll-back-splits",
        f"A chunk is rolled back for a drafter into the item before ({AS_NEWEST}).",
        (99, 203),
        "scheduler.ends_at_whole_items",
    ),
    _scheduler_without(
        "threshold-below-an-item",
        f"The threshold for long prefills cuts a chunk back to an item's start ({AS_NEWEST}).",
        (329, 349),
        "scheduler.spares_whole_items",
    ),
    _scheduler_without(
        "drafter-waits-for-ever",
        "A chunk stops before an item that a drafter would read, and that does not fit (before "
        "vLLM 0.33.0).",
        (181, 188, 248),
        "scheduler.reads_ahead_without",
        "scheduler.releases_ahead",
    ),
    _scheduler_without(
        "padded-beyond-the-threshold",
        f"A request that joins is padded with drafts beyond its threshold ({AS_NEWEST}).",
        (2589,),
        "scheduler.pads_within_threshold",
    ),
    _scheduler_without(
        "drafter-reads-what-was-passed-over",
        "An item whose first embedding only a drafter reads is not encoded (before vLLM 0.28.0).",
        (21, 83, 171),
        "scheduler.reads_ahead_sparsely",
    ),
    _scheduler_without(
        "passed-over-in-reverse",
        "Requests that a step passes over come back in reverse (before vLLM 0.14.0).",
        (162, 276),
        "scheduler.keeps_passed_over_in_order",
    ),
    _scheduler_without(
        "long-prompt-is-overtaken",
        "A prompt that must be computed at once is overtaken while steps are too full for it "
        "(before vLLM 0.12.0).",
        (484,),
        "scheduler.waits_for_long_prompts",
    ),
    _scheduler_without(
        "prefix-stays-behind",
        "Workers are not given the items of a cached prefix, and are to encode them later "
        f"({AS_NEWEST}).",
        (15, 118),
        "scheduler.sends_all_items",
    ),
    _scheduler_without(
        "load-stays-behind",
        f"Workers are not given the items of a prefix whose load fails ({AS_NEWEST}).",
        (64, 66),
        "scheduler.sends_all_items",
        lane=_KV_LOADS,
    ),
    _scheduler_without(
        "takes-what-fits-no-step",
        f"An item that must be whole, and is longer than a step, is taken in ({AS_NEWEST}).",
        (460,),
        "scheduler.refuses_long_whole_items",
    ),
    _scheduler_without(
        "failed-load-is-found",
        f"What a step loads can be found at once, right or not ({AS_NEWEST}).",
        (
            481,
            770,
        ),
        "scheduler.caches_loads_when_right",
        lane=_KV_LOADS,
    ),
    _scheduler_without(
        "failed-load-is-delivered",
        f"Steps in flight over a load that failed bring tokens ({AS_NEWEST}).",
        (
            13,
            36,
        ),
        "scheduler.drops_output_of_failed_loads",
        lane=_KV_LOADS,
    ),
    _scheduler_without(
        "load-reserves-for-itself",
        f"Blocks are kept free for a request whose load failed and that has none ({AS_NEWEST}).",
        (
            33,
            45,
        ),
        "scheduler.reserves_for_holders",
        lane=_KV_LOADS,
    ),
    _scheduler_without(
        "holders-wait-behind-a-load",
        f"Who holds blocks waits behind a load that finds none ({AS_NEWEST}).",
        (
            3534,
            11311,
        ),
        "scheduler.tries_all_holders",
        lane=_KV_LOADS,
    ),
    _scheduler_without(
        "load-too-large-beside-drafts",
        f"A load leaves blocks to drafts though nobody has any ({AS_NEWEST}).",
        (254,),
        "scheduler.spares_lone_loads",
        lane=_KV_LOADS,
    ),
    _scheduler_without(
        "items-ahead-of-a-failed-load",
        f"Who is thrown back by a failed load keeps its items ahead ({AS_NEWEST}).",
        (140,),
        "scheduler.gives_back_items_ahead",
        lane=_KV_LOADS,
    ),
    _scheduler_without(
        "reset-beside-a-load",
        f"Requests start over while a load holds blocks ({AS_NEWEST}).",
        (
            93,
            107,
        ),
        "scheduler.refuses_reset_beside_transfers",
        lane=_KV_LOADS,
    ),
    _scheduler_without(
        "load-into-given-back-blocks",
        "Who ends during a load gives back its blocks (before vLLM 0.16.0).",
        (
            3,
            52,
        ),
        "scheduler.keeps_until_loaded",
        lane=_KV_LOADS,
    ),
    _scheduler_without(
        "load-counts-whole-blocks",
        "A load counts for whole blocks, whatever it brought (before vLLM 0.18.0).",
        (
            3,
            4,
        ),
        "scheduler.counts_loaded_tokens",
        lane=_KV_LOADS,
    ),
    _scheduler_without(
        "load-beside-a-step-in-flight",
        "Blocks are given back that a step in flight writes (before vLLM 0.24.0).",
        (
            54,
            65,
        ),
        "kv_cache.defers_frees",
        lane=_KV_LOADS,
    ),
    _scheduler_with(scheduler_faults.schedules_beyond_the_budget),
    _scheduler_with(scheduler_faults.encodes_beyond_the_budget),
    _scheduler_with(scheduler_faults.admits_everybody),
    _scheduler_with(scheduler_faults.splits_items),
    _scheduler_with(scheduler_faults.computes_into_items),
    _scheduler_with(scheduler_faults.stops_early),
    _scheduler_with(scheduler_faults.encodes_again),
    _scheduler_with(scheduler_faults.withholds_what_is_encoded),
    _scheduler_with(scheduler_faults.drops_what_is_encoded),
    _scheduler_with(scheduler_faults.looks_past_the_first),
    _scheduler_with(scheduler_faults.drops_what_is_read),
    _scheduler_with(scheduler_faults.computes_the_same_again),
    _scheduler_with(scheduler_faults.stops),
    _scheduler_with(scheduler_faults.raises_in_update),
    _scheduler_with(scheduler_faults.refuses_requests),
    _scheduler_with(scheduler_faults.forgets_who_waits),
    _scheduler_with(scheduler_faults.calls_all_tokens_drafts),
    _scheduler_with(scheduler_faults.keeps_drafts),
    _scheduler_with(scheduler_faults.offers_less),
    _scheduler_with(scheduler_faults.preempts_the_most_urgent),
    _scheduler_with(scheduler_faults.counts_a_block_too_few),
    _scheduler_with(scheduler_faults.tells_of_a_block_too_few),
    _scheduler_with(scheduler_faults.reads_what_nobody_wrote),
    _scheduler_with(scheduler_faults.hands_out_what_is_loaded, _KV_LOADS),
    _scheduler_with(scheduler_faults.reads_what_nobody_wrote, _KV_LOADS),
    _scheduler_with(scheduler_faults.overlooks_failed_loads, _KV_LOADS),
    _scheduler_with(faults.frees_nothing),
    _scheduler_without(
        "scheduler-credits-decoders-again",
        f"Every output credits an encoder-decoder request's item again ({AS_NEWEST}).",
        (),
        "encoder_cache.releases_decoder_once",
        lane=_DECODERS,
    ),
    _scheduler_with(faults.frees_nothing, _DECODERS),
    _scheduler_with(scheduler_faults.stops, _DECODERS),
    _scheduler_with(scheduler_faults.stops, "scheduler with windows"),
    *map(_scheduler_with, manager_call_faults.MANAGER_CALL_FAULTS.values()),
    _scheduler_with(manager_call_faults.allocates_again, _DECODERS),
)


@dataclass(frozen=True)
class KillMatrix:
    """Which contract kills which variant, over the traces of `seeds`.

    `kills` maps each variant to the ids of the contracts that it breaks, `false_alarms` are the
    ids that the unmodified reference breaks under the same seeds: none, or the matrix is void.
    """

    seeds: tuple[int, ...]
    kills: dict[Variant, frozenset[str]]
    false_alarms: frozenset[str]
    contracts: tuple[Contract, ...]

    @property
    def survivors(self) -> list[Variant]:
        """Variants that no contract kills."""
        return [variant for variant, killed_by in self.kills.items() if not killed_by]

    def killed_by(self, contract: str) -> frozenset[str]:
        """Names of the variants that a contract kills."""
        return frozenset(variant.name for variant, ids in self.kills.items() if contract in ids)

    def covered_by(self, contract: str) -> list[str]:
        """Other contracts that kill all that this one kills: it must then say why it stays."""
        killed = self.killed_by(contract)
        return [
            other.id
            for other in self.contracts
            if other.id != contract and killed <= self.killed_by(other.id)
        ]

    def alone(self, contract: str) -> list[str]:
        """Names of the variants that this contract alone kills."""
        return [variant.name for variant, ids in self.kills.items() if ids == {contract}]

    def to_json(self) -> dict[str, Any]:
        """Plain data: variants with `name` and `killed_by`, contracts with what they kill."""
        return {
            "seeds": len(self.seeds),
            "false_alarms": sorted(self.false_alarms),
            "variants": [
                {
                    "name": variant.name,
                    "manager": variant.manager,
                    "sentence": variant.sentence,
                    "killed_by": self._in_order(ids),
                }
                for variant, ids in self.kills.items()
            ],
            "contracts": [
                {
                    "id": rule.id,
                    "kills": len(self.killed_by(rule.id)),
                    "alone": self.alone(rule.id),
                    "covered_by": self.covered_by(rule.id),
                    "kept_because": KEPT_BECAUSE.get(rule.id),
                }
                for rule in self.contracts
            ],
        }

    def to_markdown(self) -> str:
        """The page docs/kill-matrix.md."""
        ids = [rule.id for rule in self.contracts]
        lines = [
            "# The kill matrix",
            "",
            "Each variant is a manager, a hasher or a scheduler of the reference with one fault. A "
            "seeded search runs it under "
            f"the driver of a correct scheduler, {len(self.seeds)} traces each, or "
            f"{KV_CACHE_TRACES} of the KV cache's longer ones and {SCHEDULER_TRACES} of a "
            "scheduler's, or those at which a rare fault "
            "shows itself; a mark says that the contract was broken. The unmodified reference, "
            "over the same seeds, breaks "
            f"{'none' if not self.false_alarms else ', '.join(sorted(self.false_alarms))}. "
            "`cacheproof gallery` prints this page afresh.",
            "",
            _row("variant", ids),
            _row("---", [":-:"] * len(ids)),
        ]
        for variant, killed_by in self.kills.items():
            lines.append(_row(variant.name, ["x" if id in killed_by else "" for id in ids]))
        lines += ["", "## The variants", "", _row("variant", ["its fault"]), _row("---", ["---"])]
        lines += [_row(variant.name, [variant.sentence]) for variant in self.kills]
        lines += [
            "",
            "## Why each contract stays",
            "",
            "A contract earns its place when no other single contract kills all that it kills.",
            "",
            _row("contract", ["says", "kills", "alone", "kept because"]),
            _row("---", ["---", "--:", "---", "---"]),
        ]
        for rule in self.contracts:
            covered_by = self.covered_by(rule.id)
            reason = KEPT_BECAUSE.get(rule.id, "") if covered_by else "no other covers it"
            alone = ", ".join(self.alone(rule.id))
            count = str(len(self.killed_by(rule.id)))
            lines.append(_row(rule.id, [rule.title, count, alone, reason]))
        return "\n".join(lines) + "\n"

    def _in_order(self, ids: Iterable[str]) -> list[str]:
        return [rule.id for rule in self.contracts if rule.id in ids]


def _row(first: str, rest: Sequence[str]) -> str:
    return f"| {' | '.join([first, *rest])} |"


def kill_matrix(seeds: Sequence[int] = SEEDS) -> KillMatrix:
    """Run every variant, and the reference beside it, over the traces of the seeds."""
    twins = {
        Variant(
            "",
            "",
            variant.manager,
            MANAGERS.get(variant.manager),
            variant.resized,
            shape=variant.shape,
            seeds=variant.seeds,
            lane=variant.lane,
        )
        for variant in runnable()
    }
    return KillMatrix(
        seeds=tuple(seeds),
        kills={variant: killers(variant, seeds) for variant in runnable()},
        false_alarms=frozenset().union(*(killers(twin, seeds) for twin in twins)),
        contracts=_all_contracts(),
    )


def runnable() -> list[Variant]:
    """The variants that this interpreter has the libraries for."""
    return [
        variant
        for variant in VARIANTS
        if variant.manager != MEDIA_HASH or not missing_media_libraries()
    ]


def killers(variant: Variant, seeds: Sequence[int] = SEEDS) -> frozenset[str]:
    """Ids of the contracts that a variant breaks over the traces of the seeds."""
    broken: set[str] = set()
    target = target_of(variant)
    for trace in _traces(variant, seeds):
        result = target.run([trace], variant.fault)[0]
        broken.update(examine(trace, result, target).violations)
    return frozenset(broken)


def target_of(variant: Variant) -> ReferenceTarget:
    """The reference with the variant's fault, but for one that is planted when it runs."""
    if variant.factory is None:
        return ReferenceTarget(variant.semantics)
    protocol = Protocol(refuses_resized=not variant.resized)
    return ReferenceTarget(protocol=protocol, managers={variant.manager: variant.factory})


def _traces(variant: Variant, seeds: Sequence[int]) -> Iterator[Trace]:
    if variant.manager == KV_CACHE:
        seeds = variant.seeds or seeds[:KV_CACHE_TRACES]
    if variant.manager == SCHEDULER:
        seeds = variant.seeds or seeds[:SCHEDULER_TRACES]
    for seed in seeds:
        if variant.manager == KV_CACHE:
            yield _kv_cache_trace(seed, variant.shape)
        elif variant.manager == SCHEDULER:
            yield LANES[variant.lane].trace(seed, None)
        elif variant.manager == BLOCK_HASH:
            yield block_hash_trace(seed)
        elif variant.manager == MEDIA_HASH:
            yield media_hash_trace(seed)
        else:
            yield manager_trace(seed, variant.manager, resized=variant.resized)


_kv_cache_trace = cache(kv_cache_trace)


def _all_contracts() -> tuple[Contract, ...]:
    """The contracts of all that has variants, component by component."""
    judged = {variant.manager for variant in runnable()}
    judging = {rule.id for manager in judged for rule in rules_for(manager, release=None).all}
    found = [rule for rule in contracts() if rule.id in judging]
    return tuple(sorted(found, key=lambda rule: rule.component))  # whatever was imported first
