"""What a runner knows of a request: tokens, media, and as much of its progress as it was told."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from cacheproof.gpu_runner.adapters import LoadedAdapter
from cacheproof.gpu_runner.rotary import RotaryPositions
from cacheproof.reference.request import MultiModalFeature
from cacheproof.reference.scheduler.output import BlockIds, SchedulerOutput

GIVEN = "given"
"""The modality of rows that are not encoded: their only input, `rows`, is what the model reads."""


class UnknownRequest(LookupError):
    """A step has tokens of a request that never arrived at the runner, or that has ended."""


class UnknownToken(LookupError):
    """A step computes a token that nobody has decoded or proposed."""


@dataclass(frozen=True)
class MediaItem:
    """A media item: where its tokens stand, and what the encoder gets of it.

    `inputs` are tensors by the name that the encoder gives them, without a batch dimension.
    """

    feature: MultiModalFeature
    modality: str
    inputs: Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class PromptEmbeds:
    """Rows that a user gives in the place of a prompt's tokens, [tokens, embedding size]. `given`
    has the name of each row, which tells equal ones, and None where the token counts."""

    rows: torch.Tensor
    given: tuple[str | None, ...]


@dataclass(frozen=True)
class RunnerPrompt:
    """What a request begins with. `token_ids` hold an item's placeholders in full. KV blocks are
    shared by prompts of one `cache_salt` and one `adapter` alone, rows of items by those whose
    identifiers are equal. `embeds` are read in the place of tokens."""

    token_ids: tuple[int, ...]
    items: tuple[MediaItem, ...] = ()
    cache_salt: str | None = None
    adapter: LoadedAdapter | None = None
    embeds: PromptEmbeds | None = None


@dataclass
class RequestState:
    """A request between arrival and end, as the runner sees it; `positions` where its model has
    rotary positions of its own. `block_ids` are the block tables of the groups of layers, in their
    order, and the last that of an encoder's rows where its decoder attends to them;
    `withheld_inputs` are items whose data it was not given. `embed_places` are, of each item that
    has rows for some of its tokens alone, the places of those in the item, on the model's device.
    `drafts` are proposed to follow `token_ids`, `verified` those of them that the step computes.
    `chunks` of a session's prompt have arrived, and are no part of it yet.
    """

    prompt: RunnerPrompt
    token_ids: list[int]
    positions: RotaryPositions | None = None
    embed_places: Mapping[int, torch.Tensor] = field(default_factory=dict)
    block_ids: BlockIds = ()
    num_computed_tokens: int = 0
    withheld_inputs: Collection[int] = ()
    drafts: list[int] = field(default_factory=list)
    verified: list[int] = field(default_factory=list)
    chunks: deque[RunnerPrompt] = field(default_factory=deque)

    def go_on(self, token_ids: Sequence[int]) -> RunnerPrompt:
        """The prompt of these tokens: a session's so far, what it has decoded, and its next chunk,
        whose items stand behind both.

        Raises:
            UnknownRequest: they do not end with that chunk.
        """
        chunk = self.chunks.popleft() if self.chunks else None
        if chunk is None or tuple(token_ids[-len(chunk.token_ids) :]) != chunk.token_ids:
            raise UnknownRequest("a prompt goes on with a chunk that never arrived")
        kept = len(token_ids) - len(chunk.token_ids)
        moved = [replace(item, feature=item.feature.moved(kept)) for item in chunk.items]
        return replace(self.prompt, token_ids=tuple(token_ids), items=(*self.prompt.items, *moved))


class Batch:
    """The requests that a runner knows, kept up to date by what steps say of them."""

    def __init__(self) -> None:
        self.requests: dict[str, RequestState] = {}

    def add(self, request_id: str, request: RequestState) -> None:
        """A request arrives; steps speak of it by its id from now on.

        Raises:
            ValueError: one of that id is there.
        """
        if request_id in self.requests:
            raise ValueError(f"request {request_id} is there already")
        self.requests[request_id] = request

    def apply(self, step: SchedulerOutput) -> None:
        """Take over who ended, who starts (over), and who got which blocks.

        Raises:
            UnknownRequest: the step speaks of a request that is not there.
        """
        for request_id in step.finished_req_ids:
            self.requests.pop(request_id, None)
        for new in step.scheduled_new_reqs:
            request = self.of(new.req_id)
            request.block_ids = tuple(map(list, new.block_ids))
            request.num_computed_tokens = new.num_computed_tokens
            request.withheld_inputs = new.withheld_inputs
            if new.prefill_token_ids is not None:  # to the second model runner, perhaps again
                request.drafts = []
                self._know(request, new.prefill_token_ids)
        cached = step.scheduled_cached_reqs
        for request_id, blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            request = self.of(request_id)
            resumed = request_id in cached.resumed_req_ids
            if blocks is not None:
                before = ((),) * len(blocks) if resumed else request.block_ids
                request.block_ids = tuple(
                    [*old, *added] for old, added in zip(before, blocks, strict=True)
                )
            request.num_computed_tokens = computed
            if resumed:
                request.drafts = []
            if request_id in cached.all_token_ids:
                self._know(request, cached.all_token_ids[request_id])

    @staticmethod
    def _know(request: RequestState, token_ids: Sequence[int]) -> None:
        """All tokens of a request, as the scheduler has them: of what was sampled before a
        preemption it may have dropped the last. The prompt stays as it came: the scheduler's has 0
        where embeddings are given."""
        prompt = request.prompt.token_ids
        request.token_ids = [*prompt, *token_ids[len(prompt) :]]

    def of(self, request_id: str) -> RequestState:
        """The request of that id.

        Raises:
            UnknownRequest: there is none.
        """
        try:
            return self.requests[request_id]
        except KeyError:
            raise UnknownRequest(f"request {request_id} was never added, or has ended") from None
