"""Requests built to be nearly equal: each differs from an earlier one in one thing, or in nothing.

All placeholder tokens are the same, prompts are short against the block, and the few names there
are serve as identifier, adapter and salt alike, so that keys which forget something collide.
A request of the same content may get a part of its prompt later, after it has decoded.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from cacheproof.differential.traces.base import SCHEMA, Adapter, Item
from cacheproof.differential.traces.block_hash import (
    EMBEDDED,
    BlockHashConfig,
    BlockHashEvent,
    BlockHashHeader,
    Continue,
    Decode,
    Prompt,
)
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.hash_functions import Algorithm, algorithms
from cacheproof.reference.semantics import NotModelled, Semantics

GENERATOR = "block_hash/2"
PLACEHOLDER = 3
_NAMES = ("name-a", "name-b", "name-c")
_PATHS = ("path-a", "path-b")
_TOKENS = (0, 3, 5, 6)
_ROWS = ("0000000000000000", "0000803f00000000", "000000000000803f")


class _Stop(NamedTuple):
    """A request stops: tokens [start, end) are decoded, and one more that is discarded."""

    start: int
    end: int
    discarded: int


@dataclass(frozen=True)
class _Draft:
    """A text with its items and what it will decode. The text is all prompt, but for the stops."""

    tokens: tuple[int, ...]
    items: tuple[Item, ...]
    lora: Adapter | None
    salt: str | None
    embeds: tuple[str | None, ...] | None
    one_object: bool
    decoded: tuple[int, ...]
    stops: tuple[_Stop, ...] = ()


def block_hash_trace(
    seed: int,
    *,
    items_only: bool = False,
    decodes: bool = True,
    continues: bool = True,
    release: str | None = None,
) -> Trace:
    """The trace of a seed, of what a release offers; None: of what any release that the reference
    models offers.

    `items_only` leaves out adapters, salts, embeddings and shared objects; without `decodes` every
    block is full when its request arrives, without `continues` so is every prompt.
    """
    draw = random.Random(seed)
    size = draw.choice((1, 2, 3, 4, 4, 8))
    offer = _offer(release)
    config = BlockHashConfig(
        size,
        draw.choice((0, 0, 0, 0, 1, 2) if offer.looks_ahead else (0,)),
        draw.choice(offer.algorithms),
    )
    stops = decodes and continues and offer.continues_requests
    first = _fresh(draw, size)
    if items_only:
        first = replace(first, lora=None, salt=None, embeds=None, one_object=False)
    drafts = [first]
    for _ in range(draw.randint(3, 10)):
        draft = draw.choice(drafts)
        if stops and draw.random() < 0.3:
            drafts.append(_stopped(draw, draft, size))
        else:
            drafts.append(_changed(draw, draft, items_only=items_only))
    if not decodes:
        drafts = [replace(draft, decoded=()) for draft in drafts]
    events: list[BlockHashEvent] = []
    for number, draft in enumerate(drafts):
        events += _events(draw, f"r{number}", draft)
    header = BlockHashHeader(SCHEMA, config, seed=seed, generator=GENERATOR)
    return Trace(header, tuple(events))


class _Offer(NamedTuple):
    """What a release offers that another does not."""

    algorithms: tuple[Algorithm, ...]
    looks_ahead: bool = False
    continues_requests: bool = False


def _offer(release: str | None) -> _Offer:
    try:
        semantics = Semantics.ideal() if release is None else Semantics.of_vllm(release)
    except NotModelled:
        return _Offer(("sha256", "sha256_cbor_64bit"))
    return _Offer(
        algorithms(semantics.block_keys),
        semantics.block_keys.looks_ahead,
        semantics.block_keys.continues_requests,
    )


def _events(draw: random.Random, name: str, draft: _Draft) -> Iterator[BlockHashEvent]:
    """What becomes of one request."""
    tokens = _with_placeholders(draft)
    stops = [stop for stop in draft.stops if _fits(stop, draft)]
    starts = [0, *(stop.end for stop in stops)]
    ends = [*(stop.start for stop in stops), len(tokens)]
    shown = [
        tuple(
            Item(item.identifier, item.offset - start, item.length)
            for item in draft.items
            if start <= item.offset < end
        )
        for start, end in zip(starts, ends, strict=True)
    ]
    yield Prompt(
        name,
        tokens[: ends[0]],
        shown[0],
        draft.lora,
        draft.salt,
        draft.embeds,
        draft.one_object,
    )
    for stop, end, items in zip(stops, ends[1:], shown[1:], strict=True):
        yield Decode(name, (*tokens[stop.start : stop.end], stop.discarded))
        yield Continue(name, tokens[stop.end : end], items)
    cut = draw.randint(0, len(draft.decoded)) if draft.decoded else 0
    for part in (draft.decoded[:cut], draft.decoded[cut:]):
        if part:
            yield Decode(name, part)


def _fits(stop: _Stop, draft: _Draft) -> bool:
    """Whether the tokens decoded there hold no item, with prompt before and after them."""
    apart = all(
        item.offset + item.length <= stop.start or item.offset >= stop.end for item in draft.items
    )
    return apart and draft.embeds is None and 0 < stop.start <= stop.end < len(draft.tokens)


def _with_placeholders(draft: _Draft) -> tuple[int, ...]:
    if draft.embeds is None:
        return draft.tokens
    return tuple(
        token if row is None else EMBEDDED
        for token, row in zip(draft.tokens, draft.embeds, strict=True)
    )


def _fresh(draw: random.Random, size: int) -> _Draft:
    length = draw.randint(size, 5 * size + 2)
    items = _items(draw, length) if draw.random() < 0.7 else ()
    tokens = [draw.choice(_TOKENS) for _ in range(length)]
    for item in items:
        tokens[item.offset : item.offset + item.length] = [PLACEHOLDER] * item.length
    return _Draft(
        tokens=tuple(tokens),
        items=items,
        lora=_adapter(draw) if draw.random() < 0.3 else None,
        salt=draw.choice(_NAMES) if draw.random() < 0.3 else None,
        embeds=_embeds(draw, length) if not items and draw.random() < 0.3 else None,
        one_object=draw.random() < 0.05,
        decoded=tuple(draw.choice(_TOKENS) for _ in range(draw.randint(0, 2 * size))),
    )


def _items(draw: random.Random, length: int) -> tuple[Item, ...]:
    """Items spread over the prompt, or crowded at its end, in a block that decoding fills."""
    items: list[Item] = []
    at_end = draw.random() < 0.3
    position = max(0, length - draw.randint(2, 4)) if at_end else draw.randint(0, 2)
    while position < length and len(items) < 4:
        span = 1 if at_end else min(draw.choice((1, 1, 2, 3, 5)), length - position)
        items.append(Item(draw.choice(_NAMES), position, span))
        position += span + draw.choice((0, 1, 1, 2, 4))
    return tuple(items)


def _adapter(draw: random.Random) -> Adapter:
    return _numbered(draw.choice(_NAMES), draw.choice(_PATHS))


def _numbered(name: str, path: str) -> Adapter:
    return Adapter(name, 1 + _NAMES.index(name) * len(_PATHS) + _PATHS.index(path), path)


def _embeds(draw: random.Random, length: int) -> tuple[str | None, ...]:
    rows: list[str | None] = [draw.choice(_ROWS) for _ in range(length)]
    if draw.random() < 0.5:
        for position in range(1, length):
            if draw.random() < 0.4:
                rows[position] = None
    return tuple(rows)


def _changed(draw: random.Random, draft: _Draft, *, items_only: bool) -> _Draft:
    """The draft with one thing changed, or with none."""
    changes = [_same, _cut, _reworded]
    if draft.items:
        changes += [_renamed, _renamed, _shifted]
    if draft.embeds is not None:
        changes += [_row_changed, _row_mistaken, _row_mistaken]
    if not items_only:
        changes += [_salted, _adapted, _salted_as_adapted, _shared]
    return draw.choice(changes)(draw, draft)


def _stopped(draw: random.Random, draft: _Draft, size: int) -> _Draft:
    """The draft with one more stop: the text after it arrives later, often where a block ends."""
    last = len(draft.tokens) - 1
    if last < 1:
        return draft
    end = draw.randint(1, last)
    if draw.random() < 0.5:
        end = min(last, -(-end // size) * size - 1) or 1
    stop = _Stop(max(1, end - draw.choice((0, 0, 1, size))), end, draw.choice(_TOKENS))
    apart = [one for one in draft.stops if one.end < stop.start or stop.end < one.start]
    return replace(draft, stops=tuple(sorted([*apart, stop])))


def _same(draw: random.Random, draft: _Draft) -> _Draft:
    return draft


def _reworded(draw: random.Random, draft: _Draft) -> _Draft:
    """Another token, where no item stands."""
    held = {p for item in draft.items for p in range(item.offset, item.offset + item.length)}
    position = draw.choice([p for p in range(len(draft.tokens)) if p not in held] or [0])
    token = PLACEHOLDER if position in held else draw.choice(_TOKENS)
    tokens = (*draft.tokens[:position], token, *draft.tokens[position + 1 :])
    return replace(draft, tokens=tokens)


def _salted(draw: random.Random, draft: _Draft) -> _Draft:
    return replace(draft, salt=draw.choice((None, *_NAMES)))


def _adapted(draw: random.Random, draft: _Draft) -> _Draft:
    if draft.lora is None or draw.random() < 0.5:
        return replace(draft, lora=draw.choice((None, _adapter(draw))))
    return replace(draft, lora=_numbered(draft.lora.lora_name, draw.choice(_PATHS)))


def _salted_as_adapted(draw: random.Random, draft: _Draft) -> _Draft:
    """The adapter's name as salt."""
    return replace(draft, lora=None, salt=draft.lora.lora_name if draft.lora else None)


def _shared(draw: random.Random, draft: _Draft) -> _Draft:
    """Equal identifiers are one object, or no longer."""
    return replace(draft, one_object=not draft.one_object)


def _renamed(draw: random.Random, draft: _Draft) -> _Draft:
    number = draw.randrange(len(draft.items))
    item = draft.items[number]
    changed = Item(draw.choice(_NAMES), item.offset, item.length)
    return replace(draft, items=(*draft.items[:number], changed, *draft.items[number + 1 :]))


def _shifted(draw: random.Random, draft: _Draft) -> _Draft:
    """One item begins or ends a token elsewhere, on placeholder tokens that stay."""
    number = draw.randrange(len(draft.items))
    item = draft.items[number]
    before = draft.items[number - 1] if number else None
    after = draft.items[number + 1] if number + 1 < len(draft.items) else None
    lowest = before.offset + before.length if before else 0
    highest = after.offset if after else len(draft.tokens)
    start = draw.randint(max(lowest, item.offset - 1), min(highest - 1, item.offset + 1))
    end = draw.randint(start + 1, min(highest, start + item.length + 1))
    changed = Item(item.identifier, start, end - start)
    return replace(draft, items=(*draft.items[:number], changed, *draft.items[number + 1 :]))


def _row_changed(draw: random.Random, draft: _Draft) -> _Draft:
    """Another row, or none, at one position."""
    assert draft.embeds is not None
    position = draw.randrange(len(draft.embeds))
    return _with_row(draft, position, draw.choice((None, *_ROWS)), draft.tokens[position])


def _row_mistaken(draw: random.Random, draft: _Draft) -> _Draft:
    """Token 0 where a zero row was given, or the other way round."""
    assert draft.embeds is not None
    zeros = [number for number, row in enumerate(draft.embeds) if row in (None, _ROWS[0])]
    position = draw.choice(zeros or [0])
    row = _ROWS[0] if draft.embeds[position] is None and not draft.tokens[position] else None
    return _with_row(draft, position, row, 0)


def _with_row(draft: _Draft, position: int, row: str | None, token: int) -> _Draft:
    assert draft.embeds is not None
    rows = (*draft.embeds[:position], row, *draft.embeds[position + 1 :])
    tokens = (*draft.tokens[:position], token, *draft.tokens[position + 1 :])
    return draft if set(rows) == {None} else replace(draft, embeds=rows, tokens=tokens)


def _cut(draw: random.Random, draft: _Draft) -> _Draft:
    """The last prompt tokens are decoded instead, as far as no item reaches into them."""
    cut = draw.randint(1, len(draft.tokens))
    cut = max([cut, *(item.offset + item.length for item in draft.items)])
    rows = draft.embeds[:cut] if draft.embeds is not None else None
    if draft.embeds is not None and any(row is not None for row in draft.embeds[cut:]):
        return draft
    if rows is not None and all(row is None for row in rows):
        return draft
    return replace(
        draft,
        tokens=draft.tokens[:cut],
        embeds=rows,
        decoded=draft.tokens[cut:] + draft.decoded,
    )
