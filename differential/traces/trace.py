"""A trace: a header, and what the engine does. It names no answer, so any target can run it."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.block_hash import (
    BlockHashEvent,
    BlockHashHeader,
    Continue,
    Prompt,
)
from cacheproof.differential.traces.encoder_connector import (
    EncoderConnectorEvent,
    EncoderConnectorHeader,
)
from cacheproof.differential.traces.engine import EngineEvent, EngineHeader, Reload
from cacheproof.differential.traces.front_end import FrontEndEvent, FrontEndHeader
from cacheproof.differential.traces.kv_cache import Arrive, KVCacheEvent, KVCacheHeader
from cacheproof.differential.traces.manager import Add, ManagerEvent, ManagerHeader
from cacheproof.differential.traces.media_hash import MediaHashEvent, MediaHashHeader
from cacheproof.differential.traces.media_identifier import (
    MediaIdentifierEvent,
    MediaIdentifierHeader,
)
from cacheproof.differential.traces.scheduler import (
    Chunk,
    SchedulerConfig,
    SchedulerEvent,
    SchedulerHeader,
)

AnyEvent = (
    ManagerEvent
    | SchedulerEvent
    | BlockHashEvent
    | MediaHashEvent
    | KVCacheEvent
    | EncoderConnectorEvent
    | FrontEndEvent
    | MediaIdentifierEvent
    | Reload
)
DecidedEvent = ManagerEvent | EngineEvent | SchedulerEvent
"""Events of a manager of encoder outputs, alone or with what decides what is encoded."""
Arrival = Add | Prompt | Arrive
Showing = Arrival | Chunk | Continue
Header = (
    ManagerHeader
    | SchedulerHeader
    | EngineHeader
    | BlockHashHeader
    | MediaHashHeader
    | KVCacheHeader
    | EncoderConnectorHeader
    | FrontEndHeader
    | MediaIdentifierHeader
)
ModelRunner = Literal["first", "second"]
"""What executes steps on a GPU: vLLM has had two since 0.12.0."""


class Trace(msgspec.Struct, frozen=True):
    """One configuration and the events to run under it."""

    header: Header
    events: tuple[AnyEvent, ...]

    @property
    def depth(self) -> str:
        """How the target is driven: one of `DEPTHS`."""
        return depth_of(self.header)

    @property
    def has_scheduler(self) -> bool:
        """Whether a scheduler takes the decisions; an engine executes them as well."""
        return DEPTHS[self.depth].has_scheduler

    @property
    def runner(self) -> ModelRunner | None:
        """The model runner of a scheduler's workers; None without a scheduler."""
        if not isinstance(self.header.config, SchedulerConfig):
            return None
        return "second" if self.header.config.v2_model_runner else "first"

    def under_runner(self, runner: ModelRunner) -> "Trace":
        """The trace for a scheduler whose workers have that model runner."""
        config = msgspec.structs.replace(self.header.config, v2_model_runner=runner == "second")
        return Trace(msgspec.structs.replace(self.header, config=config), self.events)

    def with_events(self, events: Iterable[AnyEvent]) -> "Trace":
        """The trace with other events under the same configuration."""
        return Trace(self.header, tuple(events))


def depth_of(header: Header) -> str:
    """The tag of a header."""
    return tag_of(type(header))
