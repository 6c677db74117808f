"""The encoder cache: what its managers decide, and how a scheduler calls them."""

from dataclasses import dataclass

from cacheproof.reference.semantics.change import NOT_FOUND, change


@dataclass(frozen=True)
class EncoderCacheSemantics:
    """The flags of the encoder cache managers, of their scheduler's calls, and of the worker that
    reads what was encoded."""

    counts_embeds: bool = change(
        "0.13.0",
        "Request.get_num_encoder_embeds",
        "an item takes as many slots as it has embeddings, not as its placeholder is long",
    )
    frees_stalled: bool = change(
        "0.14.0",
        "Scheduler.schedule",
        "a request that gets no KV blocks gives back what its walk claimed",
        thread="vLLM PR #31857",
    )
    resets: bool = change("0.16.0", "EncoderCacheManager.reset", "the encoder cache can be reset")
    delays_decoder_notices: bool = change(
        "0.14.1",
        "EncoderDecoderCacheManager.get_freed_mm_hashes",
        "an encoder-decoder entry is reported as freed a step after its encode",
        thread="vLLM PR #32789",
    )
    releases_on_update: bool = change(
        "0.20.0",
        "Scheduler.update_from_output",
        "what a step consumed is released when its output arrives",
    )
    remembers_claims: bool = change(
        "0.23.0",
        "EncoderCacheManager.get_cached_input_ids",
        "the manager remembers which inputs a request has claimed, and reads none off the cache",
    )
    drops_stale_notices: bool = change(
        "0.28.0",
        "EncoderCacheManager.get_freed_mm_hashes",
        "an entry that is evicted and allocated again in one step is not reported as freed",
        thread="vLLM PR #52482",
    )
    holds_until_last_occurrence: bool = change(
        "0.29.0",
        "EncoderCacheManager.free_encoder_input",
        "an item that a request repeats holds its entry until its last occurrence",
        thread="vLLM PR #54284",
    )
    remembers_sizes: bool = change(
        "0.31.0",
        "EncoderCacheManager.free_encoder_input",
        "the size that is credited is the size that was debited",
    )
    refuses_resized: bool = change(
        "0.31.0",
        "Scheduler._reject_on_encoder_cache_embed_mismatch",
        "a request whose identifier comes back with another size is refused",
    )
    claims_duplicates: bool = change(
        "0.32.0",
        "Scheduler._allocate_encoder_inputs",
        "a second occurrence of an item in one walk is claimed with the first",
    )
    releases_decoder_once: bool = change(
        None,
        "EncoderDecoderCacheManager.free_encoder_input",
        "an encoder-decoder item is credited once, not on every update",
        thread="vLLM #55733",
    )
    drafts_without_rows: bool = change(
        "0.24.0",
        "GPUModelRunner._gather_mm_embeddings",
        "a drafter does without an item that begins behind the step and is not encoded",
        thread="vLLM PR #46315",
    )
    pairs_decoder_rows: bool = change(
        None,
        "GPUModelRunner._preprocess",
        "a decoder attends to what was encoded for its own request",
        thread=NOT_FOUND,
    )
