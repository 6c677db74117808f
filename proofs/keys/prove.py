"""Proves the keys of the reference, refutes those of releases that are known to collide."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from cacheproof.proofs.keys import key_modules, validation, validation_of_loops
from cacheproof.proofs.keys.ambiguity import LayoutReader, ambiguous_lists, impossible_lists
from cacheproof.proofs.keys.checks import (
    beside_failure,
    collisions,
    decoding_failure,
    frames_confusion,
    growth_failure,
    hashing_of,
    identifier_confusion,
    media_confusion,
    prefix_failure,
    shared_identifiers,
    shared_keys,
)
from cacheproof.proofs.keys.claim import Claim
from cacheproof.proofs.keys.exploration import (
    Explore,
    blocks_apart,
    explored,
    framed_apart,
    grown_as_fresh,
    identifiers_apart,
    lists_apart,
    media_apart,
    media_decoded,
)
from cacheproof.proofs.keys.media import Texts, merged_tags
from cacheproof.proofs.keys.mutants import (
    Edit,
    harmful,
    mutants,
    shifted_comparison,
    without_a_part,
    without_a_yield,
    without_an_element,
    without_an_operand,
)
from cacheproof.proofs.keys.second_reading import SecondReading
from cacheproof.proofs.keys.texts import text_of
from cacheproof.reference import block_hash, media_hash_of_vllm, media_identifier
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.block_keys import BlockKeySemantics
from cacheproof.spec.evidence import Evidence, digest_of

UNBOUNDED = "unbounded, under an ideal hash"
MEDIA_RELEASES = ("0.11.0", "0.30.0", "0.31.0", NEWEST)
IDENTIFIER_RELEASES = ("0.14.0", NEWEST)
BLOCK_RELEASES = ("0.12.0", "0.18.1", "0.30.0", NEWEST)
KEYED_RELEASES = frozenset((*MEDIA_RELEASES, *IDENTIFIER_RELEASES, *BLOCK_RELEASES))
ENCODES = ("content", "call", "_text", "_shape", "_mapping", "_array", "_tensor", "_image")
DECODES = ("chunks", "_decode")
STREAMS = ("chunks", "_size")
NAMES = ("identifier", "processor_key")
FRAMES = ("_framed", "_chunk")
BESIDE = ("of", "_adapter_keys", "_item_key", "_salt_keys", "_embeds_keys")

_OF_IDENTIFIERS = SecondReading(explored(identifiers_apart, "items"), validation.of_identifiers)


class Own(Protocol):
    """What a release itself says of the scopes: `cacheproof.proving.own_run.OwnRun`."""

    @property
    def of_frames(self) -> Explore: ...

    @property
    def of_growth(self) -> Explore: ...


def prove_keys(seed: int = 0) -> list[Evidence]:
    """Every claim about the reference's keys. `seed` is z3's, and must not matter."""
    return [claim.evidence() for claim in claims(seed)]


def prove_keys_of(release: str, seed: int = 0, own: Own | None = None) -> list[Evidence]:
    """Every claim about a release's keys, one of `KEYED_RELEASES`. Without its `own` run nothing
    holds of it, but is *proved alone*."""
    return [claim.evidence() for claim in claims_of(release, seed, own)]


def claims(seed: int = 0) -> Iterator[Claim]:
    """What is claimed of the reference."""
    yield _lists(seed)
    yield _decoder(seed)
    yield from _media(seed)
    yield _identifiers(seed)
    yield from _blocks(seed)


def claims_of(release: str, seed: int = 0, own: Own | None = None) -> Iterator[Claim]:
    """What is claimed of a release, or refuted of it."""
    if release in MEDIA_RELEASES:
        yield from _media_of_release(release, seed, own)
    if release in IDENTIFIER_RELEASES:
        yield _identifiers_of_release(release, seed)
    if release in BLOCK_RELEASES:
        yield from _blocks_of_release(release, seed, own)


def _of_growth(semantics: BlockKeySemantics) -> SecondReading:
    return SecondReading(
        explored(partial(grown_as_fresh, semantics), "hashings"),
        partial(validation_of_loops.of_growth, semantics),
    )


def _lists(seed: int) -> Claim:
    return Claim(
        "lists",
        "reference",
        "induction over the elements of a list",
        "unbounded",
        True,
        lambda determined: ambiguous_lists(determined=determined, seed=seed),
        [("elements that their places do not determine", False)],
        digest_of([ambiguous_lists]),
        SecondReading(explored(lists_apart, "readings"), impossible=impossible_lists),
    )


def _decoder(seed: int) -> Claim:
    texts = Texts()
    edits = shifted_comparison, without_an_operand, without_a_yield
    changed = harmful(mutants(texts.stream, DECODES, *edits))
    return Claim(
        "MH-1",
        "reference",
        "media_stream.chunks and decode",
        "unbounded",
        texts,
        partial(decoding_failure, seed),
        [(one.name, replace(texts, stream=one.text)) for one in changed],
        digest_of([texts.content, texts.stream]),
        SecondReading(explored(media_decoded, "calls"), validation_of_loops.of_decoder),
        (key_modules.MEDIA_STREAM, key_modules.MEDIA_CONTENT),
    )


def _media(seed: int) -> Iterator[Claim]:
    reader, texts = LayoutReader(seed), Texts()
    encodes = mutants(texts.content, ENCODES, merged_tags, without_an_element)
    streams = mutants(texts.stream, STREAMS, without_an_operand, without_a_yield)
    twins = [
        *((one.name, replace(texts, content=one.text)) for one in harmful(encodes)),
        *((one.name, replace(texts, stream=one.text)) for one in harmful(streams)),
    ]
    yield Claim(
        "MH-3",
        "reference",
        "media_stream.chunks of media_content.call",
        UNBOUNDED,
        texts,
        partial(media_confusion, reader),
        twins,
        digest_of([texts.content, texts.stream]),
        SecondReading(explored(media_apart, "calls"), validation.of_media),
        (key_modules.MEDIA_STREAM, key_modules.MEDIA_CONTENT),
    )


def _identifiers(seed: int) -> Claim:
    text = text_of(media_identifier)
    changed = mutants(text, NAMES, without_a_part)
    return Claim(
        "ID-1",
        "reference",
        "media_identifier.identifier",
        "unbounded",
        text,
        partial(identifier_confusion, seed),
        [(one.name, one.text) for one in harmful(changed)],
        digest_of([text]),
        _OF_IDENTIFIERS,
        (key_modules.MEDIA_IDENTIFIER,),
    )


def _blocks(seed: int) -> Iterator[Claim]:
    text = text_of(block_hash)
    ideal = BlockKeySemantics()
    parts: list[tuple[str, str, Callable[[str], str | None], Sequence[str], Sequence[Edit]]] = [
        ("BK-1", "extra keys", partial(beside_failure, seed), BESIDE,
         (without_an_element, without_a_yield, without_an_operand)),
        ("BK-2", "get_request_block_hasher", partial(prefix_failure, seed), ("hasher",),
         (without_an_element, without_an_operand)),
        ("BK-3", "get_request_block_hasher", partial(growth_failure, ideal, seed),
         ("hasher", "_of_items"), (shifted_comparison,)),
    ]  # fmt: skip
    second = {
        "BK-1": SecondReading(
            explored(partial(blocks_apart, "BK-1"), "blocks"), validation_of_loops.of_blocks
        ),
        "BK-2": SecondReading(
            explored(partial(blocks_apart, "BK-2"), "blocks"), validation_of_loops.of_blocks
        ),
        "BK-3": _of_growth(ideal),
    }
    for contract, subject, check, functions, edits in parts:
        twins = [(one.name, one.text) for one in harmful(mutants(text, functions, *edits))]
        yield Claim(
            contract, "reference", subject, UNBOUNDED, text, check, twins, digest_of([text]),
            second[contract], (key_modules.BLOCK_HASH,),
        )  # fmt: skip


def _media_of_release(release: str, seed: int, own: Own | None) -> Iterator[Claim]:
    semantics, text = Semantics.of_vllm(release).media, text_of(media_hash_of_vllm)
    digest = digest_of([text])
    of_frames = SecondReading(
        explored(partial(framed_apart, semantics), "values"),
        partial(validation.of_frames, semantics),
        of_release=True,
        own=None if own is None else own.of_frames,
    )
    unnamed = next(mutants(text, ("_item",), without_a_yield))
    yield Claim(
        "MH-3",
        f"vllm@{release}",
        "MultiModalHasher",
        UNBOUNDED,
        text,
        partial(collisions, semantics, seed),
        [(unnamed.name, unnamed.text)],
        digest,
        of_frames,
        (key_modules.MEDIA_HASH_OF_VLLM,),
    )
    if semantics.frames_media_chunks:
        changed = mutants(text, FRAMES, without_an_operand, without_a_yield)
        yield Claim(
            "MH-3",
            f"vllm@{release}",
            "MultiModalHasher: None, texts, lists, and mappings from texts",
            UNBOUNDED,
            text,
            partial(frames_confusion, semantics, LayoutReader(seed)),
            [(one.name, one.text) for one in harmful(changed)],
            digest,
            of_frames,
            (key_modules.MEDIA_HASH_OF_VLLM,),
        )


def _identifiers_of_release(release: str, seed: int) -> Claim:
    text = text_of(media_identifier)
    *_, uncoloned = mutants(text, ("identifier",), without_a_part)
    return Claim(
        "ID-1",
        f"vllm@{release}",
        "identifier",
        "unbounded",
        text,
        partial(shared_identifiers, Semantics.of_vllm(release).media, seed),
        [(uncoloned.name, uncoloned.text)],
        digest_of([text]),
        replace(_OF_IDENTIFIERS, of_release=True),
        (key_modules.MEDIA_IDENTIFIER,),
    )


def _blocks_of_release(release: str, seed: int, own: Own | None) -> Iterator[Claim]:
    semantics, text = Semantics.of_vllm(release).block_keys, text_of(block_hash)
    asked = None if own is None else own.of_growth
    second = replace(_of_growth(semantics), of_release=True, own=asked)
    unnamed = next(
        one for one in mutants(text, ("of",), without_an_operand) if "self._adapter" in one.name
    )
    yield Claim(
        "BK-1",
        f"vllm@{release}",
        "extra keys",
        UNBOUNDED,
        text,
        partial(shared_keys, seed, hashing_of(release)),
        [(unnamed.name, unnamed.text)],
        digest_of([text]),
        second,
        (key_modules.BLOCK_HASH,),
    )
    unfenced = next(harmful(mutants(text, ("_of_items",), shifted_comparison)))
    yield Claim(
        "BK-3",
        f"vllm@{release}",
        "items of a block",
        UNBOUNDED,
        text,
        partial(growth_failure, semantics, seed),
        [(unfenced.name, unfenced.text)],
        digest_of([text]),
        second,
        (key_modules.BLOCK_HASH,),
    )
