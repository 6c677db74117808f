"""Proves the keys of the reference, refutes those of releases that are known to collide."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Protocol

from cacheproof.proofs.keys import (
    block_chain,
    block_extra,
    block_items,
    block_witnesses,
    decoding,
    identifiers,
    language,
    validation,
    validation_of_loops,
    vllm_media,
)
from cacheproof.proofs.keys.block_extra import Hashing
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
from cacheproof.proofs.keys.language import Language
from cacheproof.proofs.keys.media import Encoding, Texts, merged_tags
from cacheproof.proofs.keys.mutants import (
    Edit,
    Mutant,
    mutants,
    shifted_comparison,
    without_a_part,
    without_a_yield,
    without_an_element,
    without_an_operand,
)
from cacheproof.proofs.keys.paths import Undecided, Unread
from cacheproof.proofs.keys.readings import Reader, ambiguous_lists, impossible_lists
from cacheproof.proofs.keys.second_reading import SecondReading
from cacheproof.proofs.keys.source import place_of, text_of
from cacheproof.reference import block_hash, media_hash_of_vllm, media_identifier
from cacheproof.reference.media_hash_of_vllm import ReleaseStream
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.block_keys import BlockKeySemantics
from cacheproof.reference.semantics.media import MediaSemantics
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin, digest_of, witnessed
from cacheproof.spec.versions import release_key

UNBOUNDED = "unbounded, under an ideal hash"
MEDIA_RELEASES = ("0.11.0", "0.30.0", "0.31.0", NEWEST)
IDENTIFIER_RELEASES = ("0.14.0", NEWEST)
BLOCK_RELEASES = ("0.12.0", "0.18.1", "0.30.0", NEWEST)
KEYED_RELEASES = frozenset((*MEDIA_RELEASES, *IDENTIFIER_RELEASES, *BLOCK_RELEASES))
MIXES_EMBEDS_SINCE = "0.19.0"
"""Requests of 0.22.1 may mix tokens and embeddings, those of 0.18.1 may not."""
ENCODES = ("content", "call", "_text", "_shape", "_mapping", "_array", "_tensor", "_image")
DECODES = ("chunks", "_decode")
STREAMS = ("chunks", "_size")
NAMES = ("identifier", "processor_key")
FRAMES = ("_framed", "_chunk")
BESIDE = ("of", "_adapter_keys", "_item_key", "_salt_keys", "_embeds_keys")
HARMLESS = {
    "tag m for l in _shape": "a shape is always the second node of its array or tensor",
    "tag S for X in _array": "elements are always the third node of their array",
    "tag S for X in _tensor": "elements are always the third node of their tensor",
    "tag S for X in _image": "pixels are always the third node of their image",
    "no first of first + size in hasher": "nothing is hashed twice: the loop does not start either",
    "no size of first + size in hasher": "nothing is hashed early: the loop does not start either",
    "end_of(items[item]) < start for end_of(items[item]) <= start in _of_items": (
        "an item that is not passed is not named either"
    ),
    "no (yield adapter.lora_int_id) in _adapter_keys": "not the ideal's way",
    "no (yield adapter.lora_name) in _adapter_keys": "not the ideal's way",
    "no feature.identifier of (feature.identifier, offset) in _item_key": "not the ideal's way",
    "no offset of (feature.identifier, offset) in _item_key": "not the ideal's way",
    "no digest of ('prompt_embeds', digest) in _embeds_keys": "not the ideal's way",
    "no 'prompt_embeds' of ('prompt_embeds', digest) in _embeds_keys": "not the ideal's way",
    "no part 1 of adapter ':' key in identifier": "not the ideal's way",
    "no part 2 of adapter ':' key in identifier": "not the ideal's way",
    "no part 3 of adapter ':' key in identifier": "not the ideal's way",
    "no part 4 of len(adapter or '') ':' adapter or '' ':' key in identifier": (
        "the length in front says where the adapter's name ends"
    ),
    "no 'mm' of ('mm', feature.identifier, offset) in _item_key": "no other pair ends in a number",
    "no 'cache_salt' of ('cache_salt', salt) in _salt_keys": "no other extra key is a text",
    "no 'prompt_embeds' of ('prompt_embeds', digest, bytes(embeds.given[start:end])) in "
    "_embeds_keys": "no other extra key is a pair of bytes",
}
"""Changes by which no two contents get one key, and why; that none does is checked as well."""


@dataclass(frozen=True)
class Claim:
    """What is asked of a text and of changed ones. `check` returns what refutes it, or None."""

    contract: str
    target: str
    subject: str
    scope: str
    text: Any
    check: Callable[[Any], str | None]
    twins: Sequence[tuple[str, Any]]
    digest: str
    second: SecondReading
    languages: tuple[Language, ...] = ()

    def evidence(self) -> Evidence:
        """The row of evidence, twins included."""
        started = time.perf_counter()
        outcome, note = self.asked(self.text)
        twins = tuple(
            RedTwin(name, self.asked(changed)[0] is Outcome.REFUTED) for name, changed in self.twins
        )
        row = Evidence(
            self.contract,
            self.target,
            self.subject,
            "proof",
            self.scope,
            outcome,
            note,
            self.digest,
            time.perf_counter() - started,
            twins,
        )
        if outcome is not Outcome.HOLDS:
            return row
        row = witnessed(row, self.second.witnesses(self.text, self.twins))
        return replace(row, seconds=time.perf_counter() - started)

    def asked(self, text: Any) -> tuple[Outcome, str]:
        """What the check says of a text. Of one that is not read nothing is known."""
        try:
            why = self.check(text)
        except Undecided as undecided:
            return Outcome.UNKNOWN, str(undecided)
        except Unread as unread:
            return Outcome.UNKNOWN, self._unread(unread)
        except Exception as failure:  # whatever the text does where it is run on symbols
            why = f"the reader fails: {type(failure).__name__}: {failure}"
            return Outcome.UNKNOWN, f"{place_of(failure, self.languages)}: {why}"
        return (Outcome.HOLDS, "") if why is None else (Outcome.REFUTED, why)

    def _unread(self, unread: Unread) -> str:
        """With its place, where the gate has not said it."""
        why, place = str(unread), place_of(unread, self.languages)
        is_placed = any(why.startswith(f"{one.path}:") for one in self.languages)
        return why if is_placed else f"{place}: no reading of {why}"


_OF_IDENTIFIERS = SecondReading(explored(identifiers_apart, "items"), validation.of_identifiers)


class Own(Protocol):
    """What a release itself says of the scopes: `cacheproof.own_run.OwnRun`."""

    @property
    def of_frames(self) -> Explore: ...

    @property
    def of_growth(self) -> Explore: ...


def _of_growth(semantics: BlockKeySemantics) -> SecondReading:
    return SecondReading(
        explored(partial(grown_as_fresh, semantics), "hashings"),
        partial(validation_of_loops.of_growth, semantics),
    )


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
        (language.MEDIA_STREAM, language.MEDIA_CONTENT),
    )


def decoding_failure(seed: int, texts: Texts) -> str | None:
    """What fails of: a node that is decoded where its encoding lies is that node, and all that is
    hashed is such nodes."""
    failed = decoding.failures(texts.stream, seed) or Encoding(texts).mistaken()
    return ", ".join(failed) or None


def _media(seed: int) -> Iterator[Claim]:
    reader, texts = Reader(seed), Texts()
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
        (language.MEDIA_STREAM, language.MEDIA_CONTENT),
    )


def media_confusion(reader: Reader, texts: Texts) -> str | None:
    """What one stream of the media hash can be read as, two ways."""
    encoding = Encoding(texts)
    ambiguity = reader.ambiguity(encoding.layouts())
    if ambiguity is None and not encoding.media_with_bytes():
        return "media with their bytes and the media alone"
    if taken := encoding.taken():
        return f"{', '.join(taken)}: not refused"
    return None if ambiguity is None else str(ambiguity)


def _identifiers(seed: int) -> Claim:
    text = text_of(media_identifier)
    changed = mutants(text, NAMES, without_a_part)
    return Claim(
        "MH-5",
        "reference",
        "media_identifier.identifier",
        "unbounded",
        text,
        partial(identifier_confusion, seed),
        [(one.name, one.text) for one in harmful(changed)],
        digest_of([text]),
        _OF_IDENTIFIERS,
        (language.MEDIA_IDENTIFIER,),
    )


def identifier_confusion(seed: int, text: str) -> str | None:
    """Kinds of items with one identifier."""
    ambiguity = Reader(seed, whole=True).ambiguity(identifiers.layouts(MediaSemantics(), text))
    return None if ambiguity is None else str(ambiguity)


def _identifiers_of_release(release: str, seed: int) -> Claim:
    text = text_of(media_identifier)
    *_, uncoloned = mutants(text, ("identifier",), without_a_part)
    return Claim(
        "MH-5",
        f"vllm@{release}",
        "identifier",
        "unbounded",
        text,
        partial(shared_identifiers, Semantics.of_vllm(release).media, seed),
        [(uncoloned.name, uncoloned.text)],
        digest_of([text]),
        replace(_OF_IDENTIFIERS, of_release=True),
        (language.MEDIA_IDENTIFIER,),
    )


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
            second[contract], (language.BLOCK_HASH,),
        )  # fmt: skip


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


def harmful(changed: Iterator[Mutant]) -> Iterator[Mutant]:
    """Those that are to be refuted."""
    return (one for one in changed if one.name not in HARMLESS)


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
        (language.MEDIA_HASH_OF_VLLM,),
    )
    if semantics.frames_media_chunks:
        changed = mutants(text, FRAMES, without_an_operand, without_a_yield)
        yield Claim(
            "MH-3",
            f"vllm@{release}",
            "MultiModalHasher: None, texts, lists, and mappings from texts",
            UNBOUNDED,
            text,
            partial(frames_confusion, semantics, Reader(seed)),
            [(one.name, one.text) for one in harmful(changed)],
            digest,
            of_frames,
            (language.MEDIA_HASH_OF_VLLM,),
        )


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


def frames_confusion(semantics: MediaSemantics, reader: Reader, text: str) -> str | None:
    """What frames of a release can be read as, two ways."""
    ambiguity = reader.ambiguity(vllm_media.ReleaseEncoding(semantics, text).frames())
    return None if ambiguity is None else str(ambiguity)


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
        (language.BLOCK_HASH,),
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
        (language.BLOCK_HASH,),
    )


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
