"""Events and header of a trace for an engine, which executes what its scheduler decides."""

from typing import Annotated, Literal, get_args

import msgspec

from cacheproof.differential.traces.base import Event
from cacheproof.differential.traces.headers import EncoderHeader
from cacheproof.differential.traces.manager import Add, Reset, Update
from cacheproof.differential.traces.scheduler import (
    Abort,
    Chunk,
    Close,
    ResetPrefix,
    Schedule,
    SchedulerConfig,
)


class Reload(Event, tag="reload", frozen=True):
    """The model's weights become those of a version, in place; version 0 is what the engine began
    with. Workers drop their encoder outputs with it, and nothing else is reset."""

    version: Annotated[int, msgspec.Meta(ge=0, le=9)]


EngineEvent = Add | Chunk | Close | Schedule | Update | Abort | Reset | ResetPrefix | Reload
EngineModel = Literal["cohere2_vision", "llava", "qwen2_5_vl", "qwen2_audio", "qwen3_vl", "whisper"]

WITH_MROPE: frozenset[EngineModel] = frozenset({"qwen2_5_vl", "qwen3_vl"})
"""Models whose positions have several axes."""


class EngineConfig(SchedulerConfig, frozen=True):
    """What an engine is made with: its scheduler's configuration, which of
    `gpu_runner.tiny_models` it executes, and the share of a video's rows that is not kept.
    `tower_adapters` have weights for what encodes items too. Where it takes `prompt_embeds`, rows
    may be given in the place of tokens. `as_released` leaves in what its host else puts right, so
    that the rest can be compared (docs/explain/runner-requests.md)."""

    model: EngineModel = "llava"
    video_pruning_rate: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    tower_adapters: bool = False
    prompt_embeds: bool = False
    as_released: bool = False


class EngineHeader(EncoderHeader, frozen=True, tag="engine"):
    """The first line of a trace for an engine, which executes what its scheduler decides."""

    config: EngineConfig


HEADER = EngineHeader
EVENTS: tuple[type[EngineEvent], ...] = get_args(EngineEvent)
