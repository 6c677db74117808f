"""From a seed to a trace for an engine with Whisper: sounds asked for again and again, under
pressure.

Each request brings one sound, which its decoder attends to in blocks of its own, and a short
prompt. Both kinds of blocks are scarce, and so is what a step may encode: requests wait, are
preempted while they decode and begin anew beside others, with another order of who is encoded.
"""

from random import Random

import msgspec

from cacheproof.differential.generators.asked import Asked, Asking
from cacheproof.differential.generators.engine_steps import (
    BLOCK_SIZE,
    under_pressure,
    with_steps_ahead,
)
from cacheproof.differential.traces.base import SCHEMA, Group, Item
from cacheproof.differential.traces.engine import EngineConfig, EngineHeader
from cacheproof.differential.traces.manager import Add, Reset
from cacheproof.differential.traces.trace import Trace

VERSION = "Whisper/1"
SOUND_ROWS = 50


def whisper_trace(seed: int, *, ahead: bool = False, asked: Asked | None = None) -> Trace:
    """The trace of a seed, for an engine; with steps `ahead` two are in flight, or drafts of prompt
    lookup are verified. Requests are `asked` for with salts or priorities, or weights change.

    Raises:
        ValueError: what is asked for no engine with a Whisper has.
    """
    if asked not in (None, "salts", "priority", "weights"):
        raise ValueError(f"a Whisper is asked for {asked}; expected salts, priority or weights")
    return _WhisperTrace(seed, ahead, asked).build()


class _WhisperTrace:
    def __init__(self, seed: int, ahead: bool, asked: Asked | None) -> None:
        random = self._random = Random(f"{VERSION}/{seed}")
        self._seed, self._asked = seed, asked
        self._asking = Asking(asked, f"{VERSION}/{asked}/{seed}")
        self._config = self._draw()
        if ahead:
            own = Random(f"{VERSION}/ahead/{seed}")
            self._config = with_steps_ahead(self._config, own, drafter=False)
        sounds = [f"sound {number}" for number in range(random.randint(2, 5))]
        self._prompts = [
            (random.choice((1, 4, 12, 26, 30)), random.choice(sounds))
            for _ in range(random.randint(2, 5))
        ]

    def _draw(self) -> EngineConfig:
        """A configuration without chunked prefill and prefix caching: no release has them for such
        a model."""
        random = self._random
        max_model_len = random.choice((56, 64, 96))
        longest, cross = (-(-most // BLOCK_SIZE) for most in (max_model_len, SOUND_ROWS))
        config = EngineConfig(
            capacity=SOUND_ROWS * random.choice((1, 2, 3)),
            compute_budget=SOUND_ROWS * random.choice((1, 2, 4)),
            max_num_batched_tokens=max_model_len * random.choice((1, 1, 2)),
            max_num_seqs=random.choice((2, 3, 4, 6)),
            max_model_len=max_model_len,
            block_size=BLOCK_SIZE,
            num_blocks=1 + longest + cross + random.choice((1, 2, 3, 3, 4, 4, 5, 6, 16)),
            prefix_caching=False,
            chunked_prefill=False,
            disable_chunked_mm_input=True,
            policy="priority" if random.random() < 0.3 else "fcfs",
            groups=(Group("full", BLOCK_SIZE), Group("cross", BLOCK_SIZE)),
            model="whisper",
        )
        if self._asked == "priority":
            config = msgspec.structs.replace(config, policy="priority")
        return config

    def build(self) -> Trace:
        random = self._random
        in_flight = 2 if self._config.async_scheduling else 1
        events = under_pressure(
            random,
            random.randint(4, 12),
            self._add,
            self._asking.new_weights if self._asked == "weights" else lambda: (Reset(),),
            in_flight=in_flight,
            resets=self._asking.resets,
            aborts=self._asking.aborts,
        )
        header = EngineHeader(SCHEMA, "encoder_decoder", self._config, self._seed, VERSION)
        return Trace(header, tuple(events))

    def _add(self, name: str) -> Add:
        random = self._random
        self._asking.names.append(name)
        prompt, sound = random.choice(self._prompts)
        return Add(
            name,
            prompt,
            (Item(sound, 0, SOUND_ROWS),),
            max_tokens=random.randint(1, min(self._config.max_model_len - prompt, 40)),
            priority=self._asking.priority(random),
            salt=self._asking.salt(),
        )
