"""A request between arrival and end: its tokens, and how far its computation is."""

from collections import deque
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any

from cacheproof.reference.request import TokenRequest


class RequestStatus(Enum):
    """Where a request stands with the scheduler; `is_finished` when it has ended."""

    WAITING = "waiting"
    WAITING_FOR_REMOTE_KVS = "loading"
    WAITING_FOR_STREAMING_REQ = "listening"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED_STOPPED = "stopped"
    FINISHED_LENGTH_CAPPED = "length"
    FINISHED_ABORTED = "aborted"
    FINISHED_ERROR = "error"

    def __init__(self, value: str) -> None:
        self.is_finished = self._name_.startswith("FINISHED")


class ScheduledRequest(TokenRequest):
    """A request between arrival and end; arguments as TokenRequest.

    Smaller priorities go first, and among equal ones earlier arrivals. It ends with any of
    `stop_token_ids`, or after `max_tokens`; where it is `resumable`, that ends a turn, and more
    prompt may follow.

    Attributes:
        status: where it stands.
        num_computed_tokens: tokens whose KV exists or is being computed.
        num_in_flight_tokens: those of them in steps whose output is outstanding.
        num_output_placeholders: tokens that outstanding outputs will bring, drafts included.
        spec_token_ids: draft tokens to be verified by its next step.
        num_stale_output_tokens: tokens in flight of steps from before it was preempted.
        drop_stale_output: whether the output of those steps is dropped, not delivered.
        is_prefill_chunk: whether its last step left known tokens to compute.
        num_preemptions: how often it lost its blocks.
        num_cached_tokens: tokens that it had when it first ran, hit or loaded; -1 before.
        load_is_unsure: whether the step that loads some of its KV is in flight.
        last_step: number of the last step that has tokens of it.
        skip_reading_prefix_cache: whether it computes all of its prompt itself.
        shared_prefix_boundary: tokens that another group would have hit, 0 when none would.
        num_discarded_prompt_tokens: those that it lost when a turn ended twice, and still counts.
        streaming_queue: prompt of the turns to come, of a resumable request; None: it shall end.
    """

    def __init__(
        self,
        *args: Any,
        max_tokens: int = 1,
        stop_token_ids: Collection[int] = (),
        priority: int = 0,
        arrival_time: float = 0.0,
        skip_reading_prefix_cache: bool = False,
        resumable: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.max_tokens = max_tokens
        self.stop_token_ids = stop_token_ids
        self.priority = priority
        self.arrival_time = arrival_time
        self.status = RequestStatus.WAITING
        self.num_computed_tokens = 0
        self.num_in_flight_tokens = 0
        self.num_output_placeholders = 0
        self.spec_token_ids: Sequence[int] = ()
        self.num_stale_output_tokens = 0
        self.drop_stale_output = False
        self.is_prefill_chunk = False
        self.num_preemptions = 0
        self.num_cached_tokens = -1
        self.load_is_unsure = False
        self.last_step = 0
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.shared_prefix_boundary = 0
        self.resumable = resumable
        self.num_discarded_prompt_tokens = 0
        self.streaming_queue: deque[ScheduledRequest | None] = deque()

    def __lt__(self, other: "ScheduledRequest") -> bool:
        """Whether this request is the more urgent one."""
        return self.urgency < other.urgency

    @property
    def urgency(self) -> tuple[int, float, str]:
        """The sort key of the priority policy: the smallest goes first."""
        return self.priority, self.arrival_time, self.request_id

    @property
    def num_output_tokens(self) -> int:
        """Tokens decoded so far."""
        known = len(self.all_token_ids) + self.num_discarded_prompt_tokens
        return known - self.num_prompt_tokens

    @property
    def num_tokens_with_spec(self) -> int:
        """Known tokens, and the drafts after them."""
        return len(self.all_token_ids) + len(self.spec_token_ids)

    @property
    def num_confirmed_tokens(self) -> int:
        """Computed tokens that no rejected draft can take back."""
        return self.num_computed_tokens - self.num_output_placeholders

    @property
    def holds_kv_blocks(self) -> bool:
        """Whether it has KV blocks, as far as its progress says."""
        loads = self.status is RequestStatus.WAITING_FOR_REMOTE_KVS
        return self.num_computed_tokens > 0 or loads

    def note_cached_tokens(self, count: int) -> None:
        """Remember how many tokens the request had when it first began to run."""
        if self.num_cached_tokens < 0:
            self.num_cached_tokens = count

    def drop_output(self) -> None:
        """Drop the output of the steps in flight: it does not count, and is not delivered."""
        self.drop_stale_output = True
        self.num_stale_output_tokens = self.num_in_flight_tokens
        self.num_output_placeholders = 0
        self.spec_token_ids = ()
