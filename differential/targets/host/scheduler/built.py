"""Which managers of an encoder cache a release's schedulers build, and what they do to them.

What is proved of a class says nothing of a scheduler that asks another one, or an object on which
something has been set.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from ..protocol import Event, Illegal
from ..session import run_events
from ..vllm_objects.encoder_cache import EncoderCacheManager
from .scheduler import build
from .session import SchedulerSession


def built_otherwise(trace: Event, expected: Callable[..., EncoderCacheManager]) -> Iterator[str]:
    """How one trace's scheduler differs from one that builds the `expected` class and leaves it as
    it is, in words; while it is built and while it runs. Raises Illegal where the release refuses
    it."""
    config = trace["header"]["config"]
    given = vars(expected(cache_size=config["capacity"])).keys()
    found: list[str] = []

    def look(manager: EncoderCacheManager) -> None:
        if type(manager) is not expected:
            found.append(f"it builds {_name(type(manager))}")
        found.extend(
            f"it sets {name} on its {_name(type(manager))}"
            for name in sorted(vars(manager).keys() - given)
        )

    kit = build(trace, look)
    manager, held = kit.recorder.manager, dict(vars(kit.recorder.manager))
    with suppress(Illegal):  # of a request; what was done until then is looked at
        run_events(SchedulerSession(kit, config), trace["events"])
    yield from found
    now = kit.scheduler.encoder_cache_manager
    if now is not manager or (type(now) is not expected and not found):
        yield f"it puts {_name(type(now))} in the place of its manager while it runs"
    for name, value in vars(manager).items():
        if name not in held or (callable(held[name]) and value is not held[name]):
            yield f"it sets {name} on its {_name(type(manager))} while it runs"


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
