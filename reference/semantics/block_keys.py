"""The keys of KV blocks: what is hashed with a block's tokens, and which blocks have a key."""

from dataclasses import dataclass

from cacheproof.reference.semantics.change import NOT_FOUND, change


@dataclass(frozen=True)
class BlockKeySemantics:
    """The flags of the block hasher and of its hash functions."""

    keys_adapter_names: bool = change(
        "0.11.1",
        "_gen_lora_extra_hash_keys",
        "a block key holds the adapter's name, not its number",
    )
    keys_prompt_embeds: bool = change(
        "0.11.1", "_gen_prompt_embeds_extra_hash_keys", "a block key covers prompt embeddings"
    )
    digests_prompt_embeds: bool = change(
        "0.17.0",
        "_gen_prompt_embeds_extra_hash_keys",
        "a block key holds the digest of its prompt embeddings, not their bytes",
    )
    zeroes_embed_positions: bool = change(
        "0.29.0",
        "Request",
        "a position with a prompt embedding counts as token 0 in any prompt",
    )
    keys_item_offsets: bool = change(
        "0.19.0",
        "_gen_mm_extra_hash_keys",
        "a block key holds where in the block an item starts",
        thread="vLLM PR #36708",
    )
    passes_items_at_boundary: bool = change(
        "0.19.0",
        "_gen_mm_extra_hash_keys",
        "a block key leaves out an item that ends where the block starts",
        thread="vLLM PR #36708",
    )
    tags_block_keys: bool = change(
        "0.31.0",
        "generate_block_hash_extra_keys",
        "each extra key of a block says of what kind it is",
    )
    keys_adapter_paths: bool = change(
        "0.31.0",
        "_gen_lora_extra_hash_keys",
        "a block key holds the adapter's path beside its name",
    )
    finds_items_when_grown: bool = change(
        "0.31.0",
        "_gen_mm_extra_hash_keys",
        "hashing that is continued finds every item of the block",
    )
    offers_xxhash: bool = change(
        "0.13.0", "get_hash_fn_by_name", "XXH3 can replace SHA-256 in block keys"
    )
    continues_requests: bool = change(
        "0.15.0",
        "Scheduler._update_request_as_session",
        "a request's prompt can be continued after the request has decoded",
    )
    drops_keys_of_discarded: bool = change(
        "0.32.0",
        "Scheduler._update_request_as_session",
        "a block key is dropped when a token that it covers is discarded",
    )
    looks_ahead: bool = change(
        "0.33.0",
        "generate_lookahead_block_hash_extra_keys",
        "a block key can cover tokens after its block",
    )
    keys_embed_masks: bool = change(
        None,
        "_gen_prompt_embeds_extra_hash_keys",
        "a block key says which positions embeddings were given for",
        thread="vLLM #56655, PR #56656",
    )
    keys_by_content: bool = change(
        None,
        "hash_block_tokens",
        "equal block keys hash alike, whichever objects they are made of",
        thread=NOT_FOUND,
    )
