"""From a seed to a trace for the scheduler of an encoder-decoder model, such as one of speech.

Each request brings one input for the encoder, which is no part of its prompt, and a short decoder
prompt. KV blocks are scarce, for decoders and for cross-attention, and so is the budget of the
encoder: requests wait for it, are preempted and encode their input again. One trace in twenty goes
on, once nothing arrives any more, until all requests have ended.
"""

from random import Random

from cacheproof.differential.generators.scheduler import drafts_accepted, until_all_end
from cacheproof.differential.generators.scheduler_config import with_extras
from cacheproof.differential.traces.base import SCHEMA, Adapter, Group, Item
from cacheproof.differential.traces.manager import Add, Reset, Update
from cacheproof.differential.traces.scheduler import (
    Abort,
    Pause,
    ResetPrefix,
    Schedule,
    SchedulerConfig,
    SchedulerHeader,
)
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.reference.semantics import Semantics, offered_by

VERSION = "encoder-decoder scheduler/1"


def encoder_decoder_trace(seed: int, *, release: str | None = None) -> Trace:
    """The trace of a seed. It asks for nothing that the release does not have; None: of what any
    release has."""
    return _EncoderDecoderTrace(seed, offered_by(release)).build()


class _EncoderDecoderTrace:
    def __init__(self, seed: int, semantics: Semantics) -> None:
        self._seed = seed
        self._semantics = semantics
        self._random = random = Random(f"{VERSION}/{seed}")
        self._longest = random.choice((2, 6, 12, 16))
        extras, runner = (Random(f"{VERSION}/{name}/{seed}") for name in ("extras", "runner"))
        self._config = with_extras(self._draw(), extras, semantics, runner)
        self._pauses = semantics.scheduler.pauses and random.random() < 0.1
        self._runs_out = random.random() < 0.05
        self._events: list[AnyEvent] = []
        self._live: list[str] = []
        self._arrived = 0

    def _draw(self) -> SchedulerConfig:
        """A configuration without chunked prefill and prefix caching: no release has them for such
        a model."""
        random, longest = self._random, self._longest
        block_size = random.choice((4, 8, 16))
        max_model_len = random.choice((16, 32, 48))
        tokens = max_model_len * random.choice((1, 1, 2))
        decoder, cross = (-(-most // block_size) for most in (max_model_len, tokens))
        return SchedulerConfig(
            capacity=longest * random.choice((1, 2, 3)),
            compute_budget=min(tokens, longest * random.choice((1, 2, 3))),
            max_num_batched_tokens=tokens,
            max_num_seqs=random.choice((2, 3, 4, 6)),
            max_model_len=max_model_len,
            block_size=block_size,
            num_blocks=1 + decoder + cross + random.choice((0, 0, 1, 2, 6)),
            prefix_caching=False,
            chunked_prefill=False,
            disable_chunked_mm_input=True,
            policy=random.choice(("fcfs", "priority")),
            async_scheduling=random.random() < 0.4,
            groups=(Group("full", block_size), Group("cross", block_size)),
        )

    def build(self) -> Trace:
        """The events that an engine would send."""
        random = self._random
        in_flight = 0
        limit = 2 if self._config.async_scheduling else 1
        for _ in range(random.choice((8, 16, 40))):
            while len(self._live) < 6 and random.random() < 0.5:
                self._add()
            if in_flight < limit:
                self._events.append(Schedule())
                in_flight += 1
            if self._live and random.random() < 0.06:
                self._events.append(Abort(self._live.pop(random.randrange(len(self._live)))))
            if in_flight == limit or random.random() < 0.5:
                self._events.append(Update(accepts=drafts_accepted(self._config, random)))
                in_flight -= 1
            if random.random() < 0.01:
                self._events.append(Reset())
            if random.random() < 0.02:
                running = self._semantics.scheduler.restarts_running and random.random() < 0.5
                self._events.append(ResetPrefix(running=running))
            if self._pauses and random.random() < 0.2:
                self._events.append(Pause(random.choice(("new", "all", "none", "none"))))
        if self._runs_out:
            self._events += until_all_end(self._config, self._live, self._pauses)
        header = SchedulerHeader(
            schema=SCHEMA,
            manager="encoder_decoder",
            config=self._config,
            seed=self._seed,
            generator=VERSION,
        )
        return Trace(header, tuple(self._events))

    def _add(self) -> None:
        """Three inputs are asked for again and again, which no request may share."""
        random = self._random
        number = random.randrange(3) if random.random() < 0.3 else 3 + self._arrived
        length = random.choice((self._longest, random.randint(1, self._longest)))
        prompt = random.choice((1, 2, 4, 8))
        lora = random.randint(1, 3) if self._config.max_loras else 0
        self._events.append(
            Add(
                f"r{self._arrived}",
                prompt,
                (Item(f"h{number}x{length}", 0, length),),
                max_tokens=random.randint(1, min(20, self._config.max_model_len - prompt)),
                priority=random.choice((0, 0, 1, 2)),
                lora=Adapter(f"adapter-{lora}", lora, f"/adapters/{lora}") if lora else None,
                stop_after=random.randint(1, 4) if random.random() < 0.2 else None,
            )
        )
        self._live.append(f"r{self._arrived}")
        self._arrived += 1
