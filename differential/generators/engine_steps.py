"""What comes to an engine, whatever its model: requests now and then, among many steps."""

from collections.abc import Callable, Iterator
from random import Random

from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Abort, Schedule
from cacheproof.differential.traces.trace import AnyEvent

BLOCK_SIZE = 32
_MOST_STEPS = 400


def under_pressure(
    random: Random, waiting: int, add: Callable[[str], Add], reset: Callable[[], AnyEvent]
) -> Iterator[AnyEvent]:
    """`waiting` requests, which `add` makes by name, among steps, aborts and what `reset` draws."""
    live: list[str] = []
    for number in range(_MOST_STEPS):
        while waiting and (not live or random.random() < 0.35):
            waiting -= 1
            live.append(f"r{len(live)}")
            yield add(live[-1])
        if random.random() < 0.02:
            yield Abort(random.choice(live))
        if random.random() < 0.01:
            yield reset()
        yield from (Schedule(), Update())
        if not waiting and number > 60 and random.random() < 0.03:
            break
