"""What upstream changed on purpose: one flag a change, with the release that made it.

`Semantics.ideal()` is what the contracts demand. `Semantics.of_vllm("0.28.0")` is that release,
faults included, so that the reference and the release agree on every decision.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from cacheproof.reference.releases import is_modelled, model_of
from cacheproof.spec.versions import release_key

FIRST_MODELLED = "0.10.2"


class NotModelled(ValueError):
    """The reference does not model this release; the message names it and what to do."""


class UnknownRelease(UserWarning):
    """Nobody has held the reference against this release."""


def unknown(release: str) -> str:
    """What there is to say of a release that is not modelled itself."""
    return (
        f"vLLM {release} is not a release that is modelled; the semantics are those of "
        f"{model_of(release)}"
    )


def change(
    since: str | None,
    thread: str,
    sentence: str,
    *,
    until: str | None = None,
    again: str | None = None,
) -> Any:
    """A flag that is true from release `since` on, None: no release has it yet; not any more from
    release `until` on; and true again from release `again` on."""
    return field(
        default=True,
        metadata={
            "since": since,
            "until": until,
            "again": again,
            "thread": thread,
            "sentence": sentence,
        },
    )


@dataclass(frozen=True)
class Semantics:
    """The flags. All true is `ideal()`.

    Those of the manager are read by the managers; `counts_embeds`, `frees_stalled`, `resets`,
    `releases_on_update`, `refuses_resized` and `claims_duplicates` are its scheduler's, and shape
    how it is called.
    """

    counts_embeds: bool = change(
        "0.13.0", "release source", "an item takes its embeddings, not its placeholder's length"
    )
    frees_stalled: bool = change(
        "0.14.0", "vLLM PR #31857", "a request without KV blocks gives back what its walk claimed"
    )
    resets: bool = change("0.16.0", "release source", "the encoder cache can be reset")
    delays_decoder_notices: bool = change(
        "0.14.1", "vLLM PR #32789", "an encoder-decoder entry is reported a step after its encode"
    )
    releases_on_update: bool = change(
        "0.20.0", "release source", "what a step consumed is released when its output arrives"
    )
    remembers_claims: bool = change(
        "0.23.0", "release source", "a request's claimed inputs are kept, not read off the cache"
    )
    drops_stale_notices: bool = change(
        "0.28.0", "vLLM PR #52482", "an entry evicted and allocated again in a step is not reported"
    )
    holds_until_last_occurrence: bool = change(
        "0.29.0", "vLLM PR #54284", "a repeated item holds its entry until its last occurrence"
    )
    remembers_sizes: bool = change(
        "0.31.0", "release source", "what is credited is the size that was debited"
    )
    refuses_resized: bool = change(
        "0.31.0", "release source", "an identifier that comes back with another size is refused"
    )
    claims_duplicates: bool = change(
        "0.32.0", "release source", "a second occurrence in one walk is claimed with the first"
    )
    releases_decoder_once: bool = change(
        None, "vLLM #55733", "an encoder-decoder item is credited once, not on every update"
    )

    # the worker
    pairs_decoder_rows: bool = change(
        None, "no thread found", "a decoder attends to what was encoded for its own request"
    )

    # block hashes
    keys_adapter_names: bool = change(
        "0.11.1", "release source", "a block key holds the adapter's name, not its number"
    )
    keys_prompt_embeds: bool = change(
        "0.11.1", "release source", "a block key covers prompt embeddings"
    )
    digests_prompt_embeds: bool = change(
        "0.17.0",
        "release source",
        "a block key holds the digest of its embeddings, not their bytes",
    )
    zeroes_embed_positions: bool = change(
        "0.29.0", "release source", "a position with an embedding counts as token 0 in any prompt"
    )
    keys_item_offsets: bool = change(
        "0.19.0", "vLLM PR #36708", "a block key holds where in the block an item starts"
    )
    passes_items_at_boundary: bool = change(
        "0.19.0", "vLLM PR #36708", "an item that ends where a block starts is not in its key"
    )
    tags_block_keys: bool = change(
        "0.31.0", "release source", "each extra key of a block says of what kind it is"
    )
    keys_adapter_paths: bool = change(
        "0.31.0", "release source", "a block key holds the adapter's path beside its name"
    )
    finds_items_when_grown: bool = change(
        "0.31.0", "release source", "hashing that goes on finds every item of the block"
    )
    offers_xxhash: bool = change(
        "0.13.0", "release source", "XXH3 may stand for SHA-256 in block keys"
    )
    continues_requests: bool = change(
        "0.15.0", "release source", "a request's prompt can go on after it has decoded"
    )
    drops_keys_of_discarded: bool = change(
        "0.32.0", "release source", "a key over a token that is discarded then is dropped"
    )
    looks_ahead: bool = change(
        "0.33.0", "release source", "a block key can cover tokens after its block"
    )
    keys_embed_masks: bool = change(
        None, "vLLM #56655, PR #56656", "a block key says which positions embeddings were given for"
    )
    keys_by_content: bool = change(
        None, "no thread found", "equal keys hash alike, whichever objects they are made of"
    )

    # media hash
    hashes_image_modes: bool = change(
        "0.11.0", "release source", "an image is its mode, pixels and palette, not its RGBA form"
    )
    hashes_array_views: bool = change(
        "0.11.0", "release source", "an array's bytes are read through a view of them"
    )
    hashes_original_bytes: bool = change(
        "0.13.0", "release source", "a fetched image is hashed by the bytes that were fetched"
    )
    hashes_none_by_key: bool = change(
        "0.14.0", "release source", "None leaves its key alone in the stream, not its pickle"
    )
    chooses_media_digest: bool = change(
        "0.15.0", "vLLM #18334", "sha256 and sha512 may stand for blake3"
    )
    hashes_array_scalars: bool = change(
        "0.16.0", "release source", "an array without dimensions is hashed by its element"
    )
    sorts_keywords: bool = change(
        "0.16.0", "release source", "keyword arguments are hashed in the order of their names"
    )
    hashes_decode_settings: bool = change(
        "0.27.0", "release source", "settings that altered a fetched image are hashed with it"
    )
    hashes_video_bytes: bool = change(
        "0.27.0", "release source", "a fetched video is hashed by its bytes, where they are fewer"
    )
    hashes_video_tensors: bool = change(
        "0.30.0", "release source", "the same for frames in a tensor"
    )
    frames_media_chunks: bool = change(
        "0.31.0", "release source", "each chunk has its length in front, each container its kind"
    )
    identifies_adapters: bool = change(
        "0.14.0", "release source", "an identifier names the adapter that reaches the encoder"
    )
    separates_user_ids: bool = change(
        None, "no thread found", "no id of a user's is the identifier of a content"
    )
    measures_adapter_names: bool = change(
        None, "no thread found", "an adapter's name does not run into the identifier's rest"
    )
    hashes_media_content: bool = change(
        None,
        "no thread found",
        "types, values and frames are hashed, nothing that stands for them",
    )

    # KV cache
    reuses_unfindable_first: bool = change(
        "0.24.0", "release source", "a freed block without a hash goes before all free blocks"
    )
    reuses_unfindable_in_windows: bool = change(
        "0.23.0",
        "release source",
        "a block without a hash that a window gives back goes before all, cached or not",
        until="0.24.0",
    )
    stacks_without_caching: bool = change(
        "0.24.0",
        "release source",
        "every freed block goes before all free blocks when nothing is cached",
        until="0.27.0",
        again="0.28.0",
    )
    tells_external_tokens: bool = change(
        "0.14.0", "release source", "allocation is told which tokens are loaded from elsewhere"
    )
    touches_before_loading: bool = change(
        "0.24.0", "vLLM #33775", "every group holds its hit before one takes blocks for a load"
    )
    keeps_window_of_last_token: bool = change(
        None, "no thread found", "a load of all tokens leaves the window of the last one readable"
    )
    loads_by_token: bool = change(
        "0.24.0", "release source", "nothing is loaded for tokens no longer read in a block that is"
    )
    leaves_out_unreachable: bool = change(
        "0.22.0", "release source", "window groups cache only blocks that a hit can need"
    )
    leaves_out_in_lone_windows: bool = change(
        "0.23.0", "release source", "so do window groups that no coarser group stands beside"
    )
    caches_aligned: bool = change(
        "0.22.0", "release source", "hybrid caches cache only up to where a hit can end"
    )
    caches_prompt_tail: bool = change(
        "0.26.0", "release source", "a prompt's last, partly filled coarse block can be found"
    )
    spares_last_prompt_token: bool = change(
        "0.32.0", "release source", "a cached prompt tail leaves the last token to compute"
    )
    events_carry_extra_keys: bool = change(
        "0.17.0", "release source", "KV events carry the extra keys of each block"
    )
    events_name_groups: bool = change(
        "0.20.0", "release source", "KV events say which group they are about"
    )
    events_tell_kinds: bool = change(
        "0.22.0", "release source", "KV events say which kind of attention their group has"
    )
    events_name_sessions: bool = change(
        "0.30.0", "release source", "KV events say which session a block was stored for"
    )
    keeps_window_in_flight: bool = change(
        "0.26.0", "release source", "what a step in flight still reads is not given back"
    )
    counts_admitted_hits: bool = change(
        "0.27.0", "release source", "prefix cache statistics count a hit when it is admitted"
    )
    tells_longer_hits: bool = change(
        "0.26.0", "release source", "a lookup says how far a single group's hit reaches"
    )
    knows_prefix_tokens: bool = change(
        "0.24.0", "release source", "a cached block knows how long a prefix its hash covers"
    )
    retains_sparsely: bool = change(
        "0.29.0", "release source", "windows can be cached in few places alone"
    )
    counts_tables: bool = change(
        "0.11.1", "release source", "a common prefix is one of all requests that have a table"
    )
    forgets_refused: bool = change(
        "0.14.0", "release source", "a request that gets no slots has no table"
    )
    admits_whole_sequences: bool = change(
        "0.19.0", "release source", "admission can ask that the whole sequence fits"
    )
    admits_in_allocation: bool = change(
        "0.21.0", "release source", "allocation itself asks whether the whole sequence fits"
    )
    caps_admission: bool = change(
        "0.20.0", "release source", "a window counts for no more blocks than it holds at a time"
    )
    caps_admission_alone: bool = change(
        "0.20.2", "release source", "but only where the whole sequence must fit, not for slots"
    )
    reserves_blocks: bool = change(
        "0.23.0", "release source", "admission can keep blocks free for other requests"
    )
    keeps_watermark: bool = change(
        "0.24.0", "release source", "admission can keep a part of all blocks free"
    )
    defers_frees: bool = change(
        "0.24.0", "release source", "a request's blocks can be given back after it has ended"
    )
    aligns_behind_drop: bool = change(
        "0.20.0", "release source", "a window's hit is aligned without the block to be dropped"
    )
    aligns_first_hit_once: bool = change(
        None,
        "release source",
        "a hit of a window's first blocks is aligned once, without the block to be dropped",
    )
    caches_block_to_drop: bool = change(
        "0.23.0", "vLLM #32802", "hybrid caches cache the block that a drafter then drops"
    )
    looks_past_limit_to_drop: bool = change(
        "0.32.0", "release source", "the block to be dropped may hold the last prompt token"
    )
    joins_equal_groups: bool = change(
        "0.29.0", "release source", "several groups may be all of one kind"
    )
    tells_tokens_of_hashes: bool = change(
        None, "vLLM #44451, PR #44488", "a KV event carries the tokens of its hashes and no others"
    )
    adopts_hits_alone: bool = change(
        "0.31.0", "release source", "slots can be asked for a hit alone, without a new token"
    )
    trims_null_heads: bool = change(
        "0.33.0", "release source", "blocks to be given back later begin with one that is held"
    )
    shares_no_prefix_reads: bool = change(
        "0.32.0", "release source", "common prefixes are not counted: cascade attention is gone"
    )

    # scheduler
    fits_cross_attention: bool = change(
        "0.17.0", "release source", "cross-attention gets blocks for the item that is encoded"
    )
    loads_encodings: bool = change(
        "0.11.1", "release source", "encoder outputs can be loaded from elsewhere"
    )
    awaits_transfers: bool = change(
        "0.23.0", "release source", "a request that arrives waits for outputs that are on their way"
    )
    awaits_later_transfers: bool = change(
        "0.30.0", "release source", "so does one that runs, or that has computed something"
    )
    fails_lost_transfers: bool = change(
        "0.30.0", "release source", "a request ends when an output it waits for will never come"
    )
    counts_all_holders: bool = change(
        "0.11.1", "release source", "a block is common to all that hold blocks, not to as many"
    )
    ends_once: bool = change(
        "0.11.1", "release source", "a request that has ended cannot be aborted any more"
    )
    ignores_unknown_sendings: bool = change(
        "0.11.0", "release source", "a request that has been sent may be gone"
    )
    retries_failed_loads: bool = change(
        "0.11.1", "release source", "workers can report KV blocks whose load failed"
    )
    ends_failed_loads: bool = change(
        "0.13.0", "release source", "a request can be ended whose KV could not be loaded"
    )
    resumes_loaded: bool = change(
        "0.14.0", "release source", "a preempted request that has loaded its KV is a resumed one"
    )
    counts_loaded_tokens: bool = change(
        "0.18.0", "release source", "a load brings the tokens that it was for, not whole blocks"
    )
    keeps_until_loaded: bool = change(
        "0.16.0", "release source", "who ends during a load keeps its blocks until the load is over"
    )
    cuts_behind_the_step: bool = change(
        "0.19.0", "release source", "a failed load may be of a request that had run before"
    )
    reserves_for_prefills: bool = change(
        "0.23.0", "release source", "a load leaves the blocks that unfinished prompts will need"
    )
    sends_computed_blocks: bool = change(
        "0.25.0", "release source", "only blocks of computed tokens are sent elsewhere"
    )
    spares_unfreeable_victims: bool = change(
        "0.30.0", "release source", "nobody is preempted whose blocks a step in flight still writes"
    )
    reserves_for_drafts: bool = change(
        "0.31.0", "release source", "and the blocks that their drafts will need"
    )
    fits_reserved_drafts: bool = change(
        "0.32.0", "release source", "a request's drafts first fill the last block of its prompt"
    )
    skips_reading_elsewhere: bool = change(
        "0.31.0", "release source", "a request that skips reading loads nothing either"
    )
    gives_back_items_ahead: bool = change(
        None, "no thread found", "who is thrown back by a failed load claims its items anew"
    )
    spares_lone_loads: bool = change(
        None, "no thread found", "a load beside which nobody holds blocks may take all of them"
    )
    reserves_for_holders: bool = change(
        None, "no thread found", "no blocks are left to a request that has given all of its back"
    )
    tries_all_holders: bool = change(
        None, "vLLM PR #57841", "who holds blocks and finds no more holds up no other that does"
    )
    caches_loads_when_right: bool = change(
        None, "no thread found", "what a step loads can be found once the step has not failed"
    )
    drops_output_of_failed_loads: bool = change(
        None, "vLLM #45138, PR #45430", "steps in flight over a load that failed bring no output"
    )
    refuses_reset_beside_transfers: bool = change(
        None, "no thread found", "requests do not start over while a transfer holds blocks"
    )
    takes_drafts: bool = change(
        "0.11.1", "release source", "drafts are taken as they are modelled here"
    )
    spares_sure_ends: bool = change(
        "0.12.0", "release source", "no step for a request whose last token is on its way"
    )
    drafts_past_the_end: bool = change(
        FIRST_MODELLED,
        "release source",
        "a request's drafts may go beyond its last token",
        until="0.11.1",
        again="0.12.0",
    )
    encodes_ahead: bool = change(
        "0.12.0", "release source", "items that a drafter reads ahead of the window are needed"
    )
    unschedules_victims: bool = change(
        "0.11.1", "release source", "a victim that the step had scheduled is taken out of it"
    )
    waits_for_long_prompts: bool = change(
        "0.12.0", "release source", "unchunked prompts are not overtaken for want of tokens"
    )
    forgets_drafts: bool = change(
        "0.14.0", "release source", "drafts of a request that is preempted are forgotten"
    )
    keeps_passed_over_in_order: bool = change(
        "0.14.0", "release source", "requests that a step passes over keep their order"
    )
    skips_reading: bool = change(
        "0.11.1", "release source", "a request may compute all of its prompt itself"
    )
    pauses: bool = change("0.17.0", "release source", "scheduling can be paused")
    restarts_running: bool = change(
        "0.27.0", "release source", "with a reset of the prefix cache running requests start over"
    )
    sets_passed_over_apart: bool = change(
        "0.18.0", "release source", "requests that were passed over wait in a queue of their own"
    )
    spares_lone_prefill: bool = change(
        "0.31.0", "release source", "a request that is alone may have the whole token budget"
    )
    rejoins_passed_over: bool = change(
        "0.31.0", "release source", "a request that is passed over goes back to where it stood"
    )
    marks_stale_output: bool = change(
        "0.27.0", "release source", "output of before a preemption changes no counter"
    )
    releases_confirmed: bool = change(
        "0.24.0", "release source", "an item is released when no rejected draft can need it again"
    )
    rolls_back_for_drafter: bool = change(
        "0.17.0", "release source", "a chunk that rolls back before an item keeps a drafter off it"
    )
    counts_no_rows: bool = change(
        "0.20.0", "release source", "an item with a mask places no embedding before its start"
    )
    pads_drafts: bool = change(
        "0.25.0", "release source", "a request that joins decoding ones is padded with drafts"
    )
    looks_ahead_at_once: bool = change(
        "0.23.0", "release source", "an admitted request has slots for a drafter from the start"
    )
    reads_ahead_sparsely: bool = change(
        "0.28.0", "release source", "an item counts whose first embedding only a drafter reads"
    )
    omits_nobody: bool = change(
        "0.28.0", "release source", "a victim that was passed over shifts nobody out of the step"
    )
    pads_wholly: bool = change(
        "0.29.0", "release source", "padding ends before the model's length, or there is none"
    )
    pads_lone_requests: bool = change(
        "0.30.0", "release source", "so is a request whose cached prefix leaves one token"
    )
    keeps_hits_whole: bool = change(
        "0.32.0", "release source", "an item that is cached is not split either"
    )
    passes_over_unschedulable: bool = change(
        "0.33.0", "release source", "a waiting request without a token to compute is passed over"
    )
    reads_ahead_without: bool = change(
        "0.33.0", "release source", "a drafter may read ahead into an item that is not encoded"
    )
    releases_ahead: bool = change(
        "0.33.0", "release source", "an item is released before a drafter's reading is past it"
    )
    holds_prefills: bool = change(
        "0.33.0", "release source", "prompts can be held back in favour of requests that decode"
    )
    forgets_withdrawn_prefills: bool = change(
        None,
        "no thread found",
        "a chunk of a prompt that a step takes back does not hold back others",
    )
    counts_running_loras: bool = change(
        "0.33.0", "release source", "adapters of running requests count, scheduled or not"
    )
    caches_processed: bool = change(
        "0.33.0", "release source", "an output lets blocks be found up to the steps in flight"
    )
    keeps_items_whole: bool = change(
        "0.33.0", "vLLM PR #52412", "an item on which a chunk starts is not split either"
    )
    goes_on_after_preempting_itself: bool = change(
        "0.33.0", "release source", "requests behind one that preempted itself are still scheduled"
    )
    counts_listening_sessions: bool = change(
        "0.25.0", "release source", "a session that waits for more prompt counts as running"
    )
    admits_holders_first: bool = change(
        "0.31.0", "release source", "waiting requests that hold KV blocks go before all others"
    )
    drops_output_of_ended_turns: bool = change(
        "0.31.0", "release source", "output in flight when a session's turn ends is dropped"
    )
    takes_max_tokens_of_chunks: bool = change(
        "0.31.0", "release source", "each turn of a session has its own length"
    )
    drains_when_paused: bool = change(
        "0.32.0", "release source", "a pause still admits requests that hold KV blocks"
    )
    keeps_decoded_of_sessions: bool = change(
        "0.33.0", "release source", "a session that lost its KV blocks keeps its tokens"
    )
    keeps_sessions_that_waited: bool = change(
        "0.33.0", "release source", "a session goes on that was preempted when its turn ended"
    )
    uncounts_trimmed: bool = change(
        "0.33.0", "release source", "tokens behind the one that ends a turn are not computed ones"
    )
    restarts_sessions: bool = change(
        None, "no thread found", "a reset that lets requests start over includes waiting sessions"
    )
    releases_between_turns: bool = change(
        None, "no thread found", "a session whose turn has ended holds no encoder output"
    )
    sorts_continued_sessions: bool = change(
        None, "no thread found", "a session that goes on takes the place of its new arrival"
    )
    pads_within_threshold: bool = change(
        None, "vLLM PR #54028", "no padding where one request may not have so many tokens"
    )
    takes_after_blocks: bool = change(
        None, "no thread found", "items are claimed, and others evicted, once KV blocks are had"
    )
    passes_sparse_items: bool = change(
        None, "no thread found", "an item without an embedding in the window is not admitted"
    )
    runs_urgent_first: bool = change(
        None, "no thread found", "running requests go on in order of priority"
    )
    spares_whole_items: bool = change(
        None, "no thread found", "an item that must be whole may exceed the long-prefill threshold"
    )
    refuses_long_whole_items: bool = change(
        None,
        "no thread found",
        "an item that must be whole, and is longer than a step, is refused",
    )
    sends_all_items: bool = change(
        FIRST_MODELLED,
        "vLLM PR #52041",
        "workers are told of a request with all its items, those in its cached prefix too",
        until="0.29.0",
    )
    ends_at_whole_items: bool = change(
        None, "no thread found", "a chunk ends where an item that must be whole begins, not before"
    )
    tells_known_tokens: bool = change(
        "0.11.1", "release source", "workers are told all tokens of a request that a step left out"
    )
    has_second_runner: bool = change(
        "0.12.0", "release source", "a second model runner is told anew of whom a step resumes"
    )
    spares_second_runner_tokens: bool = change(
        "0.24.0", "release source", "the second model runner is not told tokens that it has"
    )
    tells_preemptions_by_reset: bool = change(
        "0.25.0", "release source", "workers are told whom a reset has preempted"
    )
    tells_loads_within_step: bool = change(
        "0.29.0", "release source", "workers are told whether KV is loaded within the step"
    )
    sends_items_again: bool = change(
        "0.33.0",
        "release source",
        "the second model runner drops the data of items, and is sent it again to encode them",
    )
    skips_unused_drafts: bool = change(
        "0.33.0", "release source", "its drafter rests when nobody can use what it proposes"
    )

    @classmethod
    def ideal(cls) -> "Semantics":
        """Everything that the contracts demand."""
        return cls()

    @classmethod
    def meaning(cls, name: str) -> tuple[str, str]:
        """What a flag says, and where the change is told of."""
        (flag,) = (flag for flag in fields(cls) if flag.name == name)
        return flag.metadata["sentence"], flag.metadata["thread"]

    @classmethod
    @lru_cache
    def of_vllm(cls, release: str) -> "Semantics":
        """The decisions of one release.

        A release that is not modelled itself is warned of: the semantics are those of the newest
        one before it.

        Raises:
            NotModelled: the release keys entries per request, before 0.10.2.
            ValueError: not a release number.
        """
        key = release_key(release)
        if key < release_key(FIRST_MODELLED):
            raise NotModelled(
                f"vLLM {release} keeps one entry per request and input; the reference models "
                f"{FIRST_MODELLED} and later: run it with contracts only"
            )
        if not is_modelled(release):
            warnings.warn(unknown(release), UnknownRelease, stacklevel=2)
        return cls(**{flag.name: _holds(key, flag.metadata) for flag in fields(cls)})


@lru_cache
def offered_by(release: str | None) -> Semantics:
    """The semantics by which it is known what a release offers: those of the first that is modelled
    stand for earlier ones, the ideal for none."""
    if release is None:
        return Semantics.ideal()
    try:
        return Semantics.of_vllm(release)
    except NotModelled:
        return Semantics.of_vllm(FIRST_MODELLED)


def _holds(release: tuple[int, ...], changes: Mapping[str, Any]) -> bool:
    """Whether a flag is true of a release: as its last change before it says."""
    is_past = [
        changes[name] is not None and release >= release_key(changes[name])
        for name in ("since", "until", "again")
    ]
    return is_past[0] and (not is_past[1] or is_past[2])
