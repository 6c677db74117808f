"""What refutes a claim about keys: each check returns what is wrong with a text, or None."""

from dataclasses import replace
from functools import cache

from cacheproof.proofs.keys import (
    block_chain,
    block_extra,
    block_items,
    block_witnesses,
    decoding,
    identifiers,
    vllm_media,
)
from cacheproof.proofs.keys.ambiguity import LayoutReader
from cacheproof.proofs.keys.block_extra import Hashing
from cacheproof.proofs.keys.media import Encoding, Texts
from cacheproof.proofs.keys.texts import text_of
from cacheproof.reference import block_hash, media_hash_of_vllm, media_identifier
from cacheproof.reference.media_hash_of_vllm import ReleaseStream
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.block_keys import BlockKeySemantics
from cacheproof.reference.semantics.media import MediaSemantics
from cacheproof.spec.versions import release_key

MIXES_EMBEDS_SINCE = "0.19.0"
"""Requests of 0.22.1 may mix tokens and embeddings, those of 0.18.1 may not."""


def decoding_failure(seed: int, texts: Texts) -> str | None:
    """What fails of: a node that is decoded where its encoding lies is that node, and all that is
    hashed is such nodes."""
    failed = decoding.failures(texts.stream, seed) or Encoding(texts).mistaken()
    return ", ".join(failed) or None


def media_confusion(reader: LayoutReader, texts: Texts) -> str | None:
    """What one stream of the media hash can be read as, two ways."""
    encoding = Encoding(texts)
    ambiguity = reader.ambiguity(encoding.layouts())
    if ambiguity is None and not encoding.media_with_bytes():
        return "media with their bytes and the media alone"
    if taken := encoding.taken():
        return f"{', '.join(taken)}: not refused"
    return None if ambiguity is None else str(ambiguity)


def identifier_confusion(seed: int, text: str) -> str | None:
    """Kinds of items with one identifier."""
    ambiguity = LayoutReader(seed, whole=True).ambiguity(
        identifiers.layouts(MediaSemantics(), text)
    )
    return None if ambiguity is None else str(ambiguity)


def shared_identifiers(semantics: MediaSemantics, seed: int, text: str) -> str | None:
    """Pairs of items with one identifier, checked by running the reference on them.

    Raises:
        AssertionError: their identifiers are not equal.
    """
    found = list(identifiers.pairs(semantics, text, seed))
    if text == text_of(media_identifier):
        for pair in found:
            one, other = (
                media_identifier.identifier(*item, semantics) for item in (pair.first, pair.second)
            )
            assert one == other, pair
    return "; ".join(map(str, found)) or None


def beside_failure(seed: int, text: str) -> str | None:
    """What fails of: blocks with equal keys have the same beside their tokens. The keys are those
    that the hasher makes of the extra keys, and those name the items of a block."""
    ideal = BlockKeySemantics()
    return beside_confusion(seed, Hashing(ideal), text) or growth_failure(ideal, seed, text)


def prefix_failure(seed: int, text: str) -> str | None:
    """What fails of: requests share a block only if they agree on all that determines it."""
    return chain_failure(seed, text) or beside_failure(seed, text)


@cache
def beside_confusion(seed: int, hashing: Hashing, text: str) -> str | None:
    """Two blocks with equal extra keys that have not the same beside their tokens."""
    for first in (True, False):
        found = block_extra.layouts(replace(hashing, text=text), first=first)
        if block_extra.items_confused(found, seed) is not None:
            return "two items with one key"
        for agreement in block_extra.agreements(found, seed):
            return " as ".join(agreement.kinds)
    return None


@cache
def chain_failure(seed: int, text: str) -> str | None:
    """What fails of: equal keys mean equal prefixes."""
    chain = block_chain.chain(text, seed)
    failed = list(chain.failed)
    for ahead, covered in chain.covered.items():
        failed += block_chain.unequal_prefixes(covered, ahead=ahead, seed=seed)
    return ", ".join(dict.fromkeys(failed)) or None


def growth_failure(semantics: BlockKeySemantics, seed: int, text: str) -> str | None:
    """What fails of: hashing on gives the keys that hashing from nothing gives."""
    failed = block_chain.chain(text, seed, semantics).failed
    return ", ".join(dict.fromkeys(failed)) or items_failure(semantics, seed, text)


@cache
def items_failure(semantics: BlockKeySemantics, seed: int, text: str) -> str | None:
    """What fails of: a key names the items of its block, wherever hashing began."""
    return ", ".join(block_items.failures(semantics, text, seed)) or None


def collisions(semantics: MediaSemantics, seed: int, text: str) -> str | None:
    """Pairs of calls with one stream, checked by running the reference on them.

    Raises:
        AssertionError: its streams are not those that were worked out.
    """
    found = list(vllm_media.pairs(semantics, text, seed))
    if text == text_of(media_hash_of_vllm):
        for pair in found:
            for call in (pair.first, pair.second):
                assert b"".join(ReleaseStream(semantics).arguments(call)) == pair.stream, pair
    return "; ".join(map(str, found)) or None


def frames_confusion(semantics: MediaSemantics, reader: LayoutReader, text: str) -> str | None:
    """What frames of a release can be read as, two ways."""
    ambiguity = reader.ambiguity(vllm_media.ReleaseEncoding(semantics, text).frames())
    return None if ambiguity is None else str(ambiguity)


def hashing_of(release: str) -> Hashing:
    """How a release makes the keys of blocks."""
    mixes = release_key(release) >= release_key(MIXES_EMBEDS_SINCE)
    return Hashing(Semantics.of_vllm(release).block_keys, mixes=mixes)


def shared_keys(seed: int, hashing: Hashing, text: str) -> str | None:
    """Pairs of blocks with one key, checked by running the reference on them.

    Raises:
        AssertionError: their keys are not equal.
    """
    if text != text_of(block_hash):
        return beside_confusion(seed, hashing, text)
    found = list(block_witnesses.pairs(hashing, seed))
    for pair in found:
        one, other = (
            block_witnesses.keys(block, hashing.semantics) for block in (pair.first, pair.second)
        )
        assert one == other, pair
    return "; ".join(map(str, found)) or None
