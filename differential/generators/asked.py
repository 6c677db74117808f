"""What requests to an engine ask for beside their prompt, drawn from a source of its own: without
it a seed's trace is what it was."""

from collections.abc import Iterable
from random import Random
from typing import Literal

from cacheproof.differential.traces.base import Adapter
from cacheproof.differential.traces.engine import EngineConfig, Reload
from cacheproof.differential.traces.manager import Reset
from cacheproof.differential.traces.scheduler import Abort, ResetPrefix
from cacheproof.differential.traces.trace import AnyEvent

Asked = Literal[
    "salts",
    "adapters",
    "tower adapters",
    "weights",
    "embeddings",
    "embedded prompts",
    "priority",
    "whole items",
    "sessions",
]
"""What requests of a trace ask for beside their prompt."""
SALTS = (None, "tenant 1", "tenant 2")
ADAPTERS = (
    None,
    *(Adapter(f"skill {number}", number, f"adapter {number}") for number in (1, 2, 3)),
)
VERSIONS = (0, 1, 2)


class Asking:
    """Draws for one trace what its requests ask for, if anything. `random` is the source; `names`
    are the requests so far."""

    def __init__(self, asked: Asked | None, source: str) -> None:
        self._asked = asked
        self.random = Random(source)
        self.names: list[str] = []
        self._version = 0

    @property
    def resets(self) -> float:
        """Share of steps before which caches are reset, or weights change."""
        return 0.04 if self._asked == "weights" else 0.01

    @property
    def aborts(self) -> float:
        """Share of steps before which a request is aborted."""
        return 0.06 if self._asked == "priority" else 0.02

    def salt(self) -> str | None:
        """Salt of the next request, None for none."""
        return self.random.choice(SALTS) if self._asked == "salts" else None

    def adapter(self, config: EngineConfig) -> Adapter | None:
        """Adapter of the next request, None for none."""
        return self.random.choice(ADAPTERS) if config.max_loras else None

    def priority(self, random: Random) -> int:
        """Priority of the next request: ahead of all that came earlier, or as `random` draws it."""
        return -len(self.names) if self._asked == "priority" else random.randint(0, 2)

    def new_weights(self, ended: Iterable[str] = ()) -> tuple[AnyEvent, ...]:
        """Other weights, and all caches reset. Requests in flight start over; those that are
        `ended` do not."""
        self._version = self.random.choice([one for one in VERSIONS if one != self._version])
        resets = ResetPrefix(running=True), Reload(self._version), Reset()
        return *map(Abort, ended), *resets
