"""The runner: executes what a scheduler decides, with tensors.

A step in order: requests are brought up to date, notices drop entries, items are encoded, windows
are gathered and spliced into the token stream, the decoder runs over the paged KV, and the requests
whose known tokens are all computed get their next one, or with drafts that are right several.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import torch

from cacheproof.gpu_runner.adapters import LoadedAdapter
from cacheproof.gpu_runner.cross_attention import CrossStep, CrossWindow
from cacheproof.gpu_runner.devices import in_words, upload
from cacheproof.gpu_runner.encoder_store import EncoderStore, StoreRead
from cacheproof.gpu_runner.kv_store import PagedKVStore
from cacheproof.gpu_runner.models.base import Encoded, MultiModalModel
from cacheproof.gpu_runner.origins import Origins, in_group, prefix_tags
from cacheproof.gpu_runner.paged_attention import PagedGroup, PagedStep, Window
from cacheproof.gpu_runner.requests import (
    GIVEN,
    Batch,
    MediaItem,
    RequestState,
    RunnerPrompt,
    UnknownToken,
)
from cacheproof.gpu_runner.rotary import RotaryPositions
from cacheproof.reference.scheduler.output import SchedulerOutput

Drafter = Callable[[Mapping[str, RequestState]], Mapping[str, Sequence[int]]]
"""Proposes tokens that may follow the known ones of each of these requests."""


class Sampled(NamedTuple):
    """A request's next token, its log probability, and by how much its logit leads the second."""

    token_id: int
    logprob: float
    lead: float


NO_DRAFT = -1
"""Stands for a draft that nobody proposed; it is never right."""
WINDOW_BYTES = 8 << 20
"""Windows that are this large on average are copied one by one: one launch for all moves them more
slowly (docs/evidence/gpu.md)."""


@dataclass(frozen=True)
class Gathering:
    """Rows of an item that a step reads, and their targets: tokens of the step, as a range where
    they are consecutive; or slots, where the decoder attends to the rows."""

    identifier: str
    read: StoreRead
    targets: range | torch.Tensor

    def indices(self, device: torch.device) -> torch.Tensor:
        """The targets, on a device."""
        if isinstance(self.targets, range):
            return torch.arange(self.targets.start, self.targets.stop, device=device)
        return self.targets


class Runner:
    """Holds the tensors of one model, and the stores that they live in.

    Where it is `tagged`, every row of an encoder output and every KV slot carries what it is, and
    `origins` has what was read that is another's. A dict in `prompt_ends` takes the hidden state of
    [hidden size] behind each prompt's last token. Where steps are `asynchronous`, they are decided
    before it is known which drafts of the one before were accepted. `drafter` proposes drafts; one
    that `reads_ahead` is a model, which reads the token behind a step's last one too. Unless it
    `needs_rows`, it takes what the token itself stands for where an item begins there.
    """

    def __init__(
        self,
        model: MultiModalModel,
        *,
        num_blocks: int,
        block_size: int,
        encoder_cache_size: int,
        tagged: bool = False,
        asynchronous: bool = False,
        drafter: Drafter | None = None,
        reads_ahead: bool = False,
        needs_rows: bool = True,
    ) -> None:
        self.model = model
        self._asynchronous = asynchronous
        self._drafter = drafter
        self._reads_ahead = reads_ahead
        self._needs_rows = needs_rows
        self.prompt_ends: dict[str, torch.Tensor] | None = None
        self.origins = Origins(num_blocks * block_size, model.device) if tagged else None
        self.encoder_store = EncoderStore(encoder_cache_size)
        self.kv_store = PagedKVStore(
            model.kv_shape, num_blocks, block_size, dtype=model.dtype, device=model.device
        )
        self.cross_kv_store: PagedKVStore | None = None
        if model.cross_kv_shape is not None:
            self.cross_kv_store = PagedKVStore(
                model.cross_kv_shape, num_blocks, block_size, dtype=model.dtype, device=model.device
            )
        self.batch = Batch()
        self.num_steps = 0

    def add(self, request_id: str, prompt: RunnerPrompt) -> None:
        """A request arrives.

        Raises:
            ValueError: one of its id is there, or it asks for an adapter where the decoder attends
                to an encoder's rows, whose keys and values no adapter is applied to.
        """
        if prompt.adapter is not None and self.cross_kv_store is not None:
            raise ValueError(f"request {request_id} asks for an adapter of a decoder that attends")
        self.batch.add(request_id, self._state_of(prompt))

    def add_chunk(self, request_id: str, chunk: RunnerPrompt) -> None:
        """More prompt of a session arrives, with items at offsets in it. It becomes part of the
        session's prompt in the step that begins the next turn.

        Raises:
            UnknownRequest: there is no request of that id.
        """
        self.batch.of(request_id).chunks.append(chunk)

    def _state_of(self, prompt: RunnerPrompt) -> RequestState:
        """The state of a request with that prompt, of which nothing is computed."""
        positions, places = self.model.rotary_positions(prompt), {}
        for index, item in enumerate(prompt.items):
            mask = item.feature.mm_position.is_embed
            if mask is not None:
                places[index] = self._upload(torch.tensor(mask).nonzero().flatten())
        return RequestState(prompt, list(prompt.token_ids), positions, places)

    def reload(self, directory: Path) -> None:
        """The model's weights become those of a directory, in place. Like vLLM's workers it drops
        its encoder outputs; a scheduler has to forget those, and the KV blocks, by itself."""
        self.model.reload(directory)
        self.encoder_store.free(list(self.encoder_store.sizes))
        if self.origins is not None:
            self.origins.renew()

    @torch.inference_mode()
    def execute(self, step: SchedulerOutput) -> dict[str, list[Sampled]]:
        """Execute a step; answers the next tokens of those requests that get some: one, and one
        more for each draft that was right.

        Raises:
            EncoderCacheMiss: the step reads an item that is not in the store.
            StoreOverflow: it encodes more than the store may hold.
            UnknownRequest: it speaks of a request that is not there.
            UnknownToken: it computes one that nobody has decoded or proposed.
        """
        self.num_steps += 1
        # first: what replaces a session's state here gets its blocks from the batch's update
        self._go_on(step)
        self.batch.apply(step)
        # before the encodes, as vLLM's workers do: an entry that is encoded again stays
        self.encoder_store.free(step.free_encoder_mm_hashes)
        self._encode(step)
        scheduled = [
            (request_id, self.batch.of(request_id), count)
            for request_id, count in step.num_scheduled_tokens.items()
        ]
        for request_id, request, _ in scheduled:
            self._take_drafts(request, step.scheduled_spec_decode_tokens.get(request_id, ()))
        if self._asynchronous:
            for request_id, request in self.batch.requests.items():
                if request_id not in step.num_scheduled_tokens:
                    request.drafts = []  # workers keep those of the last step alone
        return self._decode(scheduled) if scheduled else {}

    def _go_on(self, step: SchedulerOutput) -> None:
        """Give sessions whose next turn the step begins their longer prompt."""
        for new in step.scheduled_new_reqs:
            request = self.batch.of(new.req_id)
            if len(new.prompt_token_ids) > len(request.prompt.token_ids):
                longer = self._state_of(request.go_on(new.prompt_token_ids))
                self.batch.requests[new.req_id] = replace(longer, chunks=request.chunks)

    def _take_drafts(self, request: RequestState, told: Sequence[int]) -> None:
        """Set the drafts that a step verifies. An asynchronous step says only how many, and begins
        where it would if all earlier ones had been right."""
        request.verified = list(told)
        if self._asynchronous:
            own = request.drafts[: len(told)]
            request.verified = [*own, *[NO_DRAFT] * (len(told) - len(own))]
            request.num_computed_tokens = min(
                request.num_computed_tokens, len(request.token_ids) - 1
            )

    def _encode(self, step: SchedulerOutput) -> None:
        """Encode the step's items, those of one modality, shape and adapter at once; like vLLM's
        workers none whose data was withheld."""
        items: list[tuple[MediaItem, LoadedAdapter | None]] = []
        for request_id, indices in step.scheduled_encoder_inputs.items():
            request = self.batch.of(request_id)
            given = [index for index in indices if index not in request.withheld_inputs]
            items += [(request.prompt.items[index], request.prompt.adapter) for index in given]
        for _, alike in groupby(sorted(items, key=_kind), key=_kind):
            together, adapters = zip(*alike, strict=True)
            if together[0].modality == GIVEN:
                outputs = list(map(self._given, together))
            else:
                with self.model.adapted([(slice(None), adapters[0])]):
                    outputs = self.model.encode(together)
            for item, encoded in zip(together, outputs, strict=True):
                name = item.feature.identifier
                beside = {}
                if encoded.positions is not None:
                    beside["positions"] = encoded.positions.T
                if self.origins is not None:
                    beside["tags"] = self.origins.encoded(name, len(encoded.rows))
                self.encoder_store.put(name, encoded.rows, **beside)

    def _given(self, item: MediaItem) -> Encoded:
        """The output that is kept of rows that a user gives."""
        return Encoded(item.inputs["rows"].to(self.model.device, self.model.dtype))

    def _decode(
        self, scheduled: Sequence[tuple[str, RequestState, int]]
    ) -> dict[str, list[Sampled]]:
        token_ids: list[int] = []
        positions: list[torch.Tensor] = []
        gatherings: list[Gathering] = []
        done: list[tuple[str, RequestState]] = []
        rows: list[int] = []
        ends: dict[str, int] = {}
        for request_id, request, count in scheduled:
            first, start = len(token_ids), request.num_computed_tokens
            end = start + count
            # NO_DRAFT has no embedding: token 0 stands for it, and what follows it never counts
            known = [*request.token_ids, *(max(0, one) for one in request.verified)]
            if end > len(known):
                raise UnknownToken(
                    f"step {self.num_steps} computes token {end - 1} of {request_id}; "
                    f"expected at most {len(known) - 1}, the last one that is known"
                )
            token_ids += known[start:end]
            positions.append(_positions(request.positions, start, end))
            gatherings += self._gatherings(request_id, request, start, end, first)
            if self._reads_ahead:
                self._read_ahead(request_id, request, end)
            # a next token follows only where nothing known is left to compute
            if end == len(known):
                done.append((request_id, request))
                last_known = first + count - 1 - len(request.verified)
                ends[request_id] = last_known
                # the last known token and each draft: what follows each of them is sampled
                rows += range(last_known, first + count)
        embeds = self.model.embed(self._upload(token_ids))
        self._give(embeds, scheduled)
        placed = self._upload(torch.cat(positions, dim=-1))
        groups = tuple(
            self._group(number, group.sliding_window, scheduled)
            for number, group in enumerate(self.kv_store.groups)
        )
        windows, cross = groups[0].windows, None
        if self.cross_kv_store is None:
            self._splice(embeds, gatherings)
            self._place(placed, gatherings)
        else:
            cross = self._cross(self.cross_kv_store, scheduled, windows, gatherings)
        paged = PagedStep(self.kv_store, groups, cross)
        if self.origins is not None:
            self._note_origins(self.origins, scheduled, gatherings, paged)
        adapters = [
            (slice(window.start, window.end), request.prompt.adapter)
            for window, (_, request, _) in zip(windows, scheduled, strict=True)
        ]
        with self.model.adapted(adapters):
            hidden = self.model.decode(embeds, placed, paged)
        if not done:
            return {}
        if self.prompt_ends is not None:
            for request_id, row in ends.items():
                self.prompt_ends.setdefault(request_id, hidden[row])
        sampled = iter(_greedy(self.model.logits(hidden[self._upload(rows)])))
        answers = {}
        for request_id, request in done:
            of_request = [next(sampled) for _ in range(1 + len(request.verified))]
            answers[request_id] = accepted = self._accepted(of_request, request.verified)
            request.token_ids += [one.token_id for one in accepted]
            request.verified = []
        if self._drafter is not None:
            for request_id, drafts in self._drafter(dict(done)).items():
                self.batch.of(request_id).drafts = list(drafts)
        return answers

    def _give(
        self, embeds: torch.Tensor, scheduled: Sequence[tuple[str, RequestState, int]]
    ) -> None:
        """Put the rows of prompts of embeddings in the places of their tokens."""
        first = 0
        for _, request, count in scheduled:
            if (prompt := request.prompt.embeds) is not None:
                start = request.num_computed_tokens
                of_step = enumerate(prompt.given[start : start + count])
                given = self._upload([at for at, name in of_step if name is not None])
                embeds[first + given, : self.model.embedding_size] = prompt.rows[start + given]
            first += count

    def _group(
        self,
        number: int,
        sliding_window: int | None,
        scheduled: Sequence[tuple[str, RequestState, int]],
    ) -> PagedGroup:
        """Where the layers of that group keep the step's tokens, and what each request reads."""
        slots: list[torch.Tensor] = []
        windows: list[Window] = []
        first = 0
        for _, request, count in scheduled:
            start = request.num_computed_tokens
            # the step's first token reads furthest back
            begin = 0 if sliding_window is None else max(0, start + 1 - sliding_window)
            read = self.kv_store.slots(request.block_ids[number], begin, start + count)
            slots.append(read[start - begin :])
            windows.append(Window(first, first + count, self._upload(read)))
            first += count
        return PagedGroup(self._upload(torch.cat(slots)), tuple(windows), sliding_window)

    @staticmethod
    def _accepted(sampled: Sequence[Sampled], drafts: Sequence[int]) -> list[Sampled]:
        """The sampled tokens that count: up to and with the first that differs from its draft.

        `sampled[0]` follows the known tokens, and each further one a draft.
        """
        right = 0
        while right < len(drafts) and sampled[right].token_id == drafts[right]:
            right += 1
        return list(sampled[: right + 1])

    def _read_ahead(self, request_id: str, request: RequestState, end: int) -> None:
        """Read the row of an item at the token after a step's last one: a model that drafts reads
        each token with what was computed at the one before."""
        for item in request.prompt.items if self.cross_kv_store is None else ():
            where = item.feature.mm_position
            if where.offset < end + self._needs_rows and end < where.end:
                row, behind = where.get_embeds_indices_in_range(
                    end - where.offset, end + 1 - where.offset
                )
                if row < behind:
                    read = StoreRead(request_id, end, self.num_steps, row, behind)
                    self.encoder_store.gather(item.feature.identifier, read)

    def _gatherings(
        self, request_id: str, request: RequestState, start: int, end: int, first: int
    ) -> Iterable[Gathering]:
        """What tokens [start, end) of a request read of its items, `first` being the place of the
        first of them in the step. What they attend to is read when the request begins."""
        for index, item in enumerate(request.prompt.items):
            where = item.feature.mm_position
            if self.cross_kv_store is not None:
                # once: the decoder reads the KV of the rows from then on
                if start == 0:
                    rows = where.get_num_embeds()
                    slots = self.cross_kv_store.slots(request.block_ids[-1], 0, rows)
                    read = StoreRead(request_id, 0, self.num_steps, 0, rows)
                    yield Gathering(item.feature.identifier, read, self._upload(slots))
                continue
            begin, stop = max(start, where.offset), min(end, where.end)
            if begin >= stop:
                continue
            from_row, to_row = where.get_embeds_indices_in_range(
                begin - where.offset, stop - where.offset
            )
            if from_row == to_row:
                continue
            targets: range | torch.Tensor = range(first + begin - start, first + stop - start)
            if index in request.embed_places:
                places = request.embed_places[index][from_row:to_row]
                targets = places + (first + where.offset - start)
            read = StoreRead(request_id, begin, self.num_steps, from_row, to_row)
            yield Gathering(item.feature.identifier, read, targets)

    def _splice(self, embeds: torch.Tensor, gatherings: Sequence[Gathering]) -> None:
        """Put the rows in the places of their tokens. A launch for each of many small windows would
        leave a GPU waiting: dense ones are copied by one, and those with gaps are joined first."""
        windows: list[torch.Tensor] = []
        dense: list[torch.Tensor] = []
        sparse: list[torch.Tensor] = []
        places: list[torch.Tensor] = []
        for one in gatherings:
            rows, targets = self.encoder_store.gather(one.identifier, one.read), one.targets
            if isinstance(targets, range):
                windows.append(embeds[targets.start : targets.stop])
                dense.append(rows)
            else:
                places.append(targets)
                sparse.append(in_words(rows))
        if len(dense) > 1 and sum(rows.nbytes for rows in dense) < len(dense) * WINDOW_BYTES:
            torch._foreach_copy_(windows, dense)
        else:
            for window, rows in zip(windows, dense, strict=True):
                window.copy_(rows)
        # on a CPU there are no launches to save, and joining copies once more
        if embeds.is_cuda and len(sparse) > 1:
            sparse, places = [torch.cat(sparse)], [torch.cat(places)]
        for rows, at in zip(sparse, places, strict=True):
            in_words(embeds).index_copy_(0, at, rows)

    def _place(self, positions: torch.Tensor, gatherings: Sequence[Gathering]) -> None:
        """Add to the positions of items those that rows have of their own."""
        for one in gatherings if self.model.places_rows else ():
            within = self.encoder_store.gather_beside("positions", one.identifier, one.read)
            positions.index_add_(1, one.indices(positions.device), within.T)

    def _cross(
        self,
        store: PagedKVStore,
        scheduled: Sequence[tuple[str, RequestState, int]],
        windows: Sequence[Window],
        gatherings: Sequence[Gathering],
    ) -> CrossStep:
        """What the step's requests attend to beside their own tokens, and what of it is new."""
        crossing = []
        for (_, request, _), window in zip(scheduled, windows, strict=True):
            slots = store.slots(request.block_ids[-1], 0, _num_rows(request.prompt))
            crossing.append(CrossWindow(window.start, window.end, self._upload(slots)))
        device = self.model.device
        # with it, torch.cat works in a step that has no new rows
        none = torch.empty(0, self.model.hidden_size, dtype=self.model.dtype, device=device)
        rows = [self.encoder_store.gather(one.identifier, one.read) for one in gatherings]
        targets = [self._upload([]), *(one.indices(device) for one in gatherings)]
        return CrossStep(store, torch.cat([none, *rows]), torch.cat(targets), tuple(crossing))

    def _note_origins(
        self,
        origins: Origins,
        scheduled: Sequence[tuple[str, RequestState, int]],
        gatherings: Sequence[Gathering],
        paged: PagedStep,
    ) -> None:
        """Move the tags along with the rows and slots that they belong to, and check them."""
        tags_of = [
            self.encoder_store.gather_beside("tags", one.identifier, one.read) for one in gatherings
        ]
        ranges = [
            (request, request.num_computed_tokens, request.num_computed_tokens + count)
            for _, request, count in scheduled
        ]
        if paged.cross is None:
            count = len(paged.groups[0].slots)
            spliced = torch.zeros(count, 3, dtype=torch.int64, device=self.model.device)
            for one, rows in zip(gatherings, tags_of, strict=True):
                spliced.index_copy_(0, one.indices(spliced.device), rows)
            origins.spliced(ranges, spliced)
        else:
            if gatherings:
                new = [self.batch.of(one.read.request_id) for one in gatherings]
                origins.crossed(new, torch.cat(tags_of), paged.cross.slots)
            for (request, *_), across in zip(ranges, paged.cross.windows, strict=True):
                origins.looked_across(request, across.slots)
        tags = [
            prefix_tags(request, origins.weights, has_placeholders=paged.cross is None)[:end]
            for request, _, end in ranges
        ]
        # all writes, then all reads: layers write a step's KV before they attend to it
        for number, group in enumerate(paged.groups):
            for of_request, window in zip(tags, group.windows, strict=True):
                own = group.slots[window.start : window.end]
                origins.written(in_group(of_request[-len(own) :], number), own)
        for number, group in enumerate(paged.groups):
            for of_request, window in zip(tags, group.windows, strict=True):
                read = of_request[-len(window.slots) :]
                origins.attended(in_group(read, number), window.slots)

    def _upload(self, numbers: torch.Tensor | Sequence[int]) -> torch.Tensor:
        return upload(numbers, self.model.device)


def _num_rows(prompt: RunnerPrompt) -> int:
    """Rows that the encoder makes of a prompt's items."""
    return sum(item.feature.mm_position.get_num_embeds() for item in prompt.items)


def _kind(one: tuple[MediaItem, LoadedAdapter | None]) -> tuple[object, ...]:
    item, adapter = one
    shapes = sorted((name, tuple(tensor.shape)) for name, tensor in item.inputs.items())
    return item.modality, shapes, "" if adapter is None else adapter.request.lora_name


def _positions(own: RotaryPositions | None, start: int, end: int) -> torch.Tensor:
    """Rotary positions of tokens [start, end): [tokens], or [axes, tokens]."""
    if own is None:
        return torch.arange(start, end)
    axes, length = own.of_prompt.shape
    given = own.of_prompt[:, start:end]
    behind = torch.arange(max(start, length), max(end, length)) + own.behind - length
    return torch.cat([given, behind.expand(axes, -1)], dim=1)


def _greedy(logits: torch.Tensor) -> list[Sampled]:
    """The best token of each row of [rows, vocabulary]. Waits for the device."""
    # two: the lead over the second says whether rounding can decide
    best = logits.topk(2, dim=-1)
    logprobs = best.values[:, 0] - logits.logsumexp(dim=-1)
    leads = best.values[:, 0] - best.values[:, 1]
    return [
        Sampled(*one)
        for one in zip(best.indices[:, 0].tolist(), logprobs.tolist(), leads.tolist(), strict=True)
    ]
