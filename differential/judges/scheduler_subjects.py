"""What the contracts of a scheduler look at: records, put together from what a step decided."""

from collections.abc import Iterable, Sequence, Set
from functools import partial

from cacheproof.differential.judges.manager import CREDITS
from cacheproof.differential.judges.requests import embeds, size, tokens_max
from cacheproof.differential.judges.scheduler_items import (
    Advance,
    PromptItem,
    Stopping,
    UnspentBudget,
)
from cacheproof.differential.judges.scheduler_position import SchedulerPosition
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.outcomes import StepOutcome
from cacheproof.differential.traces.records import CallRecord
from cacheproof.differential.traces.scheduler import Chunk, SchedulerConfig
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.records import EncoderCacheState
from cacheproof.spec.scheduler_records import (
    Arrival,
    Claims,
    Fills,
    Inputs,
    Reads,
    Room,
    Span,
    Spending,
    Standing,
    StepPlan,
    Stops,
)
from cacheproof.spec.versions import Versions

_WITH_ITEMS = (Add, Chunk)
_NOTHING: frozenset[int] = frozenset()
_READS_NOTHING = Reads({}, frozenset(), {}, frozenset())
_DRAFTER_NEEDS_ALL = Versions("<0.24.0")
"""Releases whose drafter fails on an item that begins after the window and is not encoded, under
the first model runner; under the second it does without."""
_SECOND_DRAFTER_READS_NO_ITEM = Versions("<0.24.0")
"""Releases whose second model runner gives its drafter nothing of the items after the window."""


class Subjects:
    """Makes the records about one trace. Methods take the judge's position `at` as it is after the
    step, unless they say something else."""

    def __init__(
        self, trace: Trace, protocol: Protocol, facts: Semantics, release: str | None
    ) -> None:
        assert isinstance(trace.header.config, SchedulerConfig)
        config = self._config = trace.header.config
        self._protocol = protocol
        self._stopping = Stopping(config, facts, protocol)
        draft_reads = int(config.drafter and config.num_speculative_tokens > 0)
        drafter_stops = draft_reads > 0 and facts.scheduler.encodes_ahead
        # Items of prompts must not be split; an encoder-decoder's are in no prompt.
        is_decoder = trace.header.manager == "encoder_decoder"
        self.has_whole_items = config.disable_chunked_mm_input and not is_decoder
        first, second = trace.runner == "first", trace.runner == "second"
        # A lone request is padded with drafts, and there may be more of them than a step takes.
        drafts = facts.scheduler.pads_lone_requests * config.num_speculative_tokens
        self.named_stops = {
            "drafter": drafter_stops,
            "whole items": self.has_whole_items,
            "padded": drafts >= config.max_num_batched_tokens
            and not (drafter_stops or self.has_whole_items),
            "few blocks": any(
                self._blocks(tokens_max(event, config)) > config.num_blocks - 1
                for event in trace.events
                if isinstance(event, Add)
            ),
        }
        self._drafter_needs_all = first and is_one_of(release, _DRAFTER_NEEDS_ALL)
        reads_none = second and is_one_of(release, _SECOND_DRAFTER_READS_NO_ITEM)
        self._draft_items = 0 if reads_none else draft_reads
        self._largest_item = _largest_item(trace, protocol)
        # Releases raise the budget to the largest item, which is encoded in one step.
        self._encoder_budget = max(config.compute_budget, self._largest_item)

    def plan(self, at: SchedulerPosition, outcome: StepOutcome, advance: Advance) -> StepPlan:
        """Tokens and encodes of the step, beside what limits them."""
        requests = at.requests
        return StepPlan(
            self._config.max_num_batched_tokens,
            outcome["scheduled"],
            self._encoder_budget,
            {
                name: sum([requests[name].sizes[number] for number in inputs])
                for name, inputs in outcome["encode"].items()
            },
            int(self.has_whole_items),
            advance.windows,
            {name: requests[name].spans for name in advance.windows},
            self._config.max_num_seqs,
            len(outcome["running"]),
        )

    def inputs(self, at: SchedulerPosition, outcome: StepOutcome) -> Inputs:
        """The items that the step encodes and whose data the workers may lack."""
        encodes = {
            name: frozenset(numbers)
            for name, numbers in outcome["encode"].items()
            if name in at.withheld
        }
        return Inputs(encodes, {name: at.withheld[name] for name in encodes})

    def spending(
        self, at: SchedulerPosition, outcome: StepOutcome, calls: Sequence[CallRecord]
    ) -> Iterable[Spending]:
        """What admission is told is left of the compute budget, for each item to be admitted. An
        item that is allocated for a request which gives it back still counts where the step encodes
        it for another."""
        allocated = {(one.request, one.input) for one in calls if one.operation == "allocate"}
        handed_on = {
            at.requests[name].identifiers[number]
            for name, inputs in outcome["encode"].items()
            for number in inputs
            if (name, number) not in allocated
        }
        taken: dict[tuple[str, int], int] = {}
        for call in calls:
            name, number = call.request, call.input
            if name is None:
                continue
            if call.operation == "free":
                for other, item in [one for one in taken if one[0] == name]:
                    if at.requests[name].identifiers[item] not in handed_on:
                        del taken[other, item]
            elif number is None:
                continue
            elif call.operation == "allocate":
                taken[name, number] = at.requests[name].sizes[number]
            elif call.operation == "can":
                spent = sum(taken.values())
                yield Spending(self._encoder_budget, call.budget or 0, call.pending or 0, spent)

    def kept(self, at: SchedulerPosition, calls: Iterable[CallRecord]) -> Set[str]:
        """The entries that cache and store have before the step, and that these calls do not take
        out of the cache."""
        if not isinstance(at.state, EncoderCacheState):
            return frozenset()
        kept = at.state.size.keys() & at.ghost.stored.keys()
        for call in calls:
            if call.delta is not None:
                kept.difference_update(name for name, now in call.delta.entries.items() if not now)
        return kept

    def fills(self, at: SchedulerPosition, outcome: StepOutcome, kept: Set[str]) -> Fills:
        """What the step's encodes and loads fill."""
        filled = tuple(
            at.requests[name].identifiers[number]
            for inputs_by_request in (outcome["encode"], outcome.get("loads", {}))
            for name, inputs in inputs_by_request.items()
            for number in inputs
        )
        return Fills(filled, kept)

    def reads(self, at: SchedulerPosition, advance: Advance, fills: Fills) -> Reads:
        """What the target model and the drafter read in the step."""
        if not advance.windows:
            return _READS_NOTHING
        state = at.state
        resident = state.size if isinstance(state, EncoderCacheState) else ()
        pending = () if self._protocol.keyed_by_identifier else state.notices
        wanted: dict[str, Set[str]] = {}
        claimed: dict[str, Set[str]] = {}
        for name, window in advance.windows.items():
            numbers = self._read(at, name, window)
            if numbers:
                wanted[name] = _identifiers(at, name, numbers)
                of_these = numbers & at.claims.get(name, frozenset())
                claimed[name] = _identifiers(at, name, of_these)
        if not wanted:
            # The very same record, which the judge does not ask about again.
            return _READS_NOTHING
        return Reads(wanted, {*resident, *pending, *fills.filled}, claimed, at.dropped)

    def claims(self, at: SchedulerPosition, advance: Advance) -> Claims:
        """Which occurrences the target model reads in the step, and who has claimed them."""
        reads = {
            name: set(at.requests[name].read_in(*window))
            for name, window in advance.windows.items()
        }
        return Claims(reads, {name: at.claims.get(name, _NOTHING) for name in reads})

    def stops(
        self,
        at: SchedulerPosition,
        plan: StepPlan,
        advance: Advance,
        outcome: StepOutcome,
        calls: Iterable[CallRecord],
        rest: UnspentBudget,
    ) -> Stops:
        """Where items ended the step's windows, or may have."""
        refused = {
            call.request: at.requests[call.request].offsets[call.input]
            for call in calls
            if call.operation == "can" and call.answer is False
            if call.request is not None and call.input is not None
            if call.request in advance.ends
        }
        preempted = bool(outcome["preempted"])
        items = partial(self.items, at)
        return self._stopping.judge(plan, advance, refused, items, rest, preempted=preempted)

    def items(self, at: SchedulerPosition, name: str) -> list[PromptItem]:
        """The items of a request, as admission sees them after the step."""
        request, state = at.requests[name], at.state
        resident = state.size if isinstance(state, EncoderCacheState) else ()
        own = dict(zip(request.identifiers, request.sizes, strict=True))
        known = at.ghost.size
        return [
            PromptItem(
                offset,
                end - offset,
                size,
                identifier in resident,
                known.get(identifier, own[identifier]) != size,
            )
            for identifier, offset, end, size in zip(
                request.identifiers, request.offsets, request.ends, request.sizes, strict=True
            )
        ]

    def rest(
        self, at: SchedulerPosition, plan: StepPlan, calls: Iterable[CallRecord], capacity: int
    ) -> UnspentBudget:
        """What the step leaves of its budgets and of the cache."""
        return UnspentBudget(
            plan.token_budget - sum(plan.tokens.values()),
            plan.encoder_budget - sum(plan.encodes.values()),
            _slots_left(at, calls, capacity) if self._protocol.releases_on_update else None,
        )

    def arrival(self, event: Add | Chunk, capacity: int) -> Arrival:
        """What the request, or the chunk, asks for."""
        config = self._config
        together = 1
        if not config.chunked_prefill:
            together = event.prompt
        elif config.disable_chunked_mm_input:
            together = max((item.length for item in event.items), default=1)
        return Arrival(
            event.prompt,
            config.max_model_len,
            max(map(embeds, event.items), default=0),
            capacity,
            self._encoder_budget,
            self._blocks(tokens_max(event, config)),
            config.num_blocks - 1,
            together,
            config.max_num_batched_tokens,
        )

    def room(self, capacity: int) -> Room:
        """How large the encoder cache is that the scheduler has made."""
        return Room(self._config.capacity, self._largest_item, capacity)

    def standing(self, at: SchedulerPosition, outcome: StepOutcome) -> Standing:
        """How the step leaves the engine."""
        state = at.state
        return Standing(
            tuple(outcome["running"]),
            tuple(outcome["waiting"]),
            outcome["free_blocks"],
            state.free_slots,
            state.freeable_slots if isinstance(state, EncoderCacheState) else state.free_slots,
        )

    def _read(self, at: SchedulerPosition, name: str, window: Span) -> Set[int]:
        """Items that the step reads of a request."""
        request = at.requests[name]
        return {
            number
            for number in request.read_in(window.start, window.end + self._draft_items)
            if request.offsets[number] < window.end or self._drafter_needs_all
        }

    def _blocks(self, tokens: int) -> int:
        """KV blocks for `tokens` tokens in groups that give none back."""
        groups = sum(group.kind == "full" for group in self._config.groups)
        return -(-tokens // self._config.block_size) * (groups if self._config.groups else 1)


def is_one_of(release: str | None, releases: Versions) -> bool:
    """Whether a target is a release, and one of `releases`."""
    return release is not None and release in releases


def _identifiers(at: SchedulerPosition, name: str, numbers: Iterable[int]) -> Set[str]:
    return {at.requests[name].identifiers[number] for number in numbers}


def _slots_left(at: SchedulerPosition, calls: Iterable[CallRecord], capacity: int) -> int | None:
    """Slots that a step leaves to admissions; None where it gave some back on the way, which hides
    what each admission could have had."""
    if not isinstance(at.state, EncoderCacheState):
        return capacity - sum(at.ghost.debits.values())
    for call in calls:
        if call.operation in CREDITS and call.delta is not None:
            return None
    return at.state.freeable_slots


def _largest_item(trace: Trace, protocol: Protocol) -> int:
    """Embeddings of the trace's largest item: it stands for the model's, which must be encoded."""
    return max(
        (
            size(item, protocol)
            for event in trace.events
            if isinstance(event, _WITH_ITEMS)
            for item in event.items
        ),
        default=0,
    )
