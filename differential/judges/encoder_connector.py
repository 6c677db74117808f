"""Judges connectors of external encoder caches: each promise against what came of it, and rows
against what their engine would have encoded."""

import errno
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.rules import Subject, about, by_subject
from cacheproof.differential.judges.violation import Violation, first_of_each
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.encoder_connector import (
    AbortPlanned,
    Ask,
    EncoderConnectorConfig,
    EncoderConnectorEvent,
    Execute,
    NewWeights,
    Plan,
    Reach,
    Spoil,
    Start,
    Stop,
)
from cacheproof.differential.traces.outcomes import ExecuteOutcome, PlanOutcome, Rest, ServedRows
from cacheproof.differential.traces.records import Raised, StepRecord
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.encoder_connector.entry_file import ITEMSIZE
from cacheproof.spec.encoder_connector import (
    COMPONENT,
    Answers,
    Asked,
    AtRest,
    Called,
    EncoderOutput,
    Files,
    Pins,
    Promised,
    Served,
    StoreRoom,
)
from cacheproof.spec.registry import contracts

BESIDE_ROWS = 1024
"""Bytes of an entry beside its rows, at most."""
AFTER_KILL, AFTER_AWAY, AFTER_SPOIL = DISTURBED = (
    "after an engine was killed",
    "after the store was out of reach",
    "after a file was spoiled",
)
"""What can have been done to a store, the worst last."""
TOLD_APART = frozenset({"EX-1", "EX-3", "EX-4", "EX-5", "EX-12"})
"""Contracts whose breaks are told apart by what was done to the store before."""
RESET = "EX-7"
OUT_OF_REACH = "reset while the store was out of reach"
"""A kind of break of that: nothing could be removed then."""
OF_PREEMPTED = "of the preempted"
OF_MORE_ROWS = "of more rows than it has"
DOES_NOT_ANSWER = "DoesNotAnswer"
"""What a call that does not end is said to have raised."""
TOO_LONG = os.strerror(errno.ENAMETOOLONG)
"""Message of an exception for a name that no file can have, regardless of the store."""
NOBODY = "nobody"
"""Owner of rows that say nothing that the trace knows."""

Entry = tuple[str, tuple[str, int, str, int]]
"""An identifier and its model: name, width, dtype, and the version of the weights that it was
started with."""


@dataclass
class PlannedStep:
    """A step that is planned: what it loads, and what it encodes."""

    loads: list[str]
    encodes: list[str]


@dataclass
class JudgedEngine:
    """An engine that runs."""

    model: int
    weights: int
    planned: deque[PlannedStep] = field(default_factory=deque)
    saving: list[Entry] = field(default_factory=list)


class EncoderConnectorJudge:
    """Judges one trace. `by_kind` holds the first violation of each contract and kind;
    `calls_judged` counts promises, rows and other records that were judged."""

    state = None
    stored: Mapping[str, int] = {}
    resident_sum = 0

    def __init__(self, trace: Trace, release: str | None, reach: Reachability) -> None:
        config = trace.header.config
        assert isinstance(config, EncoderConnectorConfig)
        self.by_kind: dict[tuple[str, str], Violation] = {}
        self.calls_judged = 0
        self._config, self._reach = config, reach
        self._rows = {item.identifier: item.rows for item in config.items}
        self._gaps = {item.identifier: item.gaps for item in config.items}
        self._rules = by_subject(contracts(COMPONENT, release))
        self._engines: dict[str, JudgedEngine] = {}
        self._weights = [1] * len(config.models)
        self._is_reached = True
        self._reset_out_of_reach: set[int] = set()
        self._saved: dict[Entry, str] = {}
        self._saved_elsewhere: set[str] = set()
        self._promised: set[Entry] = set()
        self._killed = False
        self._disturbed: list[str] = []
        self._preempted: set[tuple[str, str]] = set()
        self._event = 0
        self._operation = ""
        self._raised: Raised | None = None

    @property
    def violations(self) -> dict[str, Violation]:
        """The first violation of each contract, of any kind."""
        return first_of_each(self.by_kind)

    def judge(self, number: int, event: EncoderConnectorEvent, record: StepRecord) -> None:
        """Judge the record of event number `number`."""
        self._event, self._operation = number, tag_of(type(event))
        name = getattr(event, "engine", "")
        self._raised = record.raised
        raised = "" if record.raised is None else record.raised.type
        self._judge(Called(self._operation, raised), name)
        if isinstance(event, Plan):
            self._note_sizes(event)
        outcome = record.outcome
        if outcome is None:
            return
        match event:
            case Start():
                self._engines[name] = JudgedEngine(event.model, self._weights[event.model])
                if self._killed:
                    self._reach.meet("engine started after another was killed")
            case Plan():
                self._judge_plan(event, self._engines[name], outcome)
            case Execute():
                self._judge_step(name, self._engines[name], outcome)
            case AbortPlanned():
                if outcome["aborted"] and any(one.loads for one in self._engines[name].planned):
                    self._reach.meet("aborted before its load")
            case NewWeights():
                self._judge_landed(outcome.get("landed", {}))
                self._weights[event.model] += 1
                if self._is_reached:
                    self._reset_out_of_reach.discard(event.model)
                else:
                    self._reset_out_of_reach.add(event.model)
                self._saved.clear()
                self._reach.meet("new weights")
            case Stop():
                del self._engines[name]
                self._killed |= event.killed
                if event.killed:
                    self._disturb(AFTER_KILL)
            case Spoil():
                self._disturb(AFTER_SPOIL)
                self._forget(event.item)
                self._reach.meet("entry spoiled")
            case Reach():
                self._disturb(AFTER_AWAY)
                self._is_reached = event.is_there
                self._saved_elsewhere.clear()
                if self._config.store == "lmcache server":
                    self._saved.clear()  # it has it in memory alone
                self._reach.meet("store out of reach")
                if event.hangs:
                    self._reach.meet("server hangs")
            case Ask():
                self._judge_landed(outcome.get("landed", {}))
                for one, rest in outcome.get("rest", {}).items():
                    self._judge_rest(one, rest)
                self._judge_answers(outcome.get("promised", {}))
        self._judge(Files(tuple(outcome["outside"]), tuple(outcome.get("unfinished", ()))), name)
        if self._config.capacity is not None and outcome["bytes"] is not None:
            self._judge(StoreRoom(outcome["bytes"], self._config.capacity), name)

    def _note_sizes(self, event: Plan) -> None:
        engine, capacity = self._engines.get(event.engine), self._config.capacity
        if engine is None or capacity is None:
            return
        if max(map(self._rows.__getitem__, event.items)) * self._row_bytes(engine.model) > capacity:
            self._reach.meet("item larger than the store")

    def _judge_plan(self, event: Plan, engine: JudgedEngine, outcome: PlanOutcome) -> None:
        promised = outcome["promised"]
        for item, is_promised in promised.items():
            self._judge_asked(event.engine, item, engine, is_promised)
        loads = [item for item, is_promised in promised.items() if is_promised]
        taken = [item for item in loads if item not in event.refused]
        engine.planned.append(PlannedStep(taken, outcome["encodes"]))
        dropped = {item for item in promised if item in event.preempted}
        dropped -= {*event.refused, *loads}
        self._preempted |= {(event.engine, item) for item in dropped}
        if dropped:
            self._reach.meet("preempted after the connector was told")
        if len(engine.planned) > 1:
            self._reach.meet("two steps planned")
        if len(event.requests) > 1:
            self._reach.meet("several requests in a step")
        if taken and outcome["encodes"]:
            self._reach.meet("promised beside an encode")
        if len(taken) < len(loads):
            self._reach.meet("promise that nobody takes")
        if outcome["pins"] is not None:
            waiting, pinned = outcome["pins"]
            self._judge(Pins(frozenset(waiting), frozenset(pinned)), event.engine)

    def _judge_asked(self, name: str, item: str, engine: JudgedEngine, is_promised: bool) -> None:
        entry = self._entry(item, engine)
        saved = self._saved.get(entry)
        is_reached = self._is_reached or item in self._saved_elsewhere
        is_due = self._is_reached and saved is not None and self._keeps_all()
        asked = Asked(is_reached, is_due, is_promised)
        if saved not in (None, name) and self._config.store == "cpu":
            asked = asked._replace(saved=False)  # in one engine's memory
        self._judge(asked, name, item)
        if is_promised:
            self._promised.add(entry)
            if saved not in (None, name):
                self._reach.meet("promised what another engine saved")
        elif entry in self._promised and saved is not None and self._is_reached:
            self._reach.meet("saved entry gone")

    def _judge_step(self, name: str, engine: JudgedEngine, outcome: ExecuteOutcome) -> None:
        step = engine.planned.popleft()
        if "died" in outcome:
            del self._engines[name]
            self._killed = True
            self._disturb(AFTER_KILL)
            self._reach.meet("killed while it saves")
            return
        for item in step.loads:
            self._judge(Promised(item, item not in outcome["missing"]), name, item)
        for item, rows in (*outcome["loaded"].items(), *outcome["landed"]):
            self._judge_served(name, item, rows)
        for item in step.encodes:
            if self._is_reached:
                engine.saving.append(self._entry(item, engine))
            else:
                self._saved_elsewhere.add(item)
        if not outcome["copying"]:
            self._note_saved(name, engine)
        if outcome["copying"]:
            self._reach.meet("copy under way after its step")
        if outcome["landed"] and self._config.ranks > 1:
            self._reach.meet("load that ends on one rank later than on another")
        self._judge_rest(name, outcome["rest"])

    def _note_saved(self, name: str, engine: JudgedEngine) -> None:
        """Note that the saves of an engine have ended."""
        for entry in engine.saving:
            self._saved.setdefault(entry, name)
        engine.saving.clear()

    def _judge_landed(self, landed: Mapping[str, Sequence[tuple[str, ServedRows]]]) -> None:
        """Judge what engines without a request have read until all their copies ended."""
        for name, several in landed.items():
            self._note_saved(name, self._engines[name])
            for item, rows in several:
                self._judge_served(name, item, rows)

    def _judge_served(self, name: str, item: str, rows: ServedRows) -> None:
        model = self._engines[name].model
        own = self._own(item, model)
        if self._gaps[item]:
            self._reach.meet("loaded item with gaps")
        if self._config.models[model].layers > 1:
            self._reach.meet("loaded rows of several layers")
        self._judge(Served(self._output(rows), own), name, item)

    def _judge_rest(self, name: str, rest: Rest | None) -> None:
        if rest is not None:
            pinned, saving = map(frozenset, rest)
            self._judge(AtRest(pinned, saving), name)

    def _judge_answers(self, promised: Mapping[str, Mapping[str, bool]]) -> None:
        for item in self._rows:
            said: dict[tuple[str, int, str, int], set[bool]] = {}
            for name, answers in promised.items():
                engine = self._engines[name]
                self._judge_asked(name, item, engine, answers[item])
                said.setdefault(self._entry(item, engine)[1], set()).add(answers[item])
            for one in said.values() if self._config.store != "cpu" else ():
                self._judge(Answers(item, frozenset(one)), "", item)

    def _judge(self, subject: Subject, engine: str, item: str = "") -> None:
        self.calls_judged += 1
        for rule in self._rules.get(type(subject), ()):
            kind = self._kind(subject, engine, item) if rule.id in TOLD_APART else ""
            if rule.id == RESET and self._engines[engine].model in self._reset_out_of_reach:
                kind = OUT_OF_REACH
            if (rule.id, kind) not in self.by_kind and not rule.predicate(subject):
                why = rule.explain(**about(rule, subject))
                self.by_kind[rule.id, kind] = Violation(
                    rule, self._event, self._operation, engine, item, why, kind
                )

    def _kind(self, subject: Subject, engine: str, item: str) -> str:
        """Kind of a break: the worst that was done to the store before; or whose rows are served,
        which call does not end, or that what is not saved was of preempted requests. Empty for a
        name that is too long."""
        if isinstance(subject, Served) and subject.rows.model not in (subject.own.model, NOBODY):
            return "of another model"
        if isinstance(subject, Served) and self._has_rows_of_gaps(subject, item):
            return OF_MORE_ROWS
        if isinstance(subject, Called) and subject.raised == DOES_NOT_ANSWER:
            return f"{subject.operation} does not end"
        if isinstance(subject, Called) and self._raised and self._raised.message == TOO_LONG:
            return ""
        if isinstance(subject, AtRest):
            left = {(engine, item) for item in subject.saving}
            return OF_PREEMPTED if left and left <= self._preempted else ""
        if isinstance(subject, Asked):
            return OF_PREEMPTED if (engine, item) in self._preempted else ""
        return self._disturbed[-1] if self._disturbed else ""

    def _has_rows_of_gaps(self, served: Served, item: str) -> bool:
        """Whether what was served begins with a row of its own, of whichever weights, and has one
        for each place."""
        rows, own, gaps = served.rows, served.own, self._gaps[item]
        is_own = (rows.identifier, rows.model) == (own.identifier, own.model)
        return is_own and gaps > 0 and rows.height == own.height + gaps

    def _disturb(self, kind: str) -> None:
        """Note what somebody else has done to the store."""
        self._disturbed = sorted({*self._disturbed, kind}, key=DISTURBED.index)

    def _entry(self, item: str, engine: JudgedEngine) -> Entry:
        model = self._config.models[engine.model]
        return item, (model.name, model.width, model.dtype, engine.weights)

    def _own(self, item: str, number: int) -> EncoderOutput:
        """What an engine with that model encodes."""
        model = self._config.models[number]
        count = self._rows[item]
        return EncoderOutput(
            item, model.name, self._weights[number], count, model.row_width, model.dtype, True
        )

    def _output(self, said: ServedRows) -> EncoderOutput:
        """Whose rows these are, by what they say."""
        items, models = self._config.items, self._config.models
        item, model = said["item"], said["model"]
        return EncoderOutput(
            items[item].identifier if 0 <= item < len(items) else NOBODY,
            models[model].name if 0 <= model < len(models) else NOBODY,
            said["weights"],
            said["count"],
            said["width"],
            said["dtype"],
            said["whole"],
        )

    def _keeps_all(self) -> bool:
        """Whether the store has room for all items of all models."""
        if self._config.capacity is None:
            return True
        rows = sum(self._rows.values())
        needed = sum(
            rows * self._row_bytes(number) + len(self._rows) * BESIDE_ROWS
            for number in range(len(self._weights))
        )
        return needed <= self._config.capacity

    def _row_bytes(self, number: int) -> int:
        model = self._config.models[number]
        return model.row_width * ITEMSIZE[model.dtype]

    def _forget(self, item: str) -> None:
        """Forget what is stored of an item: nobody knows it any more."""
        self._saved = {entry: name for entry, name in self._saved.items() if entry[0] != item}


def judge_of(
    trace: Trace, release: str | None, protocol: Protocol, reach: Reachability
) -> EncoderConnectorJudge:
    """The judge for a trace; `release` is the target's, None where it is no release."""
    return EncoderConnectorJudge(trace, release, reach)
