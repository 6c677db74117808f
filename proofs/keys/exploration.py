"""Python runs the texts on every content of small scopes, each judged by the contracts themselves.

The reader takes no part. A contract that Python breaks there is not proved.
"""

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cacheproof.proofs.keys import scopes
from cacheproof.proofs.keys.media import Texts
from cacheproof.proofs.keys.running import (
    BlockTexts,
    MediaTexts,
    Requested,
    StreamOfRelease,
    identifier_by,
)
from cacheproof.reference.semantics.block_keys import BlockKeySemantics
from cacheproof.reference.semantics.media import MediaSemantics
from cacheproof.spec.block_hash import BlockContent, BlockPair, RequestKeys
from cacheproof.spec.media_hash import DecodedStream, HashedPair
from cacheproof.spec.media_identifier import NamedPair
from cacheproof.spec.registry import by_id

Key = TypeVar("Key", bound=Hashable)
Shown = TypeVar("Shown")


@dataclass(frozen=True)
class ExploredKeys:
    """What came of it: how far it went, and what breaks the contract, in one line; or ""."""

    reach: str
    against: str


TextT = TypeVar("TextT")
Explore = Callable[[TextT], ExploredKeys]


def explored(check: Callable[[TextT], Iterator[str | None]], what: str) -> Explore[TextT]:
    """Goes through all that a check yields, up to the first that breaks the contract. What raises
    breaks it: every content of the scopes has a key."""

    def explore(text: TextT) -> ExploredKeys:
        count = 0
        try:
            for broken in check(text):
                count += 1
                if broken is not None:
                    return ExploredKeys(f"{count:,} {what}", broken)
        except Exception as raised:  # whatever a text that is wrong may raise
            return ExploredKeys(f"{count:,} {what}", f"{type(raised).__name__}: {raised}")
        return ExploredKeys(f"{count:,} {what}", "")

    return explore


def alike(found: Iterator[tuple[Key, Shown]]) -> Iterator[tuple[Shown, Shown] | None]:
    """Each in turn, with the first before it that has the same key, or None."""
    first: dict[Key, Shown] = {}
    for key, shown in found:
        before = first.setdefault(key, shown)
        yield None if before is shown else (before, shown)


# media


def media_apart(texts: Texts) -> Iterator[str | None]:
    """MH-3: two calls with one stream have one content; what has no content has no stream."""
    media = MediaTexts(texts)
    apart = by_id("MH-3").predicate
    found = (
        (media.stream(media.tree(arguments)), (identity, arguments))
        for identity, arguments in scopes.calls()
    )
    for pair in alike(found):
        if pair is None:
            yield None
            continue
        (one, first), (other, second) = pair
        broken = not apart(HashedPair(one == other, True, False, False, False, "digest", "digest"))
        yield f"one stream for {_short(first)} and {_short(second)}" if broken else None
    for value in scopes.refused():
        try:
            media.content(value)
        except TypeError:
            yield None
        else:
            yield f"content of a {type(value).__name__}, which has none"


def media_decoded(texts: Texts) -> Iterator[str | None]:
    """MH-1: what is hashed is what its stream is decoded to, alone and within another stream."""
    media = MediaTexts(texts)
    decodable = by_id("MH-1").predicate
    if decodable(DecodedStream("one", "other")):
        yield "another node decoded than was hashed, which its contract does not mind"
    trees = [(media.tree(arguments), arguments) for _, arguments in scopes.calls()]
    for tree, arguments in trees:
        stream = media.stream(tree)
        decoded = media.decoded(stream)
        end = media.decoded_within(b"\0" + stream + b"N", 1)
        is_within = decodable(DecodedStream((tree, 1 + len(stream)), end))
        broken = not (decodable(DecodedStream(tree, decoded)) and is_within)
        yield f"{_short(arguments)}, which is decoded to {_short(decoded)}" if broken else None


def framed_apart(semantics: MediaSemantics, text: str) -> Iterator[str | None]:
    """MH-3 of None, texts, lists, and mappings from texts, nested, in a release's frames."""
    release = StreamOfRelease(text, semantics)
    apart = by_id("MH-3").predicate
    found = ((release.stream(made.value), made) for made in scopes.framed())
    for pair in alike(found):
        if pair is None:
            yield None
            continue
        same = pair[0].identity == pair[1].identity
        broken = not apart(HashedPair(same, True, False, False, False, "digest", "digest"))
        yield f"one stream for {pair[0]} and {pair[1]}" if broken else None


# identifiers


def identifiers_apart(text: str) -> Iterator[str | None]:
    """ID-1: items named otherwise, or with another adapter, have other identifiers."""
    identifier, ideal = identifier_by(text), MediaSemantics()
    apart = by_id("ID-1").predicate
    found = ((identifier(*named, ideal), named) for named in scopes.names())
    for pair in alike(found):
        if pair is None:
            yield None
            continue
        (item, adapter), (other, another) = pair
        broken = not apart(NamedPair(item == other, adapter == another, "one", "one"))
        yield f"one identifier of {_short(pair[0])} and {_short(pair[1])}" if broken else None


# blocks


def blocks_apart(contract: str, text: str) -> Iterator[str | None]:
    """BK-1 or BK-2: blocks with one key agree on what determines them, they or all before them."""
    blocks = BlockTexts(text, BlockKeySemantics())
    for size, ahead in scopes.SIZES:
        found = _keyed(blocks, size, ahead)
        for pair in alike(found):
            yield None if pair is None else _judged(contract, *pair)


Prefix = tuple[BlockContent, ...]


def _keyed(blocks: BlockTexts, size: int, ahead: int) -> Iterator[tuple[bytes, Prefix]]:
    for requested in scopes.requests():
        contents = _contents(requested, size, ahead)
        keys = blocks.keys(requested, size, ahead)
        if len(keys) != len(contents):
            raise ValueError(f"{len(keys)} keys of {len(contents)} full blocks of {requested}")
        for number, key in enumerate(keys):
            yield key, contents[: number + 1]


def _judged(contract: str, one: Prefix, other: Prefix) -> str | None:
    pair = BlockPair(True, one[-1], other[-1], one, other)
    if by_id(contract).predicate(pair):
        return None
    return f"one key of {_short(tuple(map(tuple, one)))} and {_short(tuple(map(tuple, other)))}"


def _contents(requested: Requested, size: int, ahead: int) -> Prefix:
    """What determines each full block."""
    tokens, found = requested.tokens, []
    for start in range(0, len(tokens) - ahead - size + 1, size):
        end = start + size
        items = tuple(
            (name, offset - start)
            for name, offset, length in requested.items
            if offset < end + ahead and offset + length > start
        )
        rows = requested.rows or (None,) * len(tokens)
        embeds = tuple(row and row.hex() for row in rows[start : end + ahead])
        of = tokens[start:end], tokens[end : end + ahead], items, requested.adapter
        found.append(BlockContent(*of, requested.salt, embeds))
    return tuple(found)


def grown_as_fresh(semantics: BlockKeySemantics, text: str) -> Iterator[str | None]:
    """BK-3: keys of a request that grows, and keys after any number of others, are those of hashing
    it afresh; each names the items that reach into its block."""
    blocks = BlockTexts(text, semantics)
    same = by_id("BK-3").predicate
    if same(RequestKeys(("one",), ("other",))):
        yield "other keys as a request grows, which its contract does not mind"
    for size, ahead in scopes.SIZES:
        for requested in scopes.requests():
            fresh = blocks.keys(requested, size, ahead)
            if len(fresh) != len(_contents(requested, size, ahead)):
                yield f"{len(fresh)} keys of {requested} in blocks of {size}"
            grown = [blocks.keys_one_by_one(requested, size, ahead)]
            for known in range(1, len(fresh)):
                grown.append(fresh[:known] + blocks.keys(requested, size, ahead, fresh[:known]))
            broken = [keys for keys in grown if not same(RequestKeys(_told(keys), _told(fresh)))]
            yield f"other keys of {requested} in blocks of {size} as it grows" if broken else None
            yield _misnamed(blocks, requested, size)


def _told(keys: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(key.decode() for key in keys)


def _misnamed(blocks: BlockTexts, requested: Requested, size: int) -> str | None:
    """A block whose key does not name the items that reach into it, wherever hashing begins."""
    spans = [(start, start + size) for start in range(0, len(requested.tokens), size)]
    for known in range(len(spans)):
        asked = spans[known:]
        wanted = [
            [
                blocks.item_key(name, offset, start)
                for name, offset, length in requested.items
                if offset < end and offset + length > start
            ]
            for start, end in asked
        ]
        if blocks.named(requested, asked, known) != wanted:
            return f"items of {requested} in blocks of {size} behind {known} keys"
    return None


# lists


def lists_apart(is_determined: bool) -> Iterator[str | None]:
    """Lists of up to three elements, for every way to read an element at three places, as a value
    and the place after it: None where a list is read in one way, else in how many, in words. Unless
    `is_determined`, the first place can be read in several ways."""
    places = range(3)
    choices = [(value, after) for value in "ab" for after in places]
    few = [()] if is_determined else [(("a", 0), ("b", 0))]
    for first, second, third in itertools.product(choices, repeat=3):
        read = [{one} for one in (first, second, third)]
        read[0].update(*few)
        for start, count in itertools.product(places, range(4)):
            found = set(_lists(read, start, count))
            broken = len(found) > 1
            yield f"{len(found)} lists of {count} at place {start}" if broken else None


def _lists(
    read: Sequence[set[tuple[str, int]]], start: int, count: int
) -> Iterator[tuple[tuple[str, ...], int]]:
    if count == 0:
        yield (), start
        return
    for value, after in read[start]:
        for rest, end in _lists(read, after, count - 1):
            yield (value, *rest), end


SHOWN = 160
"""Characters of a counterexample's side that are shown."""


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
