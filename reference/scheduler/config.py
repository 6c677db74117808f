"""The configuration of a scheduler."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SchedulerConfig:
    """Names are vLLM's. Sequences are requests; encoder sizes are in embeddings.

    Attributes:
        max_num_batched_tokens: token budget of a step.
        max_num_seqs: most running requests.
        max_model_len: most tokens of a request, prompt and output.
        encoder_compute_budget: most embeddings that one step may encode.
        policy: who goes first: in order of arrival, or of priority.
        enable_chunked_prefill: whether a prompt may be computed in several steps.
        disable_chunked_mm_input: whether no item may be computed in several steps.
        long_prefill_token_threshold: most tokens of one request in a step while others want some;
            0 for no such bound.
        long_prefill_token_threshold_adaptive: that bound is no smaller than an equal share of the
            token budget.
        scheduler_reserve_full_isl: admit only requests whose whole sequence fits the KV blocks.
        max_num_active_seqs: most requests that are admitted to run; None for `max_num_seqs`.
        prefill_schedule_interval: while requests decode, prompts are computed in one of so many
            steps only.
        max_loras: most adapters in a step; 0 where requests have none.
        num_speculative_tokens: drafts that are proposed for a request at a time.
        drafter: whether a model proposes them, which needs KV slots of its own for them and reads
            one token ahead of what is computed.
        is_encoder_decoder: items are not part of prompts: an encoder reads them, and a decoder the
            encoder's output from its first token on.
        num_cross_attention_tokens: encoder tokens of such a model's longest item; releases that
            know of no better number give every request KV blocks for as many.
        recomputes_failed_loads: whether a request goes on whose KV could not be loaded, or ends.
        async_scheduling: steps are scheduled before the output of the last one has arrived.
        v2_model_runner: workers forget a request that is preempted, and are told of it anew.
        uses_mrope: positions have several axes, and follow from the grids of a prompt's items; so
            workers are always given these, whatever else of an item's data stays behind.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    encoder_compute_budget: int
    policy: Literal["fcfs", "priority"] = "fcfs"
    enable_chunked_prefill: bool = True
    disable_chunked_mm_input: bool = False
    long_prefill_token_threshold: int = 0
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = False
    long_prefill_token_threshold_adaptive: bool = False
    max_num_active_seqs: int | None = None
    prefill_schedule_interval: int = 1
    max_loras: int = 0
    num_speculative_tokens: int = 0
    drafter: bool = False
    is_encoder_decoder: bool = False
    num_cross_attention_tokens: int = 0
    recomputes_failed_loads: bool = True
    v2_model_runner: bool = False
    uses_mrope: bool = False

    @property
    def num_lookahead_tokens(self) -> int:
        """KV slots after the scheduled tokens, for those of the drafter."""
        return self.num_speculative_tokens if self.drafter else 0

    @property
    def num_prefill_lookahead_tokens(self) -> int:
        """Tokens after the scheduled ones that the drafter reads."""
        return int(self.drafter)
