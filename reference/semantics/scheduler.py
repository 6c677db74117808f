"""The scheduler: which requests it runs, what it loads, sends and encodes, what it reports."""

from dataclasses import dataclass

from cacheproof.reference.releases import FIRST_MODELLED
from cacheproof.reference.semantics.change import NOT_FOUND, change


@dataclass(frozen=True)
class SchedulerSemantics:
    """The flags of the scheduler, of its connectors, and of what it reports to workers."""

    fits_cross_attention: bool = change(
        "0.17.0",
        "Scheduler.schedule",
        "cross-attention gets blocks for the item that is encoded, not for the largest one",
    )
    loads_encodings: bool = change(
        "0.11.1",
        "Scheduler._try_schedule_encoder_inputs",
        "encoder outputs can be loaded through a connector",
    )
    awaits_transfers: bool = change(
        "0.23.0",
        "Scheduler.schedule",
        "a request that arrives waits for encoder outputs that are in transit",
    )
    awaits_later_transfers: bool = change(
        "0.30.0",
        "Scheduler._ec_transfer_pending",
        "a request that has computed tokens waits for encoder outputs that are in transit",
    )
    fails_lost_transfers: bool = change(
        "0.30.0",
        "Scheduler.update_from_output",
        "a request ends when an encoder output that it waits for will never arrive",
    )
    counts_all_holders: bool = change(
        "0.11.1",
        "KVCacheManager.get_num_common_prefix_blocks",
        "a block is common if all requests that hold blocks hold it, not as many requests as run",
    )
    ends_once: bool = change(
        "0.11.1",
        "Scheduler.finish_requests",
        "a request that has finished cannot be aborted any more",
    )
    ignores_unknown_sendings: bool = change(
        "0.11.0",
        "Scheduler._update_from_kv_xfer_finished",
        "a request whose KV has been sent may be gone",
    )
    retries_failed_loads: bool = change(
        "0.11.1",
        "Scheduler._handle_invalid_blocks",
        "workers can report KV blocks whose load failed",
    )
    ends_failed_loads: bool = change(
        "0.13.0",
        "Scheduler._handle_invalid_blocks",
        "a request whose KV load failed can be finished instead of recomputed",
    )
    resumes_loaded: bool = change(
        "0.14.0",
        "Scheduler.schedule",
        "a preempted request that has loaded its KV is a resumed one",
    )
    counts_loaded_tokens: bool = change(
        "0.18.0",
        "Scheduler._update_waiting_for_remote_kv",
        "a KV load brings the tokens that it was for, not whole blocks",
    )
    computes_last_after_failures: bool = change(
        "0.31.0",
        "Scheduler._update_waiting_for_remote_kv",
        "a request whose failed blocks others compute again computes its last token",
    )
    keeps_until_loaded: bool = change(
        "0.16.0",
        "Scheduler.finish_requests",
        "a request that ends during its KV load keeps its blocks until the load is over",
    )
    cuts_behind_the_step: bool = change(
        "0.19.0",
        "Scheduler._update_requests_with_invalid_blocks",
        "a KV load that fails may be of a request that had run before",
    )
    reserves_for_prefills: bool = change(
        "0.23.0",
        "Scheduler._inflight_prefill_reserved_blocks",
        "a KV load leaves free the blocks that unfinished prompts will need",
    )
    sends_computed_blocks: bool = change(
        "0.25.0",
        "Scheduler._connector_finished",
        "a connector sends only blocks of computed tokens",
    )
    spares_unfreeable_victims: bool = change(
        "0.30.0",
        "Scheduler._request_blocks_can_be_freed",
        "no request is preempted whose blocks a step in flight still writes",
    )
    reserves_for_drafts: bool = change(
        "0.31.0",
        "Scheduler._request_remaining_blocks",
        "a KV load leaves free the blocks that drafts of unfinished prompts will need",
    )
    fits_reserved_drafts: bool = change(
        "0.32.0",
        "Scheduler._request_remaining_blocks",
        "drafts for which blocks are kept first fill the last block of their prompt",
    )
    skips_reading_elsewhere: bool = change(
        "0.31.0",
        "Scheduler.schedule",
        "a request that skips reading the prefix cache loads nothing through a connector",
    )
    gives_back_items_ahead: bool = change(
        None,
        "Scheduler._update_requests_with_invalid_blocks",
        "a request that a failed KV load throws back claims its items anew",
        thread=NOT_FOUND,
    )
    spares_lone_loads: bool = change(
        None,
        "Scheduler.schedule",
        "a KV load beside which no request holds blocks may take all of them",
        thread=NOT_FOUND,
    )
    reserves_for_holders: bool = change(
        None,
        "Scheduler._inflight_prefill_reserved_blocks",
        "no blocks are kept for a request that has given all of its own back",
        thread=NOT_FOUND,
    )
    tries_all_holders: bool = change(
        None,
        "Scheduler.schedule",
        "a waiting request that holds blocks and finds no more does not hold up the others that do",
        thread="vLLM PR #57841",
    )
    caches_loads_when_right: bool = change(
        None,
        "Scheduler.schedule",
        "blocks that a step loads can be hit once the step has not failed",
        thread=NOT_FOUND,
    )
    drops_output_of_failed_loads: bool = change(
        None,
        "Scheduler.update_from_output",
        "steps in flight over a KV load that failed bring no output",
        thread="vLLM #45138, PR #45430",
    )
    refuses_reset_beside_transfers: bool = change(
        None,
        "Scheduler.reset_prefix_cache",
        "requests do not start over while a transfer holds blocks",
        thread=NOT_FOUND,
    )
    takes_drafts: bool = change(
        "0.11.1",
        "Scheduler.update_draft_token_ids",
        "drafts are scheduled in the way that the reference models",
    )
    spares_sure_ends: bool = change(
        "0.12.0", "Scheduler.schedule", "a request whose last token is in flight is not scheduled"
    )
    drafts_past_the_end: bool = change(
        FIRST_MODELLED,
        "Scheduler.schedule",
        "the drafts of a request may go beyond its last token",
        last="0.11.0",
        again="0.12.0",
    )
    encodes_ahead: bool = change(
        "0.12.0",
        "Scheduler._try_schedule_encoder_inputs",
        "an item that a drafter reads ahead of the window is encoded",
    )
    unschedules_victims: bool = change(
        "0.11.1",
        "Scheduler.schedule",
        "a victim of preemption that the step had scheduled is taken out of the step",
    )
    waits_for_long_prompts: bool = change(
        "0.12.0", "Scheduler.schedule", "an unchunked prompt is not overtaken for want of tokens"
    )
    forgets_drafts: bool = change(
        "0.14.0",
        "Scheduler._preempt_request",
        "the drafts of a request that is preempted are forgotten",
    )
    keeps_passed_over_in_order: bool = change(
        "0.14.0",
        "FCFSRequestQueue.prepend_requests",
        "requests that a step passes over keep their order",
    )
    skips_reading: bool = change(
        "0.11.1",
        "Request.get_skip_reading_prefix_cache",
        "a request may compute all of its prompt itself",
    )
    pauses: bool = change("0.17.0", "Scheduler.set_pause_state", "scheduling can be paused")
    restarts_running: bool = change(
        "0.27.0",
        "Scheduler.reset_prefix_cache",
        "a reset of the prefix cache can let running requests start over",
    )
    sets_passed_over_apart: bool = change(
        "0.18.0",
        "Scheduler.schedule",
        "requests that were passed over wait in a queue of their own",
    )
    spares_lone_prefill: bool = change(
        "0.31.0", "Scheduler.schedule", "a request that is alone may have the whole token budget"
    )
    rejoins_passed_over: bool = change(
        "0.31.0", "Scheduler.schedule", "a request that is passed over goes back to where it stood"
    )
    marks_stale_output: bool = change(
        "0.27.0", "Scheduler.update_from_output", "output of before a preemption changes no counter"
    )
    releases_confirmed: bool = change(
        "0.24.0",
        "Scheduler._free_encoder_inputs",
        "an item is released when no rejected draft can need it again",
    )
    rolls_back_for_drafter: bool = change(
        "0.17.0",
        "Scheduler._try_schedule_encoder_inputs",
        "a chunk that ends before an item is shortened by what a drafter reads ahead",
    )
    counts_no_rows: bool = change(
        "0.20.0",
        "PlaceholderRange.get_embeds_indices_in_range",
        "an item with a mask places no embedding before its start",
    )
    pads_drafts: bool = change(
        "0.25.0", "Scheduler.schedule", "a request that joins decoding ones is padded with drafts"
    )
    looks_ahead_at_once: bool = change(
        "0.23.0", "Scheduler.schedule", "an admitted request has slots for a drafter from the start"
    )
    reads_ahead_sparsely: bool = change(
        "0.28.0",
        "Scheduler._try_schedule_encoder_inputs",
        "an item whose first embedding only a drafter reads counts as needed",
    )
    omits_nobody: bool = change(
        "0.28.0",
        "Scheduler.schedule",
        "a victim that was passed over shifts no other request out of the step",
    )
    pads_wholly: bool = change(
        "0.29.0",
        "Scheduler.schedule",
        "padding with drafts ends before the model's length, or there is none",
    )
    pads_lone_requests: bool = change(
        "0.30.0",
        "Scheduler.schedule",
        "a request whose cached prefix leaves one token is padded with drafts, even alone",
    )
    keeps_hits_whole: bool = change(
        "0.32.0",
        "Scheduler._try_schedule_encoder_inputs",
        "a cached item that must be whole is not split",
    )
    passes_over_unschedulable: bool = change(
        "0.33.0",
        "Scheduler.schedule",
        "a waiting request without a token to compute is passed over",
    )
    reads_ahead_without: bool = change(
        "0.33.0",
        "Scheduler._try_schedule_encoder_inputs",
        "a drafter may read ahead into an item that is not encoded",
    )
    releases_ahead: bool = change(
        "0.33.0",
        "Scheduler._free_encoder_inputs",
        "an item is released before a drafter's reading is past it",
    )
    holds_prefills: bool = change(
        "0.33.0", "Scheduler.schedule", "prompts can be held back in favour of requests that decode"
    )
    forgets_withdrawn_prefills: bool = change(
        None,
        "Scheduler.schedule",
        "a chunk of a prompt that a step takes back does not hold back other prompts",
        thread=NOT_FOUND,
    )
    counts_running_loras: bool = change(
        "0.33.0",
        "Scheduler.schedule",
        "adapters of running requests count, whether scheduled or not",
    )
    caches_processed: bool = change(
        "0.33.0",
        "Scheduler.update_from_output",
        "an output lets blocks be hit up to the tokens of the steps in flight",
    )
    keeps_items_whole: bool = change(
        "0.33.0",
        "Scheduler._try_schedule_encoder_inputs",
        "an item that must be whole is not split where a chunk starts with it",
        thread="vLLM PR #52412",
    )
    goes_on_after_preempting_itself: bool = change(
        "0.33.0",
        "Scheduler.schedule",
        "requests after one that preempted itself are still scheduled",
    )
    counts_listening_sessions: bool = change(
        "0.25.0", "Scheduler.schedule", "a session that waits for more prompt counts as running"
    )
    admits_holders_first: bool = change(
        "0.31.0",
        "Scheduler._holds_kv_blocks",
        "waiting requests that hold KV blocks go before all others",
    )
    drops_output_of_ended_turns: bool = change(
        "0.31.0",
        "Scheduler._handle_stopped_request",
        "output that is in flight when a session's turn ends is dropped",
    )
    takes_max_tokens_of_chunks: bool = change(
        "0.31.0",
        "Scheduler._update_request_as_session",
        "each turn of a session has a length limit of its own",
    )
    drains_when_paused: bool = change(
        "0.32.0", "Scheduler.schedule", "a pause still admits requests that hold KV blocks"
    )
    keeps_decoded_of_sessions: bool = change(
        "0.33.0",
        "Scheduler._update_request_as_session",
        "a session that lost its KV blocks keeps its tokens",
    )
    keeps_sessions_that_waited: bool = change(
        "0.33.0",
        "Scheduler.update_from_output",
        "a session that was preempted when its turn ended is continued",
    )
    uncounts_trimmed: bool = change(
        "0.33.0",
        "Scheduler._update_request_with_output",
        "tokens after the one that ends a turn are not counted as computed",
    )
    outlasts_placeholders: bool = change(
        "0.33.0",
        "Scheduler._update_request_with_output",
        "a token for which no placeholder is left is taken",
        thread="vLLM #35755",
    )
    restarts_sessions: bool = change(
        None,
        "Scheduler.reset_prefix_cache",
        "a reset that lets requests start over includes waiting sessions",
        thread=NOT_FOUND,
    )
    releases_between_turns: bool = change(
        None,
        "Scheduler._handle_stopped_request",
        "a session whose turn has ended holds no encoder output",
        thread=NOT_FOUND,
    )
    sorts_continued_sessions: bool = change(
        None,
        "Scheduler._update_request_as_session",
        "a session that is continued takes the place of its new arrival time",
        thread=NOT_FOUND,
    )
    pads_within_threshold: bool = change(
        None,
        "Scheduler.schedule",
        "a request is not padded with drafts beyond the long-prefill threshold, or beyond a step",
        thread="vLLM PR #54028",
    )
    takes_after_blocks: bool = change(
        None,
        "Scheduler.schedule",
        "items are claimed, and others evicted, once KV blocks are allocated",
        thread=NOT_FOUND,
    )
    passes_sparse_items: bool = change(
        None,
        "Scheduler._try_schedule_encoder_inputs",
        "an item without an embedding in the window is not admitted",
        thread=NOT_FOUND,
    )
    runs_urgent_first: bool = change(
        None,
        "Scheduler.schedule",
        "running requests are scheduled in order of priority",
        thread=NOT_FOUND,
    )
    spares_scheduled: bool = change(
        None,
        "Scheduler.schedule",
        "no request is preempted that the step has scheduled",
        thread="vLLM PR #53723",
    )
    hands_on_encodes: bool = change(
        None,
        "Scheduler.schedule",
        "an encode that a preemption takes out of its step goes to a request that hits the entry, "
        "or the entry is evicted",
        thread="vLLM PR #53723",
    )
    keeps_loads: bool = change(
        None,
        "Scheduler.schedule",
        "what a step loads is not evicted in that step, though its request is preempted",
        thread=NOT_FOUND,
    )
    forgets_uncomputed: bool = change(
        None,
        "Scheduler._preempt_request",
        "a block that a preemption takes out of its step cannot be hit: nobody computes it",
        thread="vLLM PR #43569",
    )
    keeps_returned_budget: bool = change(
        None,
        "Scheduler.schedule",
        "encoder budget that a victim of preemption gives back is there for the rest of its step",
        thread=NOT_FOUND,
    )
    spares_whole_items: bool = change(
        None,
        "Scheduler.schedule",
        "an item that must be whole may exceed the long-prefill threshold",
        thread=NOT_FOUND,
    )
    refuses_long_whole_items: bool = change(
        None,
        "Scheduler.add_request",
        "a request is refused that has an item that must be whole and is longer than a step",
        thread=NOT_FOUND,
    )
    sends_all_items: bool = change(
        FIRST_MODELLED,
        "NewRequestData.from_request",
        "workers get all items of a request, those in its cached prefix included",
        last="0.28.0",
        thread="vLLM PR #52041",
    )
    ends_at_whole_items: bool = change(
        None,
        "Scheduler._try_schedule_encoder_inputs",
        "a chunk ends where an item that must be whole begins, not before",
        thread=NOT_FOUND,
    )
    tells_known_tokens: bool = change(
        "0.11.1",
        "Scheduler._make_cached_request_data",
        "workers get all tokens of a request that the step before left out",
    )
    has_second_runner: bool = change(
        "0.12.0",
        "Scheduler.schedule",
        "the second model runner gets a resumed request as a new one",
    )
    spares_second_runner_tokens: bool = change(
        "0.24.0",
        "Scheduler._make_cached_request_data",
        "the second model runner does not get tokens that it has",
    )
    tells_preemptions_by_reset: bool = change(
        "0.25.0",
        "Scheduler.schedule",
        "the scheduler reports to workers which requests a reset has preempted",
    )
    tells_loads_within_step: bool = change(
        "0.29.0",
        "Scheduler.schedule",
        "the scheduler reports to workers whether KV is loaded within the step",
    )
    sends_items_again: bool = change(
        "0.33.0",
        "Scheduler._get_encoder_input_updates",
        "the second model runner drops the data of items, and gets it again to encode them",
    )
    skips_unused_drafts: bool = change(
        "0.33.0",
        "Scheduler._drafts_unused",
        "the drafter of the second model runner rests when no request can use its drafts",
    )
