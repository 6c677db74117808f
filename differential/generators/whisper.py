"""From a seed to a trace for an engine with Whisper: sounds asked for again and again, under
pressure.

Each request brings one sound, which its decoder attends to in blocks of its own, and a short
prompt. Both kinds of blocks are scarce, and so is what a step may encode: requests wait, are
preempted while they decode and begin anew beside others, with another order of who is encoded.
"""

from random import Random

from cacheproof.differential.generators.engine_steps import BLOCK_SIZE, under_pressure
from cacheproof.differential.traces.base import SCHEMA, Group, Item
from cacheproof.differential.traces.engine import EngineConfig, EngineHeader
from cacheproof.differential.traces.manager import Add, Reset
from cacheproof.differential.traces.trace import Trace

VERSION = "Whisper/1"
SOUND_ROWS = 50


def whisper_trace(seed: int) -> Trace:
    """The trace of a seed, for an engine."""
    return _WhisperTrace(seed).build()


class _WhisperTrace:
    def __init__(self, seed: int) -> None:
        random = self._random = Random(f"{VERSION}/{seed}")
        self._seed = seed
        self._config = self._draw()
        sounds = [f"sound {number}" for number in range(random.randint(2, 5))]
        self._prompts = [
            (random.choice((1, 4, 12, 26, 30)), random.choice(sounds))
            for _ in range(random.randint(2, 5))
        ]

    def _draw(self) -> EngineConfig:
        """Neither chunked prefill nor prefix caching: no release has them for such a model."""
        random = self._random
        max_model_len = random.choice((56, 64, 96))
        longest, cross = (-(-most // BLOCK_SIZE) for most in (max_model_len, SOUND_ROWS))
        return EngineConfig(
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

    def build(self) -> Trace:
        random = self._random
        events = under_pressure(random, random.randint(4, 12), self._add, Reset)
        header = EngineHeader(SCHEMA, "encoder_decoder", self._config, self._seed, VERSION)
        return Trace(header, tuple(events))

    def _add(self, name: str) -> Add:
        random = self._random
        prompt, sound = random.choice(self._prompts)
        return Add(
            name,
            prompt,
            (Item(sound, 0, SOUND_ROWS),),
            max_tokens=random.randint(1, min(self._config.max_model_len - prompt, 40)),
            priority=random.randint(0, 2),
        )
