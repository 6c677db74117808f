"""A request as a judge knows it: its items, and how far it has been scheduled."""

from collections.abc import Iterable, Mapping

from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.scheduler import Chunk, SchedulerConfig
from cacheproof.spec.scheduler_records import Span


def embeds(item: Item) -> int:
    """Embeddings that an item brings: its places, or those that its mask marks."""
    return item.length if item.is_embed is None else sum(item.is_embed)


def size(item: Item, protocol: Protocol) -> int:
    """Embeddings that an item takes of the cache and of the compute budget."""
    return embeds(item) if protocol.counts_embeds else item.length


def tokens_max(event: Add | Chunk, config: SchedulerConfig) -> int:
    """Tokens that a prompt and what is decoded from it may come to."""
    return min(event.prompt + event.max_tokens, config.max_model_len)


class JudgedRequest:
    """A request of the trace. Lists are by input id; `end_of_items` is the token after the last."""

    __slots__ = (
        "computed",
        "end_of_items",
        "ends",
        "identifiers",
        "masks",
        "offsets",
        "repeats",
        "sizes",
        "spans",
    )

    def __init__(self, event: Add, protocol: Protocol) -> None:
        self.identifiers: list[str] = []
        self.offsets: list[int] = []
        self.ends: list[int] = []
        self.masks: list[tuple[bool, ...] | None] = []
        self.sizes: list[int] = []
        self.spans: tuple[Span, ...] = ()
        self.end_of_items = 0
        self.repeats = False
        self.computed = 0
        self.extend(event, 0, protocol)

    def extend(self, event: Add | Chunk, first: int, protocol: Protocol) -> None:
        """Append the items of a prompt that begins at token `first`."""
        for item in event.items:
            number = len(self.identifiers)
            self.identifiers.append(
                item.identifier if protocol.keyed_by_identifier else f"{event.request}#{number}"
            )
            self.offsets.append(first + item.offset)
            self.ends.append(first + item.offset + item.length)
            self.masks.append(item.is_embed)
            self.sizes.append(size(item, protocol))
        self.spans = tuple(map(Span, self.offsets, self.ends))
        self.end_of_items = max(self.ends, default=0)
        self.repeats = len(set(self.identifiers)) < len(self.identifiers)

    def read_in(self, start: int, end: int) -> Iterable[int]:
        """Items of which tokens [start, end) receive an embedding."""
        if start >= self.end_of_items:
            return
        for number, offset in enumerate(self.offsets):
            if offset < end and self.ends[number] > start:
                mask = self.masks[number]
                if mask is None or any(mask[max(0, start - offset) : end - offset]):
                    yield number

    def inside_an_item(self) -> bool:
        """Whether the request has been scheduled up to a token within an item."""
        return any(span.start < self.computed < span.end for span in self.spans)


def entries(
    requests: Mapping[str, JudgedRequest], inputs_by_request: Mapping[str, Iterable[int]]
) -> dict[str, int]:
    """The entries of these inputs, and their sizes."""
    return {
        requests[name].identifiers[number]: requests[name].sizes[number]
        for name, inputs in inputs_by_request.items()
        for number in inputs
    }
