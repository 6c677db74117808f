"""What is right in the KV blocks of a trace with transfers, told by steps and reports alone.

A block handed out afresh holds nothing right. A step makes right what it computes, a load what it
brings once it is reported to have ended; a load within a step with the step itself, until it is
reported as failed. Then everything that was computed over it is wrong as well.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.outcomes import StepOutcome, UpdateOutcome
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.reference.kv_cache_specs import ceil_div
from cacheproof.spec.kv_transfers import BlockReads, Delivery, Sending, Writing


class _Block(NamedTuple):
    """A block as it was handed out: its number, and how often it had been, this time included."""

    number: int
    turn: int


class _Load(NamedTuple):
    """A load under way: how many tokens it has before it, its blocks, and how many tokens it brings
    to each."""

    hit: int
    blocks: tuple[_Block, ...]
    tokens: tuple[int, ...]


@dataclass(slots=True)
class _Request:
    """What a step computes of a request: the blocks it has, and the first token."""

    blocks: tuple[_Block, ...]
    start: int


@dataclass(slots=True)
class _Step:
    """A step in flight, with those of its requests that read what failed to be loaded."""

    requests: dict[str, _Request] = field(default_factory=dict)
    misread: set[str] = field(default_factory=set)


class KVTransferMirror:
    """Follows one trace, and hands out what the contracts judge.

    `added` says how a request arrived. `thrown_back` are the requests of which the last update has
    said that their KV is wrong.
    """

    def __init__(
        self, config: SchedulerConfig, added: Callable[[str], Add], reach: Reachability
    ) -> None:
        self._config = config
        self._block_size = config.block_size
        self._added = added
        self._reach = reach
        self._tables: dict[str, list[int]] = {}
        self._turns: dict[int, int] = {}
        self._right: dict[int, int] = {}
        self._loads: dict[str, _Load] = {}
        self._sends: dict[str, set[int]] = {}
        self._steps: deque[_Step] = deque()
        self._unknown: set[str] = set()
        self._failed: set[str] = set()
        self.thrown_back: set[str] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether something has to come from the workers or from elsewhere."""
        return bool(self._loads or self._sends or self._unknown)

    @property
    def ended_last(self) -> Set[str]:
        """Requests whose loads failed: the last update may have ended them after all others."""
        return self.thrown_back | self._failed if self._config.kv_connector == "fail" else set()

    def elsewhere(self, request: str, tokens: int | None) -> None:
        """Note how much of a request can be had elsewhere; None: nobody knows yet."""
        self._unknown.discard(request)
        if tokens is None:
            self._unknown.add(request)

    def ended(self, request: str) -> None:
        """Note that a request has ended: it asks for nothing more."""
        self._unknown.discard(request)
        if request in self._loads:
            self._reach.meet("ended while loading")

    def schedule(self, outcome: StepOutcome) -> Iterator[Writing | BlockReads | Sending]:
        """Follow a step that is decided; yields what is to be judged of it."""
        self._note_caching(outcome)
        for name, block_ids in outcome["kv_sends"]:
            self._sends[name] = set(block_ids)
            self._reach.meet("KV sent")
            own = self._tables.get(name, [])[: len(block_ids)]
            prompt = ceil_div(self._added(name).prompt, self._block_size)
            yield Sending(tuple(block_ids), tuple(own), prompt)
        yield from self._begin_loads(outcome)
        computed = outcome["computed"]
        windows = {name: (at, at + outcome["scheduled"][name]) for name, at in computed.items()}
        for name, (start, _) in windows.items():
            self._hand_out(name, start, outcome)
        for name, (tokens, later, _) in outcome["kv_loads"].items():
            if not later:
                self._load_at_once(name, _hit_of(name, outcome), tokens)
        step, writes = _Step(), {}
        for name, window in windows.items():
            writes[name] = self._write(name, *window)
            step.requests[name] = _Request(self._as_handed_out(self._tables[name]), window[0])
        self._steps.append(step)
        yield Writing(writes, self._transferred())
        yield self._reading(windows)
        for name in outcome["preempted"]:
            self._tables.pop(name, None)
        self._note_frees(outcome)

    def _begin_loads(self, outcome: StepOutcome) -> Iterator[Writing]:
        for name, (tokens, later, block_ids) in outcome["kv_loads"].items():
            if not later:
                continue
            self._reach.meet("load under way")
            hit = _hit_of(name, outcome)
            first = hit // self._block_size
            loaded = block_ids[first : ceil_div(hit + tokens, self._block_size)]
            in_flight = {
                f"step of {one}": {block.number for block in request.blocks[self._of(request) :]}
                for step in self._steps
                for one, request in step.requests.items()
            }
            yield Writing({name: set(loaded)}, {**self._transferred(), **in_flight})
            self._tables[name] = list(block_ids)
            for number in block_ids[first:]:
                self._renew(number)
            ends = (
                hit + tokens - index * self._block_size
                for index in range(first, first + len(loaded))
            )
            self._loads[name] = _Load(
                hit, self._as_handed_out(loaded), tuple(min(self._block_size, end) for end in ends)
            )

    def _of(self, request: _Request) -> int:
        """Number of the first block that the request writes."""
        return request.start // self._block_size

    def _hand_out(self, name: str, start: int, outcome: StepOutcome) -> None:
        (given,) = outcome["blocks"].get(name, [[]])
        if name in outcome["new"] or name in outcome["resumed"]:
            self._tables[name] = list(given)
            given = given[ceil_div(start, self._block_size) :]
        else:
            self._tables.setdefault(name, []).extend(given)
        for number in given:
            self._renew(number)

    def _renew(self, number: int) -> None:
        self._turns[number] = self._turns.get(number, 0) + 1
        self._right[number] = 0

    def _load_at_once(self, name: str, hit: int, tokens: int) -> None:
        self._reach.meet("KV loaded within a step")
        for number in self._tables[name][
            hit // self._block_size : ceil_div(hit + tokens, self._block_size)
        ]:
            self._renew(number)
        self._write(name, hit, hit + tokens)

    def _write(self, name: str, start: int, end: int) -> set[int]:
        written = set()
        for index, number in self._blocks_of(name, start // self._block_size, end):
            filled = min(self._block_size, end - index * self._block_size)
            if self._right.get(number, 0) >= start - index * self._block_size:
                self._right[number] = max(self._right.get(number, 0), filled)
            written.add(number)
        return written

    def _reading(self, windows: Mapping[str, tuple[int, int]]) -> BlockReads:
        reads: dict[int, int] = {}
        for name, (start, _) in windows.items():
            for index, number in self._blocks_of(name, 0, start):
                count = min(self._block_size, start - index * self._block_size)
                reads[number] = max(reads.get(number, 0), count)
        return BlockReads(reads, {number: self._right.get(number, 0) for number in reads})

    def _blocks_of(self, name: str, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The request's blocks from the `first` one up to token `end`, as far as it has blocks.
        Tokens beyond them, or before the first, are left to the scheduler's own contracts."""
        table = self._tables[name]
        for index in range(max(0, first), min(ceil_div(end, self._block_size), len(table))):
            yield index, table[index]

    def _as_handed_out(self, numbers: Sequence[int]) -> tuple[_Block, ...]:
        return tuple(_Block(number, self._turns.get(number, 0)) for number in numbers)

    def _transferred(self) -> dict[str, set[int]]:
        loads = {name: {block.number for block in one.blocks} for name, one in self._loads.items()}
        return {**self._sends, **loads}

    def update(self, outcome: UpdateOutcome, num_steps: int) -> Iterator[Delivery]:
        """Follow the output of the oldest steps in flight; yields what is to be judged of it."""
        reports = outcome.get("kv_reports") or [None] * num_steps
        self.thrown_back = set()
        self._failed = set()
        for report in reports[: len(self._steps)]:
            if report is not None:
                self._report(*report)
            yield Delivery(outcome["sampled"], self._steps.popleft().misread)
        for name in outcome["finished"]:
            self.ended(name)
        self._note_failures(outcome)

    def _report(self, received: str | None, sent: str | None, invalid: Sequence[int]) -> None:
        if received is not None:
            load = self._loads.pop(received)
            if invalid:
                self._failed.add(received)
                self._reach.meet("load failed")
            for block, tokens in zip(load.blocks, load.tokens, strict=True):
                if block.number not in invalid and self._is_current(block):
                    self._right[block.number] = tokens
        if sent is not None:
            del self._sends[sent]
        for step in self._steps:
            for name, request in step.requests.items():
                self._find_misread(step, name, request, set(invalid))

    def _find_misread(self, step: _Step, name: str, request: _Request, invalid: set[int]) -> None:
        read = request.blocks[: ceil_div(request.start, self._block_size)]
        wrong = next((index for index, one in enumerate(read) if one.number in invalid), None)
        if wrong is None or not self._is_current(read[wrong]):
            return
        step.misread.add(name)
        self.thrown_back.add(name)
        self._reach.meet("KV loaded within a step failed")
        for block in request.blocks[wrong:]:
            if self._is_current(block):
                self._right[block.number] = 0

    def _note_caching(self, outcome: StepOutcome) -> None:
        """Whether a request looks for a prefix that another one is loading."""
        for name, hit in outcome["kv_asked"]:
            if self._config.prefix_caching and any(
                hit <= load.hit and self._shares_first_block(name, other, load)
                for other, load in self._loads.items()
                if other != name
            ):
                self._reach.meet("caching put off until loaded")

    def _shares_first_block(self, name: str, other: str, load: _Load) -> bool:
        """Whether a request has all of the prompt up to the first block that another one loads."""
        end = (load.hit // self._block_size + 1) * self._block_size
        one, loading = self._added(name), self._added(other)
        return (
            load.tokens[0] == self._block_size
            and not one.skip_reading
            and min(one.prompt, loading.prompt) >= end
            and _beginning(one, end) == _beginning(loading, end)
        )

    def _note_failures(self, outcome: UpdateOutcome) -> None:
        """Meet the rare states of requests whose load has failed."""
        for name in self.thrown_back | self._failed:
            if self._config.kv_connector == "fail" and name in outcome["finished"]:
                self._reach.meet("ended for a failed load")
            elif name in self.thrown_back and name in outcome["running"]:
                self._reach.meet("thrown back for a failed load")

    def _note_frees(self, outcome: StepOutcome) -> None:
        """Meet the rare state of blocks that nobody holds any more, and that are not free."""
        holders = {*outcome["running"], *outcome["waiting"], *self._loads, *self._sends}
        held = {block for name in holders for block in self._tables.get(name, ())}
        if outcome["free_blocks"] + len(held) < self._config.num_blocks - 1:
            self._reach.meet("free put off")

    def _is_current(self, block: _Block) -> bool:
        return self._turns.get(block.number, 0) == block.turn


def _hit_of(name: str, outcome: StepOutcome) -> int:
    """Tokens that were found before the request asked what can be had elsewhere."""
    return next(hit for asked, hit in reversed(outcome["kv_asked"]) if asked == name)


def _beginning(request: Add, end: int) -> tuple[object, ...]:
    """What tells the first tokens of a prompt from those of another one of that length."""
    return request.salt, request.lora, [item for item in request.items if item.offset < end]
