"""From a seed to a trace for an engine: few prompts, asked for again and again under pressure.

A trace has some prompts and several requests of each, so that what one is answered under pressure
can be held against what the other was. Encoder cache, KV blocks and token budget are scarce: chunks
are of one token up, items are evicted and encoded again, and requests are preempted in the middle
of one. In some, items stand close to one another, and steps are large: many are encoded at once,
and give up their places one by one. How long a model's items are is its processor's word.
"""

from random import Random

from cacheproof.differential.trace import (
    SCHEMA,
    Abort,
    Add,
    AnyEvent,
    EngineConfig,
    EngineHeader,
    Item,
    Reset,
    ResetPrefix,
    Schedule,
    Trace,
    Update,
)

VERSION = "engine/1"
ITEM_TOKENS = {"llava": 16}
BLOCK_SIZE = 32
_MOST_STEPS = 400


def engine_trace(seed: int, model: str = "llava") -> Trace:
    """The engine-depth trace of a seed."""
    return _EngineTrace(seed, model).build()


class _EngineTrace:
    def __init__(self, seed: int, model: str) -> None:
        random = self._random = Random(f"{VERSION}/{model}/{seed}")
        self._seed = seed
        self._length = ITEM_TOKENS[model]
        self._pictures = [f"picture {number}" for number in range(random.randint(2, 6))]
        self._close = random.random() < 0.3
        self._config = self._draw()
        self._prompts = [self._prompt() for _ in range(random.randint(1, 4))]

    def _draw(self) -> EngineConfig:
        random, length = self._random, self._length
        max_num_seqs = random.choice((1, 2, 3, 4, 6))
        max_model_len = random.choice((96, 128, 160))
        longest = -(-max_model_len // BLOCK_SIZE)
        budget = random.choice((max_num_seqs, 8, 13, 24, 40, 64, 160))
        if self._close:
            budget = random.choice((64, 160))
        return EngineConfig(
            capacity=random.choice((length, length + 5, 2 * length, 3 * length)),
            compute_budget=random.choice((4,) if self._close else (1, 2, 4)) * length,
            max_num_batched_tokens=max(budget, max_num_seqs),
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            block_size=BLOCK_SIZE,
            num_blocks=1 + longest + random.choice((0, 0, 1, 2, 4, 16)),
            prefix_caching=random.random() < 0.6,
            policy="priority" if random.random() < 0.3 else "fcfs",
            long_prefill_token_threshold=random.choice((0, 0, 0, 7)),
        )

    def _prompt(self) -> tuple[int, tuple[Item, ...]]:
        """A prompt's length and items; pictures may repeat, and may follow one another closely."""
        random, length = self._random, self._length
        items: list[Item] = []
        at = random.randint(0, 20)
        room = self._config.max_model_len - 24
        for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4))):
            if at + length > room:
                break
            items.append(Item(random.choice(self._pictures), at, length))
            at += length + (0 if self._close else random.choice((0, 1, 1, 3, 9, 17)))
        return min(at, room) + random.randint(1, 8), tuple(items)

    def build(self) -> Trace:
        random = self._random
        events: list[AnyEvent] = []
        live: list[str] = []
        waiting = random.randint(3, 9)
        for number in range(_MOST_STEPS):
            while waiting and (not live or random.random() < 0.35):
                waiting -= 1
                live.append(f"r{len(live)}")
                events.append(self._add(live[-1]))
            if random.random() < 0.02 and live:
                events.append(Abort(random.choice(live)))
            if random.random() < 0.01:
                events.append(random.choice((Reset(), ResetPrefix())))
            events += (Schedule(), Update())
            if not waiting and number > 60 and random.random() < 0.03:
                break
        header = EngineHeader(SCHEMA, "encoder_cache", self._config, self._seed, VERSION)
        return Trace(header, tuple(events))

    def _add(self, name: str) -> Add:
        random = self._random
        prompt, items = random.choice(self._prompts)
        most = self._config.max_model_len - prompt
        return Add(
            name,
            prompt,
            items,
            max_tokens=random.randint(1, min(most, 24)),
            priority=random.randint(0, 2),
        )
