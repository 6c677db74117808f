"""What rows and slots are: tags that travel with them, and what was read that is another's.

A row's tag is (item, row, which encode of the item). A slot's is a digest of the prefix whose KV it
holds: tokens, and rows of items where items are; in each group of layers it is another. Rows that a
decoder attends to have slots of their own, and come before all of its tokens. Tags are moved by the
same operations as what they belong to, so a wrong read is seen whatever the numbers in it, on any
device.
"""

import hashlib
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from cacheproof.gpu_runner.requests import RequestState

MOST_TOLD = 4
"""Wrong rows, and wrong slots, that are told of a step."""


@dataclass
class OriginReads:
    """How many were read, and of those that were another's the first ones."""

    read: int = 0
    expected: list[int | list[int]] = field(default_factory=list)
    found: list[int | list[int]] = field(default_factory=list)

    def add(self, expected: torch.Tensor, found: torch.Tensor) -> None:
        """Tags of one read, of [reads] or [reads, parts]. Waits for the device."""
        self.read += len(expected)
        wrong = expected != found.cpu()
        if wrong.dim() > 1:
            wrong = wrong.any(dim=1)
        for at in wrong.nonzero()[:, 0].tolist()[: MOST_TOLD - len(self.expected)]:
            self.expected.append(expected[at].tolist())
            self.found.append(found[at].tolist())


class Origins:
    """The tags of `num_slots` KV slots, and of as many for rows that a decoder attends to; and what
    was read of rows and slots since the last take."""

    def __init__(self, num_slots: int, device: torch.device) -> None:
        self.slot_tags = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.cross_slot_tags = torch.zeros_like(self.slot_tags)
        self.weights = 0
        """How often the model got other weights: what is made of others is another's."""
        self._encodes: Counter[str] = Counter()
        self.rows, self.slots = OriginReads(), OriginReads()

    def take(self) -> tuple[OriginReads, OriginReads]:
        """What was read since the last take: rows, and slots."""
        taken = self.rows, self.slots
        self.rows, self.slots = OriginReads(), OriginReads()
        return taken

    def renew(self) -> None:
        """The model gets other weights."""
        self.weights += 1

    def encoded(self, identifier: str, count: int) -> torch.Tensor:
        """The tags of an item's rows, [rows, 3], now that it is encoded once more."""
        self._encodes[identifier] += 1
        return self._tags(identifier, count).to(self.slot_tags.device)

    def spliced(self, windows: Sequence[tuple[RequestState, int, int]], tags: torch.Tensor) -> None:
        """The tokens of a step, window after window of a request's tokens [start, end), have got
        rows with these tags, [tokens, 3], and zeros where they have got none."""
        expected = [self._expected(request, start, end) for request, start, end in windows]
        self.rows.add(torch.cat(expected), tags)

    def _expected(self, request: RequestState, start: int, end: int) -> torch.Tensor:
        """The tags that belong to tokens [start, end) of a request."""
        wanted = torch.zeros(end - start, 3, dtype=torch.int64)
        for item in request.prompt.items:
            where = item.feature.mm_position
            tags = self._tags(item.feature.identifier, where.get_num_embeds())
            row = 0
            for at in range(where.offset, where.end):
                if where.is_embed is not None and not where.is_embed[at - where.offset]:
                    continue
                if start <= at < end:
                    wanted[at - start] = tags[row]
                row += 1
        return wanted

    def written(self, tags: torch.Tensor, slots: torch.Tensor) -> None:
        """Tokens with these prefixes are written to these slots."""
        self.slot_tags.index_copy_(0, slots, tags.to(self.slot_tags.device))

    def attended(self, tags: torch.Tensor, slots: torch.Tensor) -> None:
        """A request attends to these slots, those of tokens with these prefixes, all written by
        now."""
        self.slots.add(tags, self.slot_tags.index_select(0, slots))

    def crossed(
        self, requests: Sequence[RequestState], tags: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """The rows of these requests' items, with these tags, [rows, 3], are written to these
        slots."""
        self.rows.add(torch.cat(list(map(self._of_items, requests))), tags)
        self.cross_slot_tags.index_copy_(0, slots, _of_rows(tags))

    def looked_across(self, request: RequestState, slots: torch.Tensor) -> None:
        """A request attends to these slots, those of its items' rows, all written by now."""
        self.slots.add(
            _of_rows(self._of_items(request)), self.cross_slot_tags.index_select(0, slots)
        )

    def _of_items(self, request: RequestState) -> torch.Tensor:
        """The tags of the rows of a request's items, [rows, 3]."""
        features = [item.feature for item in request.prompt.items]
        return torch.cat(
            [self._tags(one.identifier, one.mm_position.get_num_embeds()) for one in features]
        )

    def _tags(self, identifier: str, count: int) -> torch.Tensor:
        name = zlib.crc32(f"{self.weights} {identifier}".encode())
        item = torch.full((count,), name, dtype=torch.int64)
        encode = torch.full((count,), self._encodes[identifier], dtype=torch.int64)
        return torch.stack((item, torch.arange(count), encode), dim=1)


def _of_rows(tags: torch.Tensor) -> torch.Tensor:
    """Tags of the slots that hold the KV of rows with these tags, [rows]. Which encode made a row
    is left out: every encode of an item makes the same."""
    return tags[:, 0] << 20 | tags[:, 1]


def in_group(tags: torch.Tensor, number: int) -> torch.Tensor:
    """The tags that slots have in that group of layers, from the tags of their prefixes."""
    return tags ^ number


def prefix_tags(
    request: RequestState, weights: int, *, has_placeholders: bool = True
) -> torch.Tensor:
    """A digest of the prefix through each token of a request, [tokens], those of drafts too. The
    model's weights, by number, the request's salt, its adapter, and items without placeholders come
    before them all."""
    token_ids = [*request.token_ids, *request.verified]
    content: list[tuple[object, ...]] = [(token,) for token in token_ids]
    items = request.prompt.items
    before = [] if has_placeholders else [one.feature.identifier for one in items]
    adapter = request.prompt.adapter
    name = None if adapter is None else adapter.request.lora_name
    prefix = repr((weights, request.prompt.cache_salt, name, before)).encode()
    if request.prompt.embeds is not None:
        for at, given in enumerate(request.prompt.embeds.given):
            if given is not None:
                content[at] = ("embedding", given)
    for item in items if has_placeholders else ():
        where = item.feature.mm_position
        for at in range(where.offset, where.end):
            content[at] = (request.token_ids[at], item.feature.identifier, at - where.offset)
    tags = []
    for one in content:
        prefix = hashlib.blake2b(prefix + repr(one).encode(), digest_size=8).digest()
        tags.append(int.from_bytes(prefix) >> 1)
    return torch.tensor(tags, dtype=torch.int64)
