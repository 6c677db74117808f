"""Hashers of media, each with one fault."""

from cacheproof.differential.search.gallery.variant import (
    AS_NEWEST,
    Variant,
    media_hasher_with,
    media_hasher_without,
)
from cacheproof.differential.targets.host.faults import media_hash as media_hash_faults

VARIANTS: tuple[Variant, ...] = (
    media_hasher_without(
        "media-without-types",
        f"Values are hashed as their bytes, media as the file that they came from ({AS_NEWEST}).",
    ),
    media_hasher_without(
        "media-end-to-end",
        "Names and values are hashed end to end (as before vLLM 0.31.0).",
        "media.frames_media_chunks",
    ),
    media_hasher_with(media_hash_faults.forgets_forms),
    media_hasher_with(media_hash_faults.forgets_frames),
    media_hasher_with(media_hash_faults.forgets_kinds_of_containers),
    media_hasher_with(media_hash_faults.forgets_image_ids),
    media_hasher_with(media_hash_faults.leans_on_order),
    media_hasher_with(media_hash_faults.leans_on_layout),
    media_hasher_with(media_hash_faults.never_repeats),
    media_hasher_with(media_hash_faults.raises_now_and_then),
)
