"""What is in the KV blocks of a scheduler's requests, told by its steps alone.

A slot is right for a request where the token there was computed over the request's own prefix: its
tokens, with the items, the adapter and the salt that they come with. Whoever decodes has a text of
its own from its first decoded token on, unless it is said what was decoded, or a session drops it
before its next chunk. Groups of windows, KV from elsewhere, and drafts under asynchronous
scheduling, whose steps begin where the workers find that they do, are not followed.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from cacheproof.differential.targets.host.media_inputs import row_names_of
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.outcomes import StepOutcome
from cacheproof.differential.traces.scheduler import Chunk, SchedulerConfig
from cacheproof.spec.scheduler_kv import Holding, KVReads, Progress

Prefix = tuple[Hashable, ...]


def follows(config: SchedulerConfig, *, is_decoder: bool) -> bool:
    """Whether the KV blocks of such a trace can be followed."""
    is_plain = config.kv_connector is None and not (config.groups or is_decoder or config.one_text)
    return is_plain and not (config.async_scheduling and config.num_speculative_tokens)


class KVText:
    """What the KV of a request's tokens is computed over."""

    def __init__(self, event: Add) -> None:
        self._name = event.request
        self._prompt = event.prompt
        self._about = event.salt, event.lora and event.lora.lora_name
        self._items = [(one.identifier, one.offset, one.offset + one.length) for one in event.items]
        self._rows = row_names_of(msgspec.to_builtins(event)) if event.embeds else []
        self._behind: list[Hashable] = []
        """What stands after the first prompt: tokens that were decoded, and those of chunks, each
        by its place there; None under an item."""
        self._own = math.inf

    def decode(self, tokens: Sequence[int]) -> None:
        """The request goes on with these tokens."""
        self._behind += tokens

    def go_on(self, first: int, chunk: Chunk) -> None:
        """A chunk follows from token `first` on: its text is everybody's from the beginning, and
        what was decoded before it stays, known or not."""
        kept = first - self._prompt
        if not 0 <= kept <= len(self._behind):
            self._own = min(self._own, first, self._prompt + len(self._behind))
        del self._behind[max(0, kept) :]
        self._behind += [None] * (kept - len(self._behind))
        items = [(one.identifier, one.offset, one.offset + one.length) for one in chunk.items]
        covered = {at for _, offset, end in items for at in range(offset, end)}
        self._behind += [None if at in covered else ("chunk", at) for at in range(chunk.prompt)]
        self._items += [
            (identifier, first + offset, first + end) for identifier, offset, end in items
        ]

    def through(self, position: int) -> Prefix:
        """What the token at a position is computed over. Equal where two requests agree on it."""
        behind = position + 1 - self._prompt
        if position >= self._own or behind > len(self._behind):
            # A text of its own, which equals nobody's.
            return self._name, position
        items = tuple(
            (identifier, offset, min(end, position + 1))
            for identifier, offset, end in self._items
            if offset <= position
        )
        rows = tuple(self._rows[: position + 1])
        told = enumerate(self._behind[: max(0, behind)], self._prompt)
        return *self._about, position, items, rows, tuple(one for one in told if one[1] is not None)


@dataclass(slots=True)
class _Block:
    """What a block holds: the first `right` tokens of a request's block of that index."""

    text: KVText
    index: int
    right: int


class KVMirror:
    """Follows one trace, and hands out what the contracts judge. `added` says how a request
    arrived."""

    def __init__(self, config: SchedulerConfig, added: Callable[[str], Add]) -> None:
        self._size = config.block_size
        self._num_blocks = config.num_blocks - 1
        self._added = added
        self._texts: dict[str, KVText] = {}
        self._tables: dict[str, list[int]] = {}
        self._blocks: dict[int, _Block] = {}
        self._computed: dict[str, int] = {}
        self._drafted: dict[str, int] = {}
        self._preempted: list[tuple[KVText, int]] = []

    def schedule(self, outcome: StepOutcome) -> Iterator[Progress | KVReads | Holding]:
        """Follow a step that is decided; yields what is to be judged of it."""
        computed, tokens = outcome["computed"], outcome["scheduled"]
        # Before `keep` forgets how far they were.
        self._preempted += [
            (self._texts[name], self._computed.get(name, 0))
            for name in outcome["preempted"]
            if name in self._texts
        ]
        self.keep(self._tables.keys() - outcome["preempted"])
        # These begin after whatever they hit, which is judged as a read.
        fresh = {*outcome["new"], *outcome["resumed"]}
        yield Progress(
            {name: start for name, start in computed.items() if name not in fresh}, self._computed
        )
        for name in computed:
            # One group alone: `follows` is false of several.
            (given,) = outcome["blocks"].get(name, [[]])
            if name not in self._texts:
                self._texts[name] = KVText(self._added(name))
            had = () if name in fresh else self._tables.get(name, ())
            self._tables[name] = [*had, *given]
        ends = {name: start + tokens[name] for name, start in computed.items()}
        # All write before any reads: a request may hit what another computes in this step.
        for name, start in computed.items():
            self._write(name, start, ends[name])
        self._computed |= ends
        self._drafted = dict(outcome["drafts"])
        yield self._reading(computed)
        held = {block for table in self._tables.values() for block in table}
        yield Holding(
            outcome["free_blocks"],
            len(held),
            self._num_blocks,
            ends,
            {name: len(self._tables[name]) * self._size for name in ends},
        )

    def was_left(self, name: str, number: int) -> bool:
        """Whether a full block of a request should hold tokens that an earlier request had not
        computed when it was preempted."""
        index = self._tables[name].index(number)
        end = (index + 1) * self._size
        wanted = self._texts[name].through(end - 1)
        return any(
            computed < end and text.through(end - 1) == wanted for text, computed in self._preempted
        )

    def update(self, sampled: Mapping[str, int]) -> None:
        """Follow the output of a step: drafts that it did not accept were computed in vain."""
        for name, drafts in self._drafted.items():
            if name in self._computed:
                rejected = drafts + 1 - max(1, sampled.get(name, 0))
                # More drafts than tokens are against SC-10, and what they leave is followed on.
                self._computed[name] = max(0, self._computed[name] - rejected)
                self._forget_behind(name, self._computed[name])
        self._drafted = {}

    def decode(self, name: str, tokens: Sequence[int]) -> None:
        """What a request that was scheduled has decoded: another that decodes the same after the
        same prompt may read its KV."""
        self._texts[name].decode(tokens)

    def go_on(self, name: str, first: int, chunk: Chunk) -> None:
        """A session that was scheduled goes on with a chunk, from token `first` on."""
        self._texts[name].go_on(first, chunk)
        self._forget_behind(name, first)

    def keep(self, names: Collection[str]) -> None:
        """Keep the blocks of these requests; all others have given theirs back. A session whose
        turn has ended keeps its own."""
        for name in self._tables.keys() - names:
            del self._tables[name]
            self._computed.pop(name, None)

    def forget(self) -> None:
        """Take what blocks hold for wrong from now on."""
        self._blocks.clear()

    def _write(self, name: str, start: int, end: int) -> None:
        text, table = self._texts[name], self._tables[name]
        # What is computed twice, down to before the first token, is against SC-14.
        for index in range(max(0, start) // self._size, min(-(-end // self._size), len(table))):
            first = index * self._size
            filled = min(self._size, end - first)
            right = self._right(text, index, table[index])
            if right < start - first:
                continue  # a hole before it: what is read through it is not right
            self._blocks[table[index]] = _Block(text, index, max(right, filled))

    def _right(self, text: KVText, index: int, number: int) -> int:
        """How many tokens of a block are right for a request's block of that index."""
        block = self._blocks.get(number)
        if block is None or block.index != index:
            return 0
        if block.text is text:
            return block.right
        first = index * self._size
        count = block.right
        # Equal prefixes are equal up to each token before, so the last equal one is enough.
        while count and block.text.through(first + count - 1) != text.through(first + count - 1):
            count -= 1
        return count

    def _reading(self, computed: Mapping[str, int]) -> KVReads:
        reads: dict[str, dict[int, int]] = {}
        right: dict[str, dict[int, int]] = {}
        for name, start in computed.items():
            table = self._tables[name]
            full = min(-(-start // self._size), len(table))
            reads[name] = {
                table[index]: min(self._size, start - index * self._size) for index in range(full)
            }
            text = self._texts[name]
            right[name] = {
                table[index]: self._right(text, index, table[index]) for index in range(full)
            }
        return KVReads(reads, right)

    def _forget_behind(self, name: str, end: int) -> None:
        """Take a request's blocks for wrong from token `end` on."""
        text, table = self._texts[name], self._tables.get(name, ())
        for index in range(end // self._size, len(table)):
            block = self._blocks.get(table[index])
            if block is not None and block.text is text and block.index == index:
                block.right = min(block.right, max(0, end - index * self._size))
