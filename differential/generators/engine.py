"""From a seed to a trace for an engine: few prompts, asked for again and again under pressure.

A trace has some prompts and several requests of each, so that what one is answered under pressure
can be held against what the other was. Encoder cache, KV blocks and token budget are scarce: chunks
are of one token up, items are evicted and encoded again, and requests are preempted in the middle
of one. In some, items stand close to one another, and steps are large: many are encoded at once,
and give up their places one by one. How long a model's items are is its processor's word: where
they are of any size, there is a row for every square, and of a video that is pruned some are kept.
Where a model is told when each frame of a video is, text stands between the rows of one item.
What requests may ask for beside their prompt is drawn from a source of its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import NamedTuple

import msgspec

from cacheproof.differential.generators.asked import Asked, Asking
from cacheproof.differential.generators.engine_steps import (
    BLOCK_SIZE,
    under_pressure,
    with_steps_ahead,
)
from cacheproof.differential.generators.scheduler_config import most_blocks
from cacheproof.differential.generators.whisper import whisper_trace
from cacheproof.differential.traces.base import SCHEMA, Adapter, Group, Item, Rows
from cacheproof.differential.traces.engine import EngineConfig, EngineHeader, EngineModel
from cacheproof.differential.traces.manager import Add, Reset
from cacheproof.differential.traces.scheduler import Chunk, Close, ResetPrefix
from cacheproof.differential.traces.trace import AnyEvent, Trace

VERSION = "engine/1"
PRUNING_RATE = 0.5
_PICTURE_ROWS = 16
_MOST_ROWS: dict[EngineModel, int] = {"llava": 16, "cohere2_vision": 64, "qwen2_5_vl": 128}
"""Most rows of an item, as a model says: where steps must hold items whole, they must hold as many.
Other models ask for more than engines here are made for."""
_GAPS = (0, 1, 1, 3, 9, 17)
_MOST_ITEMS_OF_SESSION = 8
"""Most items of a session: beyond, a release gives them back in the order of a hash table."""
_WITH_DRAFTER: tuple[EngineModel, ...] = ("llava", "qwen2_5_vl")
"""Models beside which engines can make a drafter that takes rows of items:
docs/explain/runner.md."""
_WINDOW = 16
"""What layers of a Cohere2Vision see, in tokens: one more than its configuration says."""
_TILED_SIZES = ((1, 1), (1, 1), (1, 2), (2, 1), (1, 3), (2, 2), (4, 1))
"""Sizes of pictures in squares, each of which becomes a tile."""


@dataclass
class _Session:
    """How many tokens and items may still come, and how many its first turn decodes at most."""

    room: int
    first_turn: int
    items: int


class _Medium(NamedTuple):
    """What may stand in a prompt: its identifier, and how many tokens its item has; which of those
    get rows, where some do not."""

    identifier: str
    length: int
    is_embed: tuple[bool, ...] | None = None

    @property
    def rows(self) -> int:
        """Rows that its item takes in the encoder cache."""
        return self.length if self.is_embed is None else sum(self.is_embed)


def engine_trace(
    seed: int,
    model: EngineModel = "llava",
    *,
    prunes: bool = False,
    ahead: bool = False,
    asked: Asked | None = None,
) -> Trace:
    """The engine-depth trace of a seed; one that `prunes` drops rows of videos. Where it runs
    `ahead`, two steps are in flight, or drafts are verified, or both."""
    if model == "whisper":
        return whisper_trace(seed, ahead=ahead, asked=asked)
    return _EngineTrace(seed, model, prunes, ahead, asked).build()


def _pictures(random: Random) -> list[_Medium]:
    """Pictures of one size, as LLaVA makes them all."""
    return [_Medium(f"picture {number}", _PICTURE_ROWS) for number in range(random.randint(2, 6))]


def _pictures_and_films(random: Random) -> list[_Medium]:
    """Pictures of any size, and films, which have two frames for every row of squares."""
    return [
        _film(number, random) if random.random() < 0.4 else _picture(number, random)
        for number in range(random.randint(2, 6))
    ]


def _pruned_films(random: Random) -> list[_Medium]:
    """Films, of which some rows are kept, and pictures, of which all are."""
    return [
        _film(number, random, 1 - PRUNING_RATE)
        if random.random() < 0.7
        else _picture(number, random)
        for number in range(random.randint(1, 4))
    ]


def _pictures_and_timed_films(random: Random) -> list[_Medium]:
    """Pictures, and films with three tokens before the rows of each pair of frames and one after
    them."""
    return [
        _timed(_film(number, random)) if random.random() < 0.4 else _picture(number, random)
        for number in range(random.randint(2, 6))
    ]


def _timed(film: _Medium) -> _Medium:
    frames, height, width = map(int, film.identifier.split(" of ")[1].split("x"))
    mask = (False,) * 3 + (True,) * (height * width) + (False,)
    return _Medium(film.identifier, frames * len(mask), frames * mask)


def _tiled_pictures(random: Random) -> list[_Medium]:
    """Pictures of one tile, or of several and a small one of the whole: four rows and a line break
    each, between marks."""
    media = []
    for number in range(random.randint(2, 6)):
        height, width = random.choice(_TILED_SIZES)
        tiles = height * width + (height * width > 1)
        mask = (False, *((True,) * 4 + (False,)) * tiles, False)
        media.append(_Medium(f"picture {number} of {height}x{width}", len(mask), mask))
    return media


def _sounds(random: Random) -> list[_Medium]:
    """Sounds of any length."""
    lengths = [random.randint(1, 24) for _ in range(random.randint(2, 6))]
    return [_Medium(f"sound {number} of {length}", length) for number, length in enumerate(lengths)]


def _embeddings(random: Random) -> list[_Medium]:
    """Rows of embeddings that prompts are given."""
    lengths = [random.randint(1, 12) for _ in range(random.randint(1, 4))]
    return [_Medium(f"embeddings {one} of {rows}", rows) for one, rows in enumerate(lengths)]


def _rows(random: Random) -> list[Rows]:
    """Rows that prompts may be made of: some of each length, of which some are zeros."""
    return [
        Rows(f"embeddings {name} of {length}", 0, length)
        for length in random.sample((1, 4, 15, 32, 40), 2)
        for name in ("0", "1", "zero")
    ]


def _picture(number: int, random: Random) -> _Medium:
    height, width = random.randint(1, 5), random.randint(1, 4)
    return _Medium(f"picture {number} of {height}x{width}", height * width)


def _film(number: int, random: Random, kept: float = 1.0) -> _Medium:
    frames, height, width = random.randint(1, 4), random.randint(1, 3), random.randint(1, 3)
    rows = max(height * width, int(frames * height * width * kept))
    return _Medium(f"film {number} of {frames}x{height}x{width}", rows)


_MEDIA: dict[tuple[EngineModel, bool], Callable[[Random], list[_Medium]]] = {
    ("cohere2_vision", False): _tiled_pictures,
    ("llava", False): _pictures,
    ("qwen2_5_vl", False): _pictures_and_films,
    ("qwen2_5_vl", True): _pruned_films,
    ("qwen2_audio", False): _sounds,
    ("qwen3_vl", False): _pictures_and_timed_films,
}


def _with_windows(config: EngineConfig, random: Random) -> EngineConfig:
    """The configuration with layers of windows before those of full attention, and as many blocks
    more as the longest request holds for them. Their blocks are cached everywhere, or, as releases
    do by default, only where a prompt ends, or now and then as well."""
    windows = Group("sliding_window", BLOCK_SIZE, _WINDOW)
    return msgspec.structs.replace(
        config,
        groups=(windows, Group("full", BLOCK_SIZE)),
        num_blocks=config.num_blocks + most_blocks(windows, config),
        prefix_cache_retention_interval=random.choice((None, 0, 0, BLOCK_SIZE, 2 * BLOCK_SIZE)),
    )


def _encoded_under(lora: Adapter, item: Item) -> Item:
    """The item as encoded under an adapter, whose name is part of what it is called."""
    return msgspec.structs.replace(
        item, identifier=f"{lora.lora_name}:{item.identifier}", mm_hash=item.identifier
    )


class _EngineTrace:
    def __init__(
        self, seed: int, model: EngineModel, prunes: bool, ahead: bool, asked: Asked | None
    ) -> None:
        name = f"{model} that prunes" if prunes else model
        self._ahead = Random(f"{VERSION}/{name}/ahead/{seed}") if ahead else None
        self._asked, self._asking = asked, Asking(asked, f"{VERSION}/{name}/{asked}/{seed}")
        random = self._random = Random(f"{VERSION}/{name}/{seed}")
        self._seed, self._model, self._prunes = seed, model, prunes
        given = _embeddings(random) if asked == "embeddings" else []
        self._media = _MEDIA[model, prunes](random) + given
        if asked == "tower adapters":
            # A step that encodes both kinds, one under an adapter, ends 0.32.0.
            kind = self._media[0].identifier.split()[0]
            self._media = [one for one in self._media if one.identifier.startswith(kind)]
        self._rows = max(medium.rows for medium in self._media)
        # Where marks stand around items, two of them never touch.
        self._apart = 0 if model in ("cohere2_vision", "llava") else 2
        self._close = random.random() < 0.3
        self._config = self._draw()
        room = self._config.max_model_len - 24
        self._prompts = [self._prompt(random, room) for _ in range(random.randint(1, 4))]
        if asked == "sessions":
            asking, most = self._asking.random, self._config.max_model_len // 4
            self._prompts = [self._prompt(asking, 2 * most) for _ in range(asking.randint(1, 3))]
            self._chunks = [self._prompt(asking, most, (0, 1, 1, 2)) for _ in range(3)]
            self._open: dict[str, _Session] = {}
        if asked == "embedded prompts":
            self._rows_given = _rows(self._asking.random)
            drawn = [self._embedded() for _ in range(2)]
            self._embedded_prompts = [*drawn, *map(self._varied, drawn)]

    def _draw(self) -> EngineConfig:
        random, rows = self._random, self._rows
        max_num_seqs = random.choice((1, 2, 3, 4, 6))
        max_model_len = random.choice((96, 128, 160))
        longest = -(-max_model_len // BLOCK_SIZE)
        budget = random.choice((max_num_seqs, 8, 13, 24, 40, 64, 160))
        if self._close:
            budget = random.choice((64, 160))
        config = EngineConfig(
            capacity=random.choice((rows, rows + 5, 2 * rows, 3 * rows)),
            compute_budget=random.choice((4,) if self._close else (1, 2, 4)) * rows,
            max_num_batched_tokens=max(budget, max_num_seqs),
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            block_size=BLOCK_SIZE,
            num_blocks=1 + longest + random.choice((0, 0, 1, 2, 4, 16)),
            prefix_caching=random.random() < 0.6,
            policy="priority" if random.random() < 0.3 else "fcfs",
            long_prefill_token_threshold=random.choice((0, 0, 0, 7)),
            model=self._model,
            video_pruning_rate=PRUNING_RATE if self._prunes else 0.0,
        )
        asking = self._asking.random
        if self._asked == "weights":
            config = msgspec.structs.replace(config, prefix_caching=asking.random() < 0.5)
        elif self._asked == "priority":
            config = msgspec.structs.replace(
                config,
                policy="priority",
                max_num_seqs=asking.choice((3, 4, 6)),
                max_num_batched_tokens=asking.choice((13, 24, 40)),
                compute_budget=4 * rows,
                capacity=4 * rows,
                num_blocks=1 + longest + asking.choice((0, 0, 1)),
                long_prefill_token_threshold=asking.choice((3, 5, 7)),
                prefix_caching=asking.random() < 0.3,
            )
        elif self._asked == "sessions":
            config = msgspec.structs.replace(config, prefix_caching=asking.random() < 0.7)
        elif self._asked == "whole items":
            least = _MOST_ROWS[self._model]
            config = msgspec.structs.replace(
                config,
                disable_chunked_mm_input=True,
                max_num_batched_tokens=max(config.max_num_batched_tokens, least),
            )
        elif self._asked is not None:
            config = msgspec.structs.replace(
                config,
                prefix_caching=True,
                prompt_embeds=self._asked in ("embeddings", "embedded prompts"),
            )
        if self._asked in ("adapters", "tower adapters"):
            config = msgspec.structs.replace(
                config,
                max_loras=asking.choice((1, 2, 2)),
                tower_adapters=self._asked == "tower adapters",
            )
        if self._ahead is not None:
            config = with_steps_ahead(config, self._ahead, drafter=self._model in _WITH_DRAFTER)
        if self._model == "cohere2_vision":
            config = _with_windows(config, Random(f"{VERSION}/{self._model}/windows/{self._seed}"))
        return config

    def _prompt(
        self, random: Random, room: int, numbers: tuple[int, ...] = (0, 1, 1, 2, 2, 3, 4)
    ) -> tuple[int, tuple[Item, ...]]:
        """A prompt's length and items, as many as one of the `numbers` at most; pictures may
        repeat, and may follow one another closely."""
        items: list[Item] = []
        at = random.randint(0, min(20, room))
        for _ in range(random.choice(numbers)):
            start = at + self._apart // 2
            if start + min(medium.length for medium in self._media) > room:
                break
            medium = random.choice(self._media)
            if start + medium.length > room:
                break
            items.append(Item(medium.identifier, start, medium.length, is_embed=medium.is_embed))
            at = start + medium.length + (0 if self._close else random.choice(_GAPS))
            at += self._apart // 2
        if all(item.identifier.startswith("embeddings") for item in items):
            items = []  # a release takes them as items beside others alone
        return min(at, room) + random.randint(1, 8), tuple(items)

    def _embedded(self) -> tuple[int, tuple[Rows, ...]]:
        """The length of a prompt of embeddings, and those: all of it, or with tokens between."""
        random, room = self._asking.random, self._config.max_model_len - 24
        is_whole = random.random() < 0.5
        given: list[Rows] = []
        at = 0
        while not given or random.random() < 0.7:
            start = at if is_whole else at + random.choice((0, 1, 5, 17))
            one = random.choice(self._rows_given)
            if start + one.length > room:
                break
            given.append(msgspec.structs.replace(one, offset=start))
            at = start + one.length
        return at + (0 if is_whole else random.randint(0, 8)), tuple(given)

    def _varied(self, prompt: tuple[int, tuple[Rows, ...]]) -> tuple[int, tuple[Rows, ...]]:
        """The prompt with other rows in the place of its last ones, or the same."""
        length, (*before, last) = prompt
        alike = [one for one in self._rows_given if one.length == last.length]
        other = self._asking.random.choice(alike)
        return length, (*before, msgspec.structs.replace(other, offset=last.offset))

    def build(self) -> Trace:
        random = self._random
        events = under_pressure(
            random,
            random.randint(3, 9),
            self._add,
            self._new_weights
            if self._asked == "weights"
            else lambda: (random.choice((Reset(), ResetPrefix())),),
            in_flight=2 if self._config.async_scheduling else 1,
            more=self._more if self._asked == "sessions" else tuple,
            resets=self._asking.resets,
            aborts=self._asking.aborts,
        )
        header = EngineHeader(SCHEMA, "encoder_cache", self._config, self._seed, VERSION)
        return Trace(header, tuple(events))

    def _new_weights(self) -> tuple[AnyEvent, ...]:
        """Requests in flight start over, or with prefix caching are ended before: one that has hit
        an item and starts over ends releases from 0.29.0 on (faults/stripped-item)."""
        names = self._asking.names if self._config.prefix_caching else ()
        return self._asking.new_weights(ended=names)

    def _more(self) -> Iterator[AnyEvent]:
        """A session gets more prompt, or is closed."""
        random = self._asking.random
        if not self._open or random.random() < 0.7:
            return
        name = random.choice(list(self._open))
        session = self._open[name]
        length, items = random.choice(self._chunks)
        most = random.randint(1, 8)
        session.room -= length + max(most, session.first_turn)  # before 0.31.0 it holds for all
        session.items -= len(items)
        if session.room < 0 or session.items < 0 or random.random() < 0.1:
            del self._open[name]
            yield Close(name)
        else:
            yield Chunk(name, length, items, max_tokens=most)

    def _add(self, name: str) -> Add:
        random = self._random
        self._asking.names.append(name)
        prompt, items = random.choice(self._prompts)
        embeds = None
        if self._asked == "embedded prompts" and self._asking.random.random() < 0.7:
            prompt, embeds = self._asking.random.choice(self._embedded_prompts)
            items = ()
        most = self._config.max_model_len - prompt
        lora = self._asking.adapter(self._config)
        if lora is not None and self._config.tower_adapters:
            items = tuple(map(partial(_encoded_under, lora), items))
        max_tokens = random.randint(1, min(most, 24))
        is_session = self._asked == "sessions" and self._asking.random.random() < 0.7
        if is_session:
            max_tokens = min(max_tokens, 8)
            left = _MOST_ITEMS_OF_SESSION - len(items)
            self._open[name] = _Session(most - max_tokens, max_tokens, left)
        return Add(
            name,
            prompt,
            items,
            max_tokens=max_tokens,
            resumable=is_session,
            priority=self._asking.priority(random),
            lora=lora,
            salt=self._asking.salt(),
            embeds=embeds,
        )
