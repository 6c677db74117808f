"""What comes to an engine, whatever its model: requests now and then, among many steps."""

from collections.abc import Callable, Iterable, Iterator
from random import Random

import msgspec

from cacheproof.differential.traces.engine import EngineConfig
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Abort, Schedule
from cacheproof.differential.traces.trace import AnyEvent

BLOCK_SIZE = 32
NUM_DRAFTS = 3
_MOST_STEPS = 400


def with_steps_ahead(config: EngineConfig, random: Random, *, drafter: bool = True) -> EngineConfig:
    """The configuration with two steps in flight, drafts, or both; prompt lookup, which needs the
    tokens on the host, goes with one step. Without a `drafter` there is no other draft."""
    ways = [(True, False, False), (False, True, False)]
    if drafter:
        ways += [(False, True, True), (True, True, True), (True, True, True)]
    is_asynchronous, drafts, has_drafter = random.choice(ways)
    return msgspec.structs.replace(
        config,
        async_scheduling=is_asynchronous,
        num_speculative_tokens=NUM_DRAFTS if drafts else 0,
        drafter=has_drafter,
    )


def under_pressure(
    random: Random,
    waiting: int,
    add: Callable[[str], Add],
    reset: Callable[[], Iterable[AnyEvent]],
    *,
    in_flight: int = 1,
    more: Callable[[], Iterable[AnyEvent]] = tuple,
    resets: float = 0.01,
    aborts: float = 0.02,
) -> Iterator[AnyEvent]:
    """`waiting` requests, which `add` makes by name, among steps; before a share `aborts`
    of those one is aborted, before a share `resets` comes what `reset` draws, and before any what
    there is `more` to come.
    With two steps `in_flight` one is mostly decided on before the output of the one before it."""
    live: list[str] = []
    ahead = 0
    for number in range(_MOST_STEPS):
        while waiting and (not live or random.random() < 0.35):
            waiting -= 1
            live.append(f"r{len(live)}")
            yield add(live[-1])
        if random.random() < aborts:
            yield Abort(random.choice(live))
        if random.random() < resets:
            yield from reset()
        yield from more()
        yield Schedule()
        ahead += 1
        while ahead == in_flight or (ahead and random.random() < 0.1):
            yield Update()
            ahead -= 1
        if not waiting and number > 60 and random.random() < 0.03:
            break
    yield from (Update() for _ in range(ahead))
