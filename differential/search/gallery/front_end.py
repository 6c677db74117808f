"""Front ends and engine cores whose caches of processed media have a fault."""

from cacheproof.differential.search.gallery.variant import (
    Variant,
    front_end_with,
    front_end_without,
)
from cacheproof.differential.targets.host.faults import front_end as front_end_faults

VARIANTS: tuple[Variant, ...] = (
    front_end_without(
        "media-never-processed-again",
        "An item that is not where it was taken to be is not processed again (as in vLLM).",
        "front_end.processes_again",
    ),
    front_end_without(
        "media-taken-in-two-orders",
        "The engine core takes items as they stand in the prompt (as in vLLM).",
        "front_end.takes_in_one_order",
    ),
    front_end_without(
        "media-skips-one-half",
        "What leaves the front end's cache out is kept by the engine core alone (as in vLLM).",
        "front_end.keeps_what_skips_it",
    ),
    front_end_without(
        "media-touches-nothing",
        "A name counts as used that nothing is kept under (as before vLLM 0.24.0).",
        "front_end.touches_what_is_there",
    ),
    front_end_without(
        "media-refuses-oversize",
        "An item that is larger than the cache is refused (as before vLLM 0.29.0).",
        "front_end.skips_oversize",
    ),
    front_end_without(
        "media-outlives-resets",
        "A message of before a reset leaves its items behind (as in vLLM).",
        "front_end.counts_resets",
        seeds=(722,),
    ),
    front_end_without(
        "media-reset-of-one-server",
        "A reset reaches the API server alone that is called (as in vLLM).",
        "front_end.resets_all_servers",
    ),
    front_end_without(
        "media-waits-for-the-withdrawn",
        "Shared memory waits for readers of messages that are never sent (as in vLLM).",
        "front_end.returns_what_is_not_sent",
    ),
    front_end_without(
        "media-moved-by-a-reset",
        "A reset gives away shared memory that is still to be read (as in vLLM).",
        "front_end.keeps_what_is_to_be_read",
    ),
    front_end_without(
        "media-of-another-by-a-reset",
        "The same, and chunks are numbered anew (as before vLLM 0.32.0).",
        "front_end.keeps_what_is_to_be_read",
        "front_end.numbers_on",
    ),
    front_end_without(
        "media-touched-and-counted",
        "What is touched in shared memory counts as sent and as read (as before vLLM 0.32.0).",
        "front_end.protects_what_is_touched",
    ),
    front_end_without(
        "media-counted-once",
        "An item in shared memory counts as sent once for all of a request's answers (as in vLLM).",
        "front_end.counts_samples",
    ),
    front_end_with(front_end_faults.hands_on_the_first_for_all),
    front_end_with(front_end_faults.forgets_what_it_received),
    front_end_with(front_end_faults.refuses_now_and_then),
    front_end_with(front_end_faults.counts_what_is_gone),
    front_end_with(front_end_faults.resets_one_half),
    front_end_with(front_end_faults.lacks_what_it_has),
    front_end_with(front_end_faults.reads_twice),
    front_end_with(front_end_faults.finds_another_chunk),
)
