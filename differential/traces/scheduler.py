"""Events and header of a trace for a scheduler."""

from typing import Annotated, Literal, get_args

import msgspec

from cacheproof.differential.traces.base import MAX_BLOCKS, Count, Event, Group, Item, Name, Size
from cacheproof.differential.traces.headers import EncoderHeader
from cacheproof.differential.traces.manager import Add, Reset, Update

TransferState = Literal["pending", "ready", "gone", "failed"]


class Chunk(Event, tag="chunk", frozen=True):
    """More prompt for a resumable request: `prompt` tokens, with `items` at offsets in them. They
    follow what the turn before has decoded, except its last token, which was never computed; the
    turn that they begin has `max_tokens` and `stop_after` of its own."""

    request: Name
    prompt: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    items: tuple[Item, ...] = ()
    max_tokens: Size = 1
    stop_after: Size | None = None


class Close(Event, tag="close", frozen=True):
    """No more prompt will come for a resumable request: its last turn is its end."""

    request: Name


class Schedule(Event, tag="schedule", frozen=True):
    """The real scheduler makes a step."""


class Abort(Event, tag="abort", frozen=True):
    """A request is aborted, at any moment."""

    request: Name


class ResetPrefix(Event, tag="reset_prefix", frozen=True):
    """The prefix cache is reset; with `running`, running requests start over."""

    running: bool = False


class Pause(Event, tag="pause", frozen=True):
    """From now on only running requests are scheduled, or none, or all again."""

    mode: Literal["new", "all", "none"]


class Transfer(Event, tag="transfer", frozen=True):
    """From now on an encoder output is, elsewhere, `ready` to be loaded; `pending`, and who needs
    it waits; `gone`; or `failed` to come, and those that waited for it end."""

    identifier: Name
    state: TransferState


class Elsewhere(Event, tag="elsewhere", frozen=True):
    """From now on the KV of the request's first `tokens` tokens can be had elsewhere, or null:
    nobody knows yet. `later`: it is loaded between steps and not within one."""

    request: Name
    tokens: Count | None
    later: bool = False


class Received(Event, tag="received", frozen=True):
    """The load of a request's KV ends. From its block number `failed` on it has failed, where that
    is given; a load within a step ends with it, and only its failure is said."""

    request: Name
    failed: Count | None = None


class Sent(Event, tag="sent", frozen=True):
    """The sending of a request's KV ends."""

    request: Name


SchedulerEvent = (
    Add
    | Chunk
    | Close
    | Schedule
    | Update
    | Abort
    | Reset
    | ResetPrefix
    | Pause
    | Transfer
    | Elsewhere
    | Received
    | Sent
)


class SchedulerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a scheduler is made with. Budgets of the encoder in embeddings, the others in tokens.
    Without `groups` there is one of full attention. Every so many tokens a window's blocks are
    cached, 0 for the end of the prompt alone, None for everywhere
    (`prefix_cache_retention_interval`). With `one_text` every request decodes what prompts of text
    have at that place, and none has a text of its own."""

    capacity: Size
    compute_budget: Size
    max_num_batched_tokens: Size
    max_num_seqs: Size
    max_model_len: Size
    block_size: Size
    num_blocks: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOCKS)]
    prefix_caching: bool = True
    chunked_prefill: bool = True
    disable_chunked_mm_input: bool = False
    policy: Literal["fcfs", "priority"] = "fcfs"
    long_prefill_token_threshold: Count = 0
    async_scheduling: bool = False
    long_prefill_token_threshold_adaptive: bool = False
    max_num_active_seqs: Size | None = None
    scheduler_reserve_full_isl: bool = True
    watermark: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    prefill_schedule_interval: Size = 1
    max_loras: Count = 0
    num_speculative_tokens: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0
    drafter: bool = False
    v2_model_runner: bool = False
    ec_connector: bool = False
    groups: tuple[Group, ...] = ()
    prefix_cache_retention_interval: Count | None = None
    kv_connector: Literal["recompute", "fail"] | None = None
    one_text: bool = False


class SchedulerHeader(EncoderHeader, frozen=True, tag="scheduler"):
    """The first line of a trace for a real scheduler."""

    config: SchedulerConfig


HEADER = SchedulerHeader
EVENTS: tuple[type[SchedulerEvent], ...] = get_args(SchedulerEvent)
