"""What a step tells the workers, and what its execution tells the engine."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from cacheproof.reference.request import MultiModalFeature, PromptEmbeds

BlockIds = tuple[list[int], ...]


class NewRequestData(NamedTuple):
    """A request that the workers see for the first time, or again from its start.

    `withheld_inputs` are the numbers of the items whose data stays behind; `prefill_token_ids` are
    all tokens that the request has, told to the second model runner alone; `prompt_embeds` stand
    in the place of tokens of its prompt.
    """

    req_id: str
    prompt_token_ids: Sequence[int]
    num_computed_tokens: int
    block_ids: BlockIds
    withheld_inputs: list[int]
    prefill_token_ids: Sequence[int] | None
    prompt_embeds: PromptEmbeds | None


class CachedRequestData(NamedTuple):
    """Requests that the workers know, side by side: progress before the step, and new blocks.

    `resumed_req_ids` have lost their old blocks: theirs are all that they hold. `all_token_ids` are
    of requests that the last step left out, `num_output_tokens` of all, those on their way counted;
    both are empty where a release does not tell of them.
    """

    req_ids: Sequence[str]
    resumed_req_ids: Set[str]
    all_token_ids: Mapping[str, Sequence[int]]
    new_block_ids: Sequence[BlockIds | None]
    num_computed_tokens: Sequence[int]
    num_output_tokens: Sequence[int]


class SchedulerOutput(NamedTuple):
    """One step. Encoder inputs are numbers of a request's items; notices are identifiers whose
    entries the workers drop before they encode or load. What they load is in the metadata of the
    connectors, where there are some. `num_common_prefix_blocks` are, by group, the leading blocks
    that all running requests share, in releases that read such blocks once for all.

    `preempted_req_ids` lost their blocks in this step, or since the last one. Before they encode,
    workers put the data of `encoder_input_updates` in the place of what they have of an item; None
    drops it. `has_sync_kv_loads`: some KV is loaded within the step. `skip_drafts`: no request can
    use drafts that are proposed after it."""

    scheduled_new_reqs: Sequence[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: Mapping[str, int]
    scheduled_spec_decode_tokens: Mapping[str, Sequence[int]]
    scheduled_encoder_inputs: Mapping[str, Sequence[int]]
    free_encoder_mm_hashes: Sequence[str]
    finished_req_ids: Set[str]
    num_common_prefix_blocks: Sequence[int] | None = None
    preempted_req_ids: Set[str] | None = None
    encoder_input_updates: Mapping[str, Mapping[int, MultiModalFeature | None]] = {}
    has_sync_kv_loads: bool = False
    skip_drafts: bool = False
    ec_connector_metadata: object = None
    kv_connector_metadata: object = None

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(self.num_scheduled_tokens.values())


@dataclass(frozen=True, slots=True)
class KVConnectorOutput:
    """What workers report of KV transfers: whose loads and sendings have ended, and into which
    blocks nothing right was loaded."""

    finished_recving: Collection[str] = ()
    finished_sending: Collection[str] = ()
    invalid_block_ids: Collection[int] = ()


class EngineCoreOutput(NamedTuple):
    """What a step brought a request: tokens, and why it ended if it did."""

    request_id: str
    new_token_ids: Sequence[int]
    finish_reason: str | None = None
