"""Judges a scheduler: the contracts of its manager at every call, and its own after every event."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from functools import partial
from typing import Any

from cacheproof.differential.judges.kv_transfers import KVTransferMirror
from cacheproof.differential.judges.limits import service, way_of
from cacheproof.differential.judges.manager import CREDITS, Judge, Rules
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.scheduler_items import Item, Rest, Stopping
from cacheproof.differential.judges.scheduler_kv import KVMirror, follows
from cacheproof.differential.judges.scheduler_order import Order
from cacheproof.differential.judges.scheduler_rare import RareStates
from cacheproof.differential.targets.host.protocol import REFUSED, Protocol
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.records import CallRecord, Raised, StepRecord
from cacheproof.differential.traces.scheduler import (
    Abort,
    Chunk,
    Elsewhere,
    Pause,
    ResetPrefix,
    Schedule,
    SchedulerConfig,
    Transfer,
)
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import offered_by
from cacheproof.spec.kv_transfers import Reading, Writing
from cacheproof.spec.records import EncoderCacheState, RowsRead, SlotsRead, StoreMemory, Twins
from cacheproof.spec.scheduler import (
    Answer,
    Arrival,
    Claims,
    Fills,
    Inputs,
    Overtaking,
    Plan,
    Presence,
    Reads,
    References,
    Span,
    Spending,
    Standing,
    Stops,
    Stretch,
    Telling,
    Turn,
    Victims,
)
from cacheproof.spec.scheduler_kv import Holding, KVReads, Progress
from cacheproof.spec.versions import Versions

_LETTERS: Mapping[type, str] = {
    Plan: "w",
    Reads: "w",
    Fills: "w",
    Stops: "w",
    Overtaking: "w",
    Inputs: "w",
    Telling: "w",
    Claims: "w",
    Spending: "w",
    Victims: "w",
    Progress: "w",
    KVReads: "w",
    Holding: "w",
    References: "s",
    Presence: "s",
    Writing: "w",
    Reading: "w",
    Twins: "p",
    RowsRead: "w",
    SlotsRead: "w",
    StoreMemory: "w",
}
_WITH_ITEMS = (Add, Chunk)
_NOBODY: Set[str] = frozenset()
_NOTHING: frozenset[int] = frozenset()
_FILLS_NOTHING = Fills((), frozenset())
_READS_NOTHING = Reads({}, frozenset(), {}, frozenset())
_ALL_SENT = Inputs({}, {})
_LEDGER = frozenset({"EC-1", "EC-2"})
"""What a manager breaks whose slots do not add up any more."""
_DRAFTER_NEEDS_ALL = Versions("<0.24.0")
"""Releases whose drafter fails on an item that begins behind the window and is not encoded, under
the first model runner; under the second it does without."""
_SECOND_DRAFTER_READS_NO_ITEM = Versions("<0.24.0")
"""Releases whose second model runner gives its drafter nothing of the items behind the window."""
_SECOND_RUNNER_KEEPS_OUTPUTS = Versions(">=0.28.0")
"""Releases whose second model runner encodes no item whose output it has; the first encodes it, and
takes the new output for the old one."""


class SchedulerJudge(Judge):
    """Judges one trace at scheduler depth."""

    def __init__(
        self,
        trace: Trace,
        rules: Rules,
        reach: Reachability,
        protocol: Protocol,
        release: str | None,
    ) -> None:
        super().__init__(trace, rules, reach, protocol)
        assert isinstance(trace.header.config, SchedulerConfig)
        self._trace = trace
        config = self._config = trace.header.config
        facts = offered_by(release)
        self._order = Order(config, facts)
        self._stopping = Stopping(config, facts)
        self._draft_reads = int(config.drafter and config.num_speculative_tokens > 0)
        self._drafter_stops = self._draft_reads > 0 and facts.scheduler.encodes_ahead
        # Items of prompts must not be split; an encoder-decoder's are in no prompt.
        self._has_whole_items = config.disable_chunked_mm_input and not self._is_decoder
        needs_all = _is_one_of(release, _DRAFTER_NEEDS_ALL)
        self._drafter_needs_all = needs_all and trace.runner == "first"
        self._keeps_outputs = trace.runner == "second" and _is_one_of(
            release, _SECOND_RUNNER_KEEPS_OUTPUTS
        )
        reads_none = _is_one_of(release, _SECOND_DRAFTER_READS_NO_ITEM) and trace.runner == "second"
        self._draft_items = 0 if reads_none else self._draft_reads
        self._prompts: dict[str, int] = {}
        self._claims: dict[str, set[int]] = {}
        self._dropped: set[str] = set()
        self._encoder_budget = max(self._config.compute_budget, _largest_item(trace, protocol))
        self._paused = False
        self._resumable: set[str] = set()
        self._pending: set[str] = set()
        self._in_vain: set[str] = set()
        self._stood: Standing | None = None
        self._steps_without_token = 0
        self._preempted: set[str] = set()
        self._withheld: dict[str, frozenset[int]] = {}
        self._present: set[str] = set()
        self._resumed: set[str] = set()
        self._ran: list[str] = []
        self._kv_blocks = (
            KVMirror(config, self._order.added)
            if follows(config, is_decoder=self._is_decoder)
            else None
        )
        self._rare = RareStates(reach.meet, config, self._order.added)
        self._kv = (
            None
            if self._config.kv_connector is None
            else KVTransferMirror(config, self._order.added, reach)
        )

    def position(self) -> tuple[Any, ...]:
        """As of a manager's judge, without KV transfers and what says in which kind a contract
        breaks."""
        return (
            *super().position(),
            self._order.position(),
            self._running,
            self._prompts,
            self._claims,
            self._dropped,
            self._paused,
            self._pending,
            self._in_vain,
            self._stood,
            self._steps_without_token,
            self._preempted,
            self._withheld,
            self._present,
        )

    def go_to(self, position: tuple[Any, ...]) -> None:
        of_manager = position[: len(super().position())]
        (
            order,
            self._running,
            self._prompts,
            self._claims,
            self._dropped,
            self._paused,
            self._pending,
            self._in_vain,
            self._stood,
            self._steps_without_token,
            self._preempted,
            self._withheld,
            self._present,
        ) = position[len(of_manager) :]
        super().go_to(of_manager)
        self._order.go_to(order)

    def forget(self, is_there: Callable[[str], bool]) -> None:
        """Forget the requests that are gone, so that their names can come again. No step in flight
        has them."""
        for name in [name for name in self._requests if not is_there(name)]:
            del self._requests[name], self._prompts[name]
            self._order.forget(name)
            self._claims.pop(name, None)
            self._preempted.discard(name)
            self._withheld.pop(name, None)

    def judge(self, number: int, event: Any, record: StepRecord) -> None:
        outcome = record[0]
        if self._kv is not None and outcome is not None:
            self._event = number
            self._judge_transfers(self._kv, event, outcome)
        super().judge(number, event, record)
        kind = type(event)
        if isinstance(outcome, dict) and "running" in outcome:
            self._ran = outcome["running"]
            self._judge_presence(event, outcome)
            if self._kv_blocks is not None:
                self._kv_blocks.keep({*self._ran, *outcome["waiting"]})
        if self._kv_blocks is not None and kind is ResetPrefix and event.running and outcome:
            self._kv_blocks.keep(())
        if kind is Schedule:
            return
        if kind is not Update or (outcome is not None and outcome["sampled"]):
            self._stood = None
            self._steps_without_token = 0

    def _schedule(self, event: Any, outcome: Any, calls: Any) -> None:
        # About an item, or the state has changed.
        telling = [call for call in calls if call[2] is not None or call[6] is not None]
        fills = outcome is not None and bool(outcome["encode"] or outcome.get("loads"))
        kept = self._kept(telling) if fills else None
        super()._schedule(event, outcome, calls)
        if outcome is None:
            return
        plan = self._plan(outcome)
        self._check("schedule", plan)
        self._rare.schedule(outcome)
        inputs = self._inputs(outcome)
        self._check("schedule", inputs, lambda: self._withholding(inputs, outcome))
        encodes, total = outcome["encode"], outcome["total"]
        told = Telling(plan.tokens, outcome["drafts"], encodes, total)
        self._check("schedule", told, lambda: self._overdrafting(told))
        if outcome["preempted"]:
            self._check("schedule", self._order.victims(outcome["preempted"], self._ran))
        if not self._config.ec_connector:
            self._judge_spending(telling)
        for subject in () if self._kv_blocks is None else self._kv_blocks.schedule(outcome):
            self._check("schedule", subject, partial(self._misreading, subject, outcome))
        rest = self._rest(plan, telling)
        if not self._is_decoder:  # whose items are in no prompt
            self._judge_items(plan, outcome, telling, kept, rest)
        if self._kv is None:
            self._check(
                "schedule", self._order.judge(outcome, self._in_flight[:-1], self._items, rest)
            )
        self._note_claims(outcome, telling)
        if self._has_whole_items:
            self._note_whole_items(plan, outcome)
        self._judge_progress(outcome)

    def _update(self, event: Update, outcome: Any, calls: Any) -> None:
        super()._update(event, outcome, calls)
        if outcome is None:
            return
        if self._kv_blocks is not None:
            self._kv_blocks.update(outcome["sampled"])
        self._rare.update(outcome, () if self._kv is None else self._kv.thrown_back)
        if isinstance(self._state, EncoderCacheState):
            held = References(set(outcome["running"]), self._state.holders)
            self._check("update", held, lambda: self._holding(held, outcome["waiting"]))

    def _judge_presence(self, event: Any, outcome: Mapping[str, Any]) -> None:
        """Judge who is there behind an event; a session is there between its turns, which end."""
        if isinstance(event, Add) and not event.resumable:
            self._present = self._present | {event.request}
        ended = {event.request} if isinstance(event, Abort) else outcome.get("finished", ())
        self._present = self._present.difference(ended)
        there = {*outcome["running"], *outcome["waiting"]} - self._resumable
        operation = type(event).__struct_config__.tag
        self._check(operation, Presence(self._present, there))

    def _judge_transfers(self, kv: KVTransferMirror, event: Any, outcome: Any) -> None:
        """Judge what an event does with KV that comes from elsewhere, before all else: what a step
        misread is no progress."""
        if isinstance(event, Elsewhere):
            kv.elsewhere(event.request, event.tokens)
        elif isinstance(event, Abort):
            kv.ended(event.request)
        elif isinstance(event, Schedule):
            for subject in kv.schedule(outcome):
                self._check("schedule", subject)
        elif isinstance(event, Update):
            for output in kv.update(outcome, event.steps):
                self._check("update", output)
            for name in kv.thrown_back:
                self._requests[name].computed = 0

    @property
    def _ended_last(self) -> Set[str]:
        return _NOBODY if self._kv is None else self._kv.ended_last

    def _suspects(self) -> str:
        """What may keep a chunk from its item: kinds in which steps stop. Where the manager has
        lost slots, nothing else is needed."""
        if not _LEDGER.isdisjoint(self.violations):
            return "lost slots"
        named = {"drafter": self._drafter_stops, "whole items": self._has_whole_items}
        return " + ".join(name for name, is_there in named.items() if is_there)

    def _note_claims(self, outcome: Mapping[str, Any], calls: Iterable[CallRecord]) -> None:
        """Note who claims a hit in vain, and who was preempted and has claimed nothing since."""
        preempted = outcome["preempted"]
        claimed = {call[1] for call in calls if call[0] == "check" and call[5]}
        if claimed.difference(preempted, outcome["running"]):
            self._reach.meet("stalled after a claim")
        if self._preempted:
            allocated = [call[1] for call in calls if call[0] == "allocate"]
            self._preempted = self._preempted.difference(claimed, allocated)
        if preempted:
            self._preempted = self._preempted.union(preempted)

    def _note_whole_items(self, plan: Plan, outcome: Mapping[str, Any]) -> None:
        """Note who stands at an item that its step does not hold whole."""
        for name in outcome["running"]:
            request = self._requests[name]
            window = plan.windows.get(name)
            start, stop = (request.computed, request.computed) if window is None else window
            for offset, end in request.spans if start < request.end_of_items else ():
                if offset == start and end > stop:
                    self._reach.meet("whole item that does not fit")

    def _holding(self, held: References, waiting: Collection[str]) -> str:
        """Which of those that do not run hold entries: kinds in which they are not given back."""
        names = {name for holders in held.holders.values() for name in holders} - held.running
        if not names & set(waiting):
            return "after the end"
        if names & self._preempted:
            return "after a preemption"
        return "between turns" if names & self._resumable else "while waiting"

    def _raised(self, event: Any, calls: Iterable[CallRecord], raised: Raised) -> None:
        """Of a manager that raised the manager's contracts speak, of any other the scheduler's."""
        if any(isinstance(call[5], dict) for call in calls):
            super()._raised(event, calls, raised)
            return
        operation = type(event).__struct_config__.tag
        if raised[0].startswith(REFUSED):
            refused = service(self._trace, raised[0].removeprefix(REFUSED))
            self._check(operation, refused, lambda: way_of(raised[1]))
            return
        self._check(operation, Answer(raised[0]), lambda: f"{raised[0]} in {operation}")

    def _check(self, operation: str, subject: Any, kind: Callable[[], str] = str) -> None:
        """Judge a subject by all that speak of it; `kind` says in which way one is broken."""
        self.calls_judged += 1
        for rule, holds in self._rules.of_scheduler.get(type(subject), ()):
            if not holds(subject):
                values = {_LETTERS.get(type(subject), "c"): subject}
                self._broken(rule, values, operation, "", "", kind())

    def _plan(self, outcome: Mapping[str, Any]) -> Plan:
        tokens, computed = outcome["scheduled"], outcome["computed"]
        windows = {name: Span(start, start + tokens[name]) for name, start in computed.items()}
        requests = self._requests
        return Plan(
            self._config.max_num_batched_tokens,
            tokens,
            self._encoder_budget,
            {
                name: sum([requests[name].sizes[number] for number in inputs])
                for name, inputs in outcome["encode"].items()
            },
            int(self._has_whole_items),
            windows,
            {name: requests[name].spans for name in windows},
            self._config.max_num_seqs,
            len(outcome["running"]),
        )

    def _judge_items(
        self,
        plan: Plan,
        outcome: Mapping[str, Any],
        calls: Iterable[CallRecord],
        kept: Set[str] | None,
        rest: Rest,
    ) -> None:
        """Judge what the step fills and reads, and where items stop it. It fills nothing where
        nobody asked what was `kept`."""
        fills = _FILLS_NOTHING if kept is None else self._fills(outcome, kept)
        self._check("schedule", fills)
        self._follow(outcome, calls)
        self._check("schedule", self._reads(plan, fills))
        self._check("schedule", self._claimed(plan))
        stops = self._stops(plan, outcome, calls, rest)
        self._check("schedule", stops)
        self._rare.stops(stops, self._items, rest)

    def _judge_spending(self, calls: Iterable[CallRecord]) -> None:
        """Judge what each item to be admitted is told to be left of the compute budget."""
        taken: dict[str | None, int] = {}
        for operation, name, number, budget, pending, _, _ in calls:
            if operation == "free":
                taken.pop(name, None)
            elif name is None or number is None:
                continue
            elif operation == "allocate":
                taken[name] = taken.get(name, 0) + self._requests[name].sizes[number]
            elif operation == "can":
                self._check(
                    "schedule",
                    Spending(self._encoder_budget, budget or 0, pending or 0, sum(taken.values())),
                )

    def _inputs(self, outcome: Mapping[str, Any]) -> Inputs:
        """What the step encodes that the workers may lack."""
        if not self._withheld and "withheld" not in outcome and "dropped" not in outcome:
            return _ALL_SENT
        told = outcome["told_new"]
        for name in told:
            self._withheld.pop(name, None)
        self._resumed = self._resumed.union(outcome["resumed"]).difference(told)
        for word in ("withheld", "dropped"):
            for name, numbers in outcome.get(word, {}).items():
                self._withheld[name] = self._withheld.get(name, _NOTHING).union(numbers)
        for name, numbers in outcome.get("sent_again", {}).items():
            self._withheld[name] = self._withheld.get(name, _NOTHING).difference(numbers)
        encodes = {
            name: frozenset(numbers)
            for name, numbers in outcome["encode"].items()
            if name in self._withheld
        }
        return Inputs(encodes, {name: self._withheld[name] for name in encodes})

    def _misreading(self, subject: Progress | KVReads | Holding, outcome: Mapping[str, Any]) -> str:
        """Whether all that is read wrongly are blocks that a preemption left; whether it is
        sessions alone that read KV that is not theirs, have no slots for their tokens, or have left
        all queues with their blocks: kinds in which that is."""
        if isinstance(subject, KVReads):
            places = {
                (name, block)
                for name, blocks in subject.reads.items()
                for block, count in blocks.items()
                if count > subject.right[name][block]
            }
            wrong = {name for name, _ in places}
            joins = wrong <= {*outcome["new"], *outcome["resumed"]}
            mirror = self._kv_blocks
            if joins and mirror is not None and all(mirror.was_left(*one) for one in places):
                return "left by a preemption"
        elif isinstance(subject, Holding):
            wrong = {name for name, end in subject.ends.items() if end > subject.slots[name]}
            if not wrong and self._resumable - {*outcome["running"], *outcome["waiting"]}:
                return "a lost session"
        else:
            return ""
        return "in a session" if wrong and wrong <= self._resumable else ""

    def _overdrafting(self, told: Telling) -> str:
        """Whether all who have no token beside their drafts join the step: kinds in which that
        is."""
        wrong = {name for name, drafts in told.drafts.items() if drafts >= told.tokens.get(name, 0)}
        return "as they join" if wrong and wrong.isdisjoint(self._ran) else ""

    def _withholding(self, inputs: Inputs, outcome: Mapping[str, Any]) -> str:
        """When a request needs what was withheld: kinds in which that is."""
        lacking = {name for name in inputs.encodes if inputs.encodes[name] & inputs.withheld[name]}
        if not lacking.isdisjoint(outcome["told_new"]):
            return "at once"
        return "after a preemption" if lacking & self._resumed else "while it runs"

    def _kept(self, calls: Iterable[CallRecord]) -> Set[str]:
        """Entries that cache and store have, and that these calls do not make the cache lose."""
        if not isinstance(self._state, EncoderCacheState):
            return frozenset()
        kept = self._state.size.keys() & self.ghost.stored.keys()
        for *_, delta in calls:
            if delta is not None:
                kept.difference_update(name for name, now in delta[2].items() if not now)
        return kept

    def _fills(self, outcome: Mapping[str, Any], kept: Set[str]) -> Fills:
        """What the step's encodes and loads fill."""
        requests = self._requests
        filled = tuple(
            requests[name].identifiers[number]
            for inputs_by_request in (outcome["encode"], outcome.get("loads", {}))
            for name, inputs in inputs_by_request.items()
            for number in inputs
        )
        return Fills(filled, kept)

    def _follow(self, outcome: Mapping[str, Any], calls: Iterable[CallRecord]) -> None:
        """Note what the step's requests claim, and what its notices drop."""
        self._dropped.update(outcome["notices"])
        for operation, name, number, _, _, answer, _ in calls:
            if name is None or number is None:
                continue
            if operation == "allocate" or (operation == "check" and answer is True):
                self._claims.setdefault(name, set()).add(number)
                if operation == "allocate":
                    self._dropped.discard(self._requests[name].identifiers[number])
        self._claims = {name: self._claims.get(name, set()) for name in outcome["running"]}

    def _reads(self, plan: Plan, fills: Fills) -> Reads:
        """What target model and drafter read in the step."""
        state, protocol, claims = self._state, self.protocol, self._claims
        resident = state.size if isinstance(state, EncoderCacheState) else ()
        pending = () if protocol.keyed_by_identifier else state.notices
        wanted: dict[str, Set[str]] = {}
        claimed: dict[str, Set[str]] = {}
        for name, window in plan.windows.items():
            if window.start < self._requests[name].end_of_items:
                numbers = self._read(name, window)
                if numbers:
                    wanted[name] = self._identifiers(name, numbers)
                    claimed[name] = self._identifiers(name, numbers & claims.get(name, frozenset()))
        if not wanted:
            return _READS_NOTHING
        return Reads(wanted, {*resident, *pending, *fills.filled}, claimed, self._dropped)

    def _claimed(self, plan: Plan) -> Claims:
        """Which occurrences the target model reads in the step, and who has claimed them."""
        reads = {
            name: set(request.read_in(*window))
            for name, window in plan.windows.items()
            if window.start < (request := self._requests[name]).end_of_items
        }
        return Claims(reads, {name: self._claims.get(name, _NOTHING) for name in reads})

    def _read(self, name: str, window: Span) -> Set[int]:
        """Items that the step reads of a request."""
        request = self._requests[name]
        return {
            number
            for number in request.read_in(window.start, window.end + self._draft_items)
            if request.offsets[number] < window.end or self._drafter_needs_all
        }

    def _identifiers(self, name: str, numbers: Iterable[int]) -> Set[str]:
        return {self._requests[name].identifiers[number] for number in numbers}

    def _stops(
        self,
        plan: Plan,
        outcome: Mapping[str, Any],
        calls: Iterable[CallRecord],
        rest: Rest,
    ) -> Stops:
        """Where items ended the step's windows, or may have."""
        requests = self._requests
        refused = {
            name: requests[name].offsets[number]
            for operation, name, number, *_, answer, _ in calls
            if operation == "can" and answer is False
            if name is not None and number is not None and name in plan.windows
        }
        preempted = bool(outcome["preempted"])
        return self._stopping.judge(
            plan, refused, self._prompts, self._items, rest, preempted=preempted
        )

    def _stored_anew(self, notices: tuple[str, ...]) -> dict[str, int]:
        """The second model runner keeps what it has, where an item is encoded that is there."""
        if self._is_decoder or not self._keeps_outputs:
            return self._encoded
        kept = self.ghost.stored.keys() - set(notices)
        return {entry: size for entry, size in self._encoded.items() if entry not in kept}

    def _items(self, name: str) -> list[Item]:
        """The items of a request, as admission sees them behind the step."""
        request, state = self._requests[name], self._state
        resident = state.size if isinstance(state, EncoderCacheState) else ()
        own = dict(zip(request.identifiers, request.sizes, strict=True))
        known = self.ghost.size
        return [
            Item(
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

    def _rest(self, plan: Plan, calls: Iterable[CallRecord]) -> Rest:
        return Rest(
            plan.token_budget - sum(plan.tokens.values()),
            plan.encoder_budget - sum(plan.encodes.values()),
            self._slots_left(calls) if self.protocol.releases_on_update else None,
        )

    def _slots_left(self, calls: Iterable[CallRecord]) -> int | None:
        """Slots that a step leaves to admissions; None where it gave some back on the way, which
        hides what each admission could have had."""
        if not isinstance(self._state, EncoderCacheState):
            return self._capacity - sum(self.ghost.debits.values())
        for call in calls:
            if call[0] in CREDITS and call[6] is not None:
                return None
        return self._state.freeable_slots

    def _add(self, event: Add, outcome: Any, calls: Any) -> None:
        super()._add(event, outcome, calls)
        if outcome is not None:
            self._order.add(event)
            self._prompts[event.request] = event.prompt
            if event.resumable:
                self._resumable.add(event.request)
            self._check("add", self._arrival(event))

    def _chunk(self, event: Chunk, outcome: Any, calls: Any) -> None:
        super()._chunk(event, outcome, calls)
        if outcome is not None:
            self._check("chunk", self._arrival(event))

    def _pause(self, event: Pause, outcome: Any, calls: Any) -> None:
        super()._pause(event, outcome, calls)
        self._paused = event.mode != "none"

    def _transfer(self, event: Transfer, outcome: Any, calls: Any) -> None:
        super()._transfer(event, outcome, calls)
        self._pending.discard(event.identifier)
        if event.state == "pending":
            self._pending.add(event.identifier)
        self._in_vain.update(outcome)

    def _go_on(self, continued: Iterable[tuple[str, int]]) -> None:
        for request_id, first in continued:
            self._prompts[request_id] = first + self._chunks[request_id][0].prompt
        super()._go_on(continued)

    def _reset(self, event: Any, outcome: Any, calls: Any) -> None:
        super()._reset(event, outcome, calls)
        self._dropped.clear()

    def _arrival(self, event: Add | Chunk) -> Arrival:
        """What the request, or the chunk, asks for."""
        config = self._config
        sizes = [
            item.length if item.is_embed is None else sum(item.is_embed) for item in event.items
        ]
        together = 1
        if not config.chunked_prefill:
            together = event.prompt
        elif config.disable_chunked_mm_input:
            together = max((item.length for item in event.items), default=1)
        return Arrival(
            event.prompt,
            config.max_model_len,
            max(sizes, default=0),
            self._capacity,
            self._encoder_budget,
            self._blocks(self._tokens_max(event)),
            config.num_blocks - 1,
            together,
            config.max_num_batched_tokens,
        )

    def _blocks(self, tokens: int) -> int:
        """KV blocks for so many tokens in groups that give none back."""
        groups = sum(group.kind == "full" for group in self._config.groups)
        return -(-tokens // self._config.block_size) * (groups if self._config.groups else 1)

    def _tokens_max(self, event: Add | Chunk) -> int:
        """Tokens that the prompt and what is decoded from it may come to."""
        return min(event.prompt + event.max_tokens, self._config.max_model_len)

    def _judge_progress(self, outcome: Mapping[str, Any]) -> None:
        """Judge whether steps get on, where nothing is in their way."""
        stood, self._stood = self._stood, None
        names = [*outcome["running"], *outcome["waiting"]]
        waits = not (self._resumable.isdisjoint(names) and self._in_vain.isdisjoint(names))
        awaits = self._pending or (self._kv is not None and self._kv.is_waiting)
        if self._paused or awaits or waits:
            self._steps_without_token = 0
            return  # a session may wait for more prompt; who waits in vain is ended by updates
        if outcome["scheduled"]:
            self._steps_without_token += 1
            steps_max = sum(map(self._tokens_max, map(self._order.added, names)))
            self._check("schedule", Stretch(self._steps_without_token, steps_max))
        if not any(self._in_flight[:-1]) and not outcome.get("rejected"):
            self._judge_turn(outcome, stood)  # the rejected end with the next update

    def _judge_turn(self, outcome: Mapping[str, Any], stood: Standing | None) -> None:
        """Judge the second of two steps in a row that are decided with nothing outstanding."""
        tokens = sum(outcome["scheduled"].values())
        if stood is None and tokens:
            return
        state = self._state
        stands = Standing(
            tuple(outcome["running"]),
            tuple(outcome["waiting"]),
            outcome["free_blocks"],
            state.free_slots,
            state.freeable_slots if isinstance(state, EncoderCacheState) else state.free_slots,
        )
        if stood is not None:
            requests = len(stands.running) + len(stands.waiting)
            self._check("schedule", Turn(tokens, requests, stood, stands), self._suspects)
        if tokens == 0:
            self._stood = stands


def _is_one_of(release: str | None, releases: Versions) -> bool:
    return release is not None and release in releases


def _largest_item(trace: Trace, protocol: Protocol) -> int:
    """Embeddings of the trace's largest item: it stands for the model's, which must be encoded."""
    return max(
        (
            item.length
            if item.is_embed is None or not protocol.counts_embeds
            else sum(item.is_embed)
            for event in trace.events
            if isinstance(event, _WITH_ITEMS)
            for item in event.items
        ),
        default=0,
    )
