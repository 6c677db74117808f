"""What the events say of requests, and what the configuration says that their tokens read.

Nothing here is read off a manager's state: it is evidence against one.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from math import gcd, lcm
from typing import Any, NamedTuple

from cacheproof.differential.traces.outcomes import KVConfig, KVEvent
from cacheproof.differential.traces.records import KVCacheCall

Place = tuple[int, int]
"""(group, position in a block table of that group)"""
Named = tuple[str, range | None]
"""What blocks hold beside tokens, and the tokens at which it stands; None: at all of them."""
HITS_REMEMBERED = 4
"""Hits per content that vLLM's collector remembers."""


class SlotsAsked(NamedTuple):
    """The arguments of a call that asks for slots, in tokens and blocks."""

    tokens: int
    hit: int
    external: int
    lookahead: int
    loads: bool
    encoder: int
    must_fit: bool
    reserved: int
    others: bool

    @classmethod
    def of(cls, call: KVCacheCall) -> "SlotsAsked":
        """The arguments in a call's record; those that the release does not take have no effect."""
        count, arguments = call.arguments
        return cls(
            count,
            arguments.get("num_new_computed_tokens", 0),
            arguments.get("num_external_computed_tokens", 0),
            arguments["num_lookahead_tokens"],
            arguments.get("delay_cache_blocks", False),
            arguments.get("num_encoder_tokens", 0),
            arguments.get("full_sequence_must_fit", False),
            arguments.get("reserved_blocks", 0),
            arguments.get("has_scheduled_reqs", False),
        )


def named_by(arrival: KVEvent) -> list[Named]:
    """What an arriving request holds beside tokens: items, a salt, an adapter."""
    items = [(item["identifier"], item["offset"], item["length"]) for item in arrival["items"]]
    adapter = None if arrival["lora"] is None else arrival["lora"]["lora_name"]
    return _named(items, arrival["salt"], adapter)


def named_of(request: Any) -> list[Named] | None:
    """What a scheduler's request holds beside tokens; None for one that does not say, or whose
    prompt was given as embeddings."""
    if not hasattr(request, "mm_features") or getattr(request, "prompt_embeds", None) is not None:
        return None
    items = [
        (one.identifier, one.mm_position.offset, one.mm_position.length)
        for one in request.mm_features or ()
    ]
    adapter = getattr(getattr(request, "lora_request", None), "lora_name", None)
    return _named(items, getattr(request, "cache_salt", None), adapter)


def _named(
    items: Iterable[tuple[str, int, int]], salt: str | None, adapter: str | None
) -> list[Named]:
    return [
        *((name, range(offset, offset + length)) for name, offset, length in items),
        *([] if salt is None else [(salt, range(1))]),
        *([] if adapter is None else [(adapter, None)]),
    ]


class Lives:
    """How long contents stay in their blocks, and what became of those that left. The clock counts
    seconds and stands still within an event.

    Args:
        is_caching: whether a block that is handed out again has lost a content.
    """

    def __init__(self, *, is_caching: bool) -> None:
        self.now = 0
        self._is_caching = is_caching
        self._begun: dict[int, tuple[int, deque[int]]] = {}
        self._gone: list[tuple[float, float, tuple[float, ...]]] = []

    def hit(self, blocks: Collection[int]) -> None:
        """Note that blocks are found by a request that did not have them."""
        for block in blocks:
            if block in self._begun:
                self._begun[block][1].append(self.now)

    def hand_out(self, blocks: Collection[int]) -> None:
        """Note that blocks get new content."""
        if self._is_caching:
            self.end(blocks)
        self._begun |= {block: (self.now, deque(maxlen=HITS_REMEMBERED)) for block in blocks}

    def end(self, blocks: Collection[int]) -> None:
        """Note that blocks lose their content."""
        for block in blocks:
            if block in self._begun:
                birth, hits = self._begun.pop(block)
                idle = self.now - (hits[-1] if hits else birth)
                gaps = tuple(float(later - earlier) for earlier, later in pairwise(hits))
                self._gone.append((float(self.now - birth), float(idle), gaps))

    def forget(self) -> None:
        """Forget all contents: the cache is reset."""
        self._begun.clear()
        self._gone.clear()

    def take(self) -> tuple[tuple[float, float, tuple[float, ...]], ...]:
        """Contents that have left since the last call, sorted: age, idle time, gaps between
        hits."""
        gone, self._gone = self._gone, []
        return tuple(sorted(gone))


class RequestGhost:
    """One request: its tokens, and how far its computation is.

    Attributes:
        hashes: numbers of its hashes, one for each `hash_block_size` of its tokens.
        named: what its blocks hold beside tokens; None where nobody knows.
        computed: tokens whose KV is there, or is being computed or loaded.
        encoder: encoder tokens that it was admitted with.
        left_out: places that its load needed and got no block for.
        state: waiting, loading, running or preempted.
    """

    def __init__(
        self,
        tokens: int,
        hashes: list[int],
        reads_cache: bool,
        named: Sequence[Named] | None = None,
    ) -> None:
        self.tokens = tokens
        self.hashes = hashes
        self.reads_cache = reads_cache
        self.named = named
        self.computed = 0
        self.encoder = 0
        self.left_out: frozenset[Place] = frozenset()
        self.state = "waiting"
        self.preempted = False
        self.in_flight: list[tuple[int, int | None]] = []
        self._outstanding = 0

    @property
    def certain(self) -> int:
        """Tokens that are known and computed, or being computed; none while they are loaded."""
        return 0 if self.state == "loading" else min(self.computed, self.tokens)

    def names_in(self, tokens: range) -> frozenset[str]:
        """What the block of these tokens holds beside them."""
        return frozenset(
            name
            for name, where in self.named or ()
            if where is None or (where.start < tokens.stop and tokens.start < where.stop)
        )

    def get_slots(self, asked: SlotsAsked) -> None:
        """Note that the request got its slots: it runs, or is loaded first."""
        self.computed += asked.hit + asked.external
        self.encoder = asked.encoder or self.encoder
        if asked.loads:
            self.state = "loading"
            return
        self.state = "running"
        self.computed += asked.tokens
        drafts = self.computed - self.tokens - self._outstanding
        self.in_flight.append((asked.tokens, drafts if drafts >= 0 else None))
        if drafts >= 0:
            self._outstanding += 1 + drafts

    def end_load(self, valid: int) -> None:
        """Note that a load ended with `valid` tokens; the last token of all is computed for its
        logits."""
        self.state = "waiting"
        if valid == 0:
            self.left_out = frozenset()
        # With all tokens there, one is computed again: a step needs its logits.
        self.computed = valid - (valid == self.tokens)

    def end_step(self, accepted: int, grown: tuple[int, Sequence[int], int] | None) -> None:
        """Note that the oldest step ended. `grown`: tokens now, new hashes, drafts; None when it
        sampled nothing."""
        self.in_flight.pop(0)
        if grown is not None:
            self.tokens, hashes, drafts = grown
            self.hashes = [*self.hashes, *hashes]
            self.computed -= max(0, drafts - accepted)
            self._outstanding -= 1 + drafts

    def lose_blocks(self) -> None:
        """Note that the request is preempted."""
        self.computed = 0
        self.left_out = frozenset()
        self.state = "preempted"
        self.preempted = True
        self.in_flight.clear()
        self._outstanding = 0


class LayerGroup:
    """What tokens read in one group of layers; `size` is that of its blocks, in tokens. If it
    `drops`, a drafter reads it or an equal group, and a hit ends a block before what is found."""

    def __init__(self, number: int, config: KVConfig) -> None:
        group = config["groups"][number]
        self.number = number
        self.kind: str = group["kind"]
        self.size: int = group["block_size"]
        self.window: int = group["window"]
        marked = any(one["has_drafter"] for one in config["groups"])
        alike = [
            one
            for one in config["groups"]
            if {**one, "has_drafter": 0} == {**group, "has_drafter": 0}
        ]
        self.drops: bool = config["use_eagle"] and (
            not marked or any(one["has_drafter"] for one in alike)
        )
        self._in_flight_max: int = config["max_in_flight_tokens"]
        self._tokens_max: int = config["max_model_len"]

    def first_read(self, computed: int) -> int:
        """The first block that the next token reads, after `computed` tokens."""
        first = 0
        if self.kind == "sliding_window":
            first = max(0, computed - self.window + 1)
        elif self.kind == "chunked_local":
            first = computed - computed % self.window
        return first // self.size

    def blocks(self, tokens: int) -> int:
        """Blocks that `tokens` tokens fill, the last one perhaps in part."""
        return -(-tokens // self.size)

    @property
    def blocks_max(self) -> int:
        """Most blocks that a request needs at a time."""
        if self.kind == "sliding_window":
            tokens = min(self.window - 1 + self._in_flight_max, self._tokens_max)
            # One more, since a window need not begin where a block does.
            return self.blocks(tokens) + 1
        if self.kind == "chunked_local":
            return self.blocks(min(self.window + self._in_flight_max, self._tokens_max))
        return self.blocks(self._tokens_max)


class KVLayout:
    """The groups of a configuration together.

    Attributes:
        hash_size: tokens that one hash of a request covers more than the one before.
        aligned: where blocks of all groups end together, in tokens.
    """

    def __init__(self, config: KVConfig) -> None:
        self.groups = [LayerGroup(number, config) for number in range(len(config["groups"]))]
        self.hash_size = gcd(*(group.size for group in self.groups))
        self.aligned = lcm(*(group.size for group in self.groups))
        self._tokens_max: int = config["max_model_len"]

    def keys(self, request: RequestGhost) -> dict[str, int]:
        """The keys of the request's prefixes -> how many tokens each covers."""
        return {
            f"{group.number}:{number}": (index + 1) * self.hash_size
            for group in self.groups
            for index, number in enumerate(request.hashes)
        }

    def key(self, request: RequestGhost, place: Place) -> str:
        """The key of the request for a full block at that place; empty when it is not full."""
        group, position = place
        end = (position + 1) * self.groups[group].size // self.hash_size
        return f"{group}:{request.hashes[end - 1]}" if end <= len(request.hashes) else ""

    def places_worth_caching(self, tokens: int, *, dropped: bool = True) -> frozenset[Place]:
        """The places of full attention and of windows that hits within `tokens` tokens read; with
        `dropped`, also those that such hits drop."""
        ends = range(self.aligned, tokens + 1, self.aligned)
        return frozenset(
            (group.number, position)
            for group in self.groups
            if group.kind in ("full", "sliding_window")
            # The longest hit of full attention reads what shorter ones do; a window moves.
            for end in (ends[-1:] if group.kind == "full" else ends)
            for position in range(group.first_read(end), end // group.size + group.drops * dropped)
            if (position + 1) * group.size <= tokens
        )

    def can_be_read(self, place: Place) -> bool:
        """Whether some hit reads the full block at that place, or drops it."""
        number, position = place
        group = self.groups[number]
        # Windows of hits that end later begin after this block.
        ends = range(0, (position + 1) * group.size + group.window + self.aligned, self.aligned)
        return group.kind != "sliding_window" or any(
            group.first_read(end) <= position < end // group.size + group.drops for end in ends
        )

    def places(self, request: RequestGhost, keys: Collection[str]) -> frozenset[Place]:
        """The full blocks of the request that have these keys."""
        return frozenset(
            (group.number, position)
            for group in self.groups
            for position in range(len(request.hashes) * self.hash_size // group.size)
            if self.key(request, (group.number, position)) in keys
        )

    def read_behind(self, computed: int) -> frozenset[Place]:
        """The places that the next token reads, after `computed` tokens; all of them are full."""
        return frozenset(
            (group.number, position)
            for group in self.groups
            for position in range(group.first_read(computed), group.blocks(computed))
        )

    def needed(self, request: RequestGhost, asked: SlotsAsked) -> frozenset[Place]:
        """The places that the tokens asked for read and write, those of the look-ahead included."""
        start = self.start(request, asked)
        slots = self.slots(request, asked)
        encoder = asked.encoder or request.encoder
        return frozenset(
            (group.number, position)
            for group in self.groups
            for position in (
                range(group.blocks(encoder))
                if group.kind == "cross"
                else range(group.first_read(start), group.blocks(slots))
            )
        )

    def start(self, request: RequestGhost, asked: SlotsAsked) -> int:
        """The first token to be computed. A load may bring all; the last one is computed again."""
        start = request.computed + asked.hit + asked.external
        return min(start, request.tokens - 1) if asked.loads else start

    def slots(self, request: RequestGhost, asked: SlotsAsked) -> int:
        """Tokens that have slots once the request gets those that it asks for."""
        start = request.computed + asked.hit + asked.external
        return min(start + asked.tokens + asked.lookahead, self._tokens_max)

    def longest_hit(self, request: RequestGhost, found: Collection[str]) -> int:
        """The longest aligned prefix that leaves a token to compute, and of which all is found that
        is read and that a drafter drops; what is dropped leaves a token too.

        0 beside a window of one token, which reads no block before its own.
        """
        if any(group.window == 1 for group in self.groups):
            return 0
        longest = (request.tokens - 1) // self.aligned * self.aligned
        return next(
            (
                length
                for length in range(longest, 0, -self.aligned)
                if all(
                    self.key(request, place) in found
                    for place in (*self.read_behind(length), *self._dropped(length))
                )
                and all(
                    length + group.size < request.tokens for group in self.groups if group.drops
                )
            ),
            0,
        )

    def is_of_first_blocks(self, longest: int) -> bool:
        """Whether a hit of `longest` tokens lies in the first blocks of a window beside a drafter,
        and these are smaller than another group's: a kind of miss."""
        return any(
            group.kind == "sliding_window"
            and group.drops
            and group.size < self.aligned
            and longest < group.window + group.size
            for group in self.groups
        )

    def _dropped(self, length: int) -> list[Place]:
        """The blocks after a hit that are looked up with it, to be dropped."""
        return [(group.number, length // group.size) for group in self.groups if group.drops]
