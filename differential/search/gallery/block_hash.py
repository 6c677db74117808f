"""Hashers of blocks, each with one fault."""

from cacheproof.differential.search.gallery.variant import (
    AS_NEWEST,
    Variant,
    hasher_with,
    hasher_without,
)
from cacheproof.differential.targets.host.faults import block_hash as block_hash_faults

VARIANTS: tuple[Variant, ...] = (
    hasher_without(
        "item-without-offset",
        "A block key does not say where in the block an item stands (as before PR #36708).",
        "block_keys.keys_item_offsets",
        "block_keys.tags_block_keys",
    ),
    hasher_without(
        "untagged-keys",
        "A block key does not say which of its names is a salt (as before vLLM 0.31.0).",
        "block_keys.tags_block_keys",
        "block_keys.keys_adapter_paths",
    ),
    hasher_without(
        "adapter-by-name",
        "A block key holds the adapter's name and not its path (as before vLLM 0.31.0).",
        "block_keys.keys_adapter_paths",
    ),
    hasher_without(
        "only-the-last-item",
        "A block that fills while decoding names the last item alone (as before vLLM 0.31.0).",
        "block_keys.finds_items_when_grown",
    ),
    hasher_without(
        "item-behind-its-end",
        "A block that begins where the last item ended names it while decoding (as before 0.19.0).",
        "block_keys.finds_items_when_grown",
        "block_keys.passes_items_at_boundary",
    ),
    hasher_without(
        "discarded-token-stays",
        "The key of a block that a discarded token filled stays when the prompt goes on (as before "
        "vLLM 0.32.0).",
        "block_keys.drops_keys_of_discarded",
    ),
    hasher_without(
        "embeds-without-mask",
        f"A block key does not say which positions are embeddings ({AS_NEWEST}).",
        "block_keys.keys_embed_masks",
    ),
    hasher_without(
        "embeds-forgotten",
        "A block key does not cover prompt embeddings (as vLLM 0.11.0).",
        "block_keys.keys_prompt_embeds",
    ),
    hasher_without(
        "pickled-keys",
        f"Keys are hashes of pickles, which tell shared objects from equal ones ({AS_NEWEST}).",
        "block_keys.keys_by_content",
    ),
    hasher_with(block_hash_faults.forgets_items),
    hasher_with(block_hash_faults.forgets_the_prefix),
    hasher_with(block_hash_faults.hashes_growth_otherwise),
    hasher_with(block_hash_faults.never_repeats),
    hasher_with(block_hash_faults.leaves_the_last_key_out),
)
