"""What a lane says of itself."""

import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.spec.versions import release_key

FIRST_WITH_SECOND = "0.26.0"
"""The first release whose second model runner has a form for CPUs, on which engines run here."""


@dataclass(frozen=True)
class Lane:
    """One kind of workload. `rare` are the states that a search of it must meet; `resized` lets
    an identifier come back with another size; `silent_on` are contracts that it cannot break, or
    hardly ever, and says nothing of; `by_release` traces differ with what a release offers;
    releases before `since`, those from `before` on, and `but` these, offer nothing of it.
    `project` is whose systems it is for, and `program` what its traces have to find on this
    machine. Where it has a `runner`, its traces are for that model runner, whatever was drawn;
    where it has none, every second one of an engine is for the second, if the release has that."""

    name: str
    depth: str
    manager: str
    make: Callable[..., Trace]
    rare: frozenset[str]
    resized: bool = False
    silent_on: frozenset[str] = frozenset()
    by_release: bool = False
    since: str | None = None
    before: str | None = None
    but: frozenset[str] = frozenset()
    project: str = "vllm"
    program: str | None = None
    runner: ModelRunner | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """In another process it is the lane of that name: what makes its traces is no data."""
        from cacheproof.differential.lanes.all_lanes import lane_called

        return lane_called, (self.name, self.runner)

    @property
    def has_runner(self) -> bool:
        """Whether its traces are of a scheduler, whose workers have a model runner. The second
        keeps no store for an encoder-decoder, so that an engine's is under the first alone."""
        if self.runner == "second" and self.depth == "engine":
            return self.manager == "encoder_cache"
        return DEPTHS[self.depth].has_scheduler

    def under(self, runner: ModelRunner | None) -> "Lane":
        """The lane with traces for that model runner; None: for either, as drawn."""
        return replace(self, runner=runner)

    def is_offered_by(self, release: str | None, projects: Collection[str] = ("vllm",)) -> bool:
        """Whether the release of one of these projects has what the lane is about; None: what any
        release has."""
        return self.project in projects and self.needed_instead_of(release) is None

    def needed_instead_of(self, release: str | None) -> str | None:
        """Which releases of its project have what the lane is about, in words, where this one has
        not; None where it has, and where no release is said."""
        if release is None:
            return None
        if self.since is not None and release_key(release) < release_key(self.since):
            return f"{self.project}@{self.since} or later"
        if self.before is not None and release_key(release) >= release_key(self.before):
            return f"{self.project} before {self.before}"
        return f"another release than {release}" if release in self.but else None

    @property
    def lacks(self) -> str | None:
        """The program that is not there; None: its traces can be run here."""
        missing = self.program is not None and shutil.which(self.program) is None
        return self.program if missing else None

    def trace(self, seed: int, release: str | None) -> Trace:
        """The trace of a seed, of what the release offers; None: of all that any does."""
        trace = self.make(seed, release=release) if self.by_release else self.make(seed)
        runner = self.runner or self._in_turn(seed, release)
        return trace if runner is None else trace.under_runner(runner)

    def _in_turn(self, seed: int, release: str | None) -> ModelRunner | None:
        """The model runner of an engine's trace, where nobody has said one."""
        has_second = release is not None and release_key(release) >= release_key(FIRST_WITH_SECOND)
        is_second = seed % 2 and has_second and self.under("second").has_runner
        return "second" if self.depth == "engine" and is_second else None
