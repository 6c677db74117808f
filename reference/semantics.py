"""What upstream changed on purpose: one flag a change, with the release that made it.

`Semantics.ideal()` is what the contracts demand. `Semantics.of_vllm("0.28.0")` is that release,
faults included, so that the reference and the release agree on every decision.
"""

from dataclasses import dataclass, field, fields
from typing import Any

from cacheproof.spec.versions import release_key

FIRST_MODELLED = "0.10.2"


class NotModelled(ValueError):
    """The reference does not model this release; the message names it and what to do."""


def change(since: str | None, thread: str, sentence: str) -> Any:
    """A flag that is true from release `since` on; None: no release has it yet."""
    return field(default=True, metadata={"since": since, "thread": thread, "sentence": sentence})


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
        "0.15.1", "vLLM #18334", "sha256 and sha512 may stand for blake3"
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
    hashes_media_content: bool = change(
        None,
        "no public thread",
        "types, values and frames are hashed, nothing that stands for them",
    )

    @classmethod
    def ideal(cls) -> "Semantics":
        """Everything that the contracts demand."""
        return cls()

    @classmethod
    def of_vllm(cls, release: str) -> "Semantics":
        """The decisions of one release.

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
        flags = {}
        for flag in fields(cls):
            since = flag.metadata["since"]
            flags[flag.name] = since is not None and key >= release_key(since)
        return cls(**flags)
