"""Synthetic traffic: three kinds of requests, each an endless stream that follows from a seed.

What a stream remembers does not grow with its requests. Token ids stand for nothing: what is alike
in two prompts has the same ids, and what is not has others. Sizes of items are in rows, which are
placeholder tokens and embeddings alike.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from itertools import accumulate, count
from typing import NamedTuple

PLACEHOLDER = 0
ANSWER = 1
"""The token that every answer repeats: what is decoded decides nothing here."""
_FIRST_OF_TEXTS = 16
"""Below it are the tokens that texts share."""
_SYSTEM = [2] * 32


class Mention(NamedTuple):
    """An item in a prompt: its number in the traffic, its first token, and its rows."""

    number: int
    offset: int
    rows: int


class SimulatedArrival(NamedTuple):
    """A request: its prompt's token ids, its items in prompt order, and how many tokens it is
    answered with."""

    token_ids: list[int]
    items: tuple[Mention, ...]
    num_output_tokens: int


@dataclass(frozen=True)
class SimulatedTraffic:
    """A kind of traffic.

    Attributes:
        name: what it is called.
        says: what it is like, in a sentence.
        largest_item: rows of the largest item that it can have.
        longest: most tokens of a request, prompt and answer.
        arrivals: requests without end, drawn from a generator of random numbers.
    """

    name: str
    says: str
    largest_item: int
    longest: int
    arrivals: Callable[[random.Random], Iterator[SimulatedArrival]]

    def stream(self, seed: int) -> Iterator[SimulatedArrival]:
        """The requests of a seed."""
        return self.arrivals(random.Random(f"{self.name} {seed}"))


@dataclass
class _Prompt:
    """A prompt in the making."""

    token_ids: list[int] = field(default_factory=list)
    items: list[Mention] = field(default_factory=list)

    def text(self, token: int, length: int) -> None:
        """Add a text: as many times that token."""
        self.token_ids += [token] * length

    def item(self, number: int, rows: int) -> None:
        """Add an item."""
        self.items.append(Mention(number, len(self.token_ids), rows))
        self.token_ids += [PLACEHOLDER] * rows

    def asked(self, num_output_tokens: int) -> SimulatedArrival:
        """The request with what stands there now; the prompt can go on."""
        return SimulatedArrival(self.token_ids[:], tuple(self.items), num_output_tokens)


# Chat
_CONVERSATIONS = 400
_TURNS_MAX = 6
_TURN_TOKENS = 24
_CHAT_ANSWER_TOKENS = 6
_PICTURE_ROWS = (256, 400, 576)


def _chat(rng: random.Random) -> Iterator[SimulatedArrival]:
    """Turns of conversations that go on side by side. A turn repeats all turns and answers before
    it; the first brings a picture, and each later one with even odds."""
    texts, pictures = count(_FIRST_OF_TEXTS), count()
    due = [(rng.random() * _CONVERSATIONS, number) for number in range(_CONVERSATIONS)]
    heapify(due)
    prompts = [_Prompt() for _ in due]
    turns = [0] * len(due)
    while True:
        at, number = due[0]
        if turns[number] == 0:
            prompts[number] = _Prompt(_SYSTEM[:])
            turns[number] = rng.randint(1, _TURNS_MAX)
        prompt = prompts[number]
        if not prompt.items or rng.random() < 0.5:
            prompt.item(next(pictures), rng.choice(_PICTURE_ROWS))
        prompt.text(next(texts), _TURN_TOKENS)
        yield prompt.asked(_CHAT_ANSWER_TOKENS)
        prompt.text(ANSWER, _CHAT_ANSWER_TOKENS)
        turns[number] -= 1
        # So many turns of others pass, on average as many as there are conversations.
        wait = _CONVERSATIONS * (0.4 + 0.6 * rng.expovariate(1))
        heapreplace(due, (at + wait, number))


# Documents
_DOCUMENTS = 20_000
_DOCUMENTS_PER_REQUEST = 3
_DOCUMENT_ROWS = (128, 256, 512)
_QUERY_TOKENS = 16
_DOCUMENTS_ANSWER_TOKENS = 4


def _documents(rng: random.Random) -> Iterator[SimulatedArrival]:
    """Questions about up to three items of a catalogue; how often an item is asked about falls with
    its rank (Zipf's law with exponent 1). Every question is new and stands before the items, so no
    prefix is repeated."""
    weights = list(accumulate(1 / rank for rank in range(1, _DOCUMENTS + 1)))
    numbers = range(_DOCUMENTS)
    for text in count(_FIRST_OF_TEXTS):
        prompt = _Prompt()
        prompt.text(text, _QUERY_TOKENS)
        drawn = rng.choices(numbers, cum_weights=weights, k=rng.randint(1, _DOCUMENTS_PER_REQUEST))
        for number in dict.fromkeys(drawn):
            prompt.item(number, _DOCUMENT_ROWS[number % len(_DOCUMENT_ROWS)])
        yield prompt.asked(_DOCUMENTS_ANSWER_TOKENS)


# Video
_CLIP_ROWS = (2048, 4096, 6144)
_CLIPS_REMEMBERED = 32
_CLIP_SEEN_AGAIN = 0.1
_VIDEO_TEXT_TOKENS = 16
_VIDEO_ANSWER_TOKENS = 8


def _video(rng: random.Random) -> Iterator[SimulatedArrival]:
    """One clip a request, after a text of its own; one in ten shows one of the last clips again."""
    clips = count()
    recent: deque[tuple[int, int]] = deque(maxlen=_CLIPS_REMEMBERED)
    for text in count(_FIRST_OF_TEXTS):
        if recent and rng.random() < _CLIP_SEEN_AGAIN:
            clip = rng.choice(recent)
        else:
            clip = next(clips), rng.choice(_CLIP_ROWS)
            recent.append(clip)
        prompt = _Prompt()
        prompt.text(text, _VIDEO_TEXT_TOKENS)
        prompt.item(*clip)
        yield prompt.asked(_VIDEO_ANSWER_TOKENS)


_CHAT_TURN_MAX = max(_PICTURE_ROWS) + _TURN_TOKENS + _CHAT_ANSWER_TOKENS
TRAFFICS: Mapping[str, SimulatedTraffic] = {
    one.name: one
    for one in (
        SimulatedTraffic(
            "chat",
            "conversations whose turns repeat pictures and prefix",
            max(_PICTURE_ROWS),
            len(_SYSTEM) + _TURNS_MAX * _CHAT_TURN_MAX,
            _chat,
        ),
        SimulatedTraffic(
            "documents",
            "popular items of a catalogue, by Zipf's law, behind a question of their own",
            max(_DOCUMENT_ROWS),
            _QUERY_TOKENS + _DOCUMENTS_PER_REQUEST * max(_DOCUMENT_ROWS) + _DOCUMENTS_ANSWER_TOKENS,
            _documents,
        ),
        SimulatedTraffic(
            "video",
            "one large clip a request, nine in ten never seen before",
            max(_CLIP_ROWS),
            _VIDEO_TEXT_TOKENS + max(_CLIP_ROWS) + _VIDEO_ANSWER_TOKENS,
            _video,
        ),
    )
}
"""Every kind of traffic, by its name."""
