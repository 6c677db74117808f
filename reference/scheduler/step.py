"""What one call of schedule() has decided so far, and what it has left to spend."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cacheproof.reference.kv_cache_manager import KVCacheBlocks
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.output import BlockIds


@dataclass(slots=True)
class ScheduleStep:
    """A step in the making.

    Attributes:
        token_budget: tokens that may still be scheduled.
        encoder_compute_budget: embeddings that may still be encoded.
        long_prefill_token_threshold: most tokens of one request, 0 for no bound.
        holds_prefills: whether no prompt is computed, in favour of requests that decode.
        running, new, resumed: scheduled requests by where they come from, in order.
        preempted: requests that lost their blocks, in order.
        loading_victims: those of them that still hold what the step loads for them.
        loras: adapters of the step's requests, by number.
        admits_prefill: whether a request was admitted that has more than one token to compute.
        withdrew_prefill: whether a chunk of a prompt was scheduled and taken back.
        loads_kv: whether KV of a request that was admitted is loaded within the step.
        uses_drafts: whether a request was scheduled that can use drafts proposed after the step.
        num_scheduled_tokens: tokens of every scheduled request.
        new_block_ids: blocks that the workers do not know of, of the requests that have some.
        encoder_inputs, encoder_loads: items to encode, and to load, of the requests that have some.
        spec_decode_tokens: drafts to verify, of the requests that have some.
    """

    token_budget: int
    encoder_compute_budget: int
    long_prefill_token_threshold: int
    holds_prefills: bool = False
    running: list[ScheduledRequest] = field(default_factory=list)
    new: list[ScheduledRequest] = field(default_factory=list)
    resumed: list[ScheduledRequest] = field(default_factory=list)
    preempted: list[ScheduledRequest] = field(default_factory=list)
    loading_victims: list[ScheduledRequest] = field(default_factory=list)
    loras: set[int] = field(default_factory=set)
    admits_prefill: bool = False
    withdrew_prefill: bool = False
    loads_kv: bool = False
    uses_drafts: bool = False
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    new_block_ids: dict[str, BlockIds] = field(default_factory=dict)
    encoder_inputs: dict[str, list[int]] = field(default_factory=dict)
    encoder_loads: dict[str, list[int]] = field(default_factory=dict)
    spec_decode_tokens: dict[str, Sequence[int]] = field(default_factory=dict)

    @property
    def runs_prefill(self) -> bool:
        """Whether a running request goes on with its prompt."""
        return any(request.is_prefill_chunk for request in self.running)

    def bounded(self, num_new_tokens: int) -> int:
        """`num_new_tokens`, or the most that one request may have in this step."""
        if 0 < self.long_prefill_token_threshold < num_new_tokens:
            return self.long_prefill_token_threshold
        return num_new_tokens

    def schedule(
        self, request: ScheduledRequest, num_new_tokens: int, blocks: KVCacheBlocks
    ) -> None:
        """Let the request compute `num_new_tokens` tokens in this step."""
        self.num_scheduled_tokens[request.request_id] = num_new_tokens
        self.token_budget -= num_new_tokens
        self.uses_drafts |= _can_use_drafts(request, num_new_tokens)
        if block_ids := blocks.get_block_ids(allow_none=True):
            self.new_block_ids[request.request_id] = block_ids

    def unschedule(self, request: ScheduledRequest, *, wholly: bool = True) -> None:
        """Take a running request out of this step; unless `wholly`, what it was to compute stays
        in."""
        self.running.remove(request)
        self.withdrew_prefill |= request.is_prefill_chunk
        if not wholly:
            return
        self.token_budget += self.num_scheduled_tokens.pop(request.request_id)
        self.new_block_ids.pop(request.request_id, None)
        self.spec_decode_tokens.pop(request.request_id, None)

    def take_back_items(self, request: ScheduledRequest) -> tuple[list[int], list[int]]:
        """Take back what the step encodes and loads for the request, and the budget of the encodes;
        returns both lists of items."""
        encodes = self.encoder_inputs.pop(request.request_id, [])
        for input_id in encodes:
            self.encoder_compute_budget += request.get_num_encoder_embeds(input_id)
        return encodes, self.encoder_loads.pop(request.request_id, [])


def _can_use_drafts(request: ScheduledRequest, num_new_tokens: int) -> bool:
    """Whether the request may decode on after a step with so many tokens of it: it ends its prompt,
    and does not surely bring its last token."""
    if request.num_computed_tokens + num_new_tokens < request.num_tokens:
        return False
    is_sampling = request.num_output_placeholders > 0
    return request.num_output_tokens + 1 + is_sampling < request.max_tokens
