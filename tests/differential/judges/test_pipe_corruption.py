"""Whatever is altered between a target and the harness is reported, field by field.

Reference runs against reference, so that the alteration is the only difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.records import (
    CallRecord,
    Delta,
    Entry,
    FullState,
    Raised,
    StepRecord,
    TraceResult,
)
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import Semantics

EVENTS_MAX = 10_000
OCCURRENCES = (0, 12)
OPERATIONS = (
    "check",
    "can",
    "allocate",
    "release",
    "free",
    "notices",
    "inputs",
    "embeds",
    "reset",
)

Alter = Callable[[Any], Any]
UNFIT = object()


def changed(value: Any) -> Any:
    """Another value of the same type, as a flipped bit on the way would make it."""
    match value:
        case None:
            return 1
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "'"
        case list() | tuple():
            return [*value, "h'"]
    raise TypeError(value)


@dataclass(frozen=True)
class Corruption:
    """Alters one occurrence of a field; `alter` answers UNFIT where the field does not occur."""

    field: str
    alter: Callable[[StepRecord], Any]


def _in_call(field: str, alter: Callable[[CallRecord], Any]) -> Corruption:
    """A corruption of the first call that has the field."""

    def corrupt(step: StepRecord) -> Any:
        for number, call in enumerate(step.calls):
            altered = alter(call)
            if altered is not UNFIT:
                others = step.calls[:number], step.calls[number + 1 :]
                return step._replace(calls=[*others[0], altered, *others[1]])
        return UNFIT

    return Corruption(field, corrupt)


def _call_field(name: str, value: Alter = changed, of: Callable[[Any], bool] = bool) -> Corruption:
    def alter(call: CallRecord) -> Any:
        held = getattr(call, name)
        return call._replace(**{name: value(held)}) if of(held) else UNFIT

    return _in_call(f"calls.{name}", alter)


def _answer_of(operation: str) -> Corruption:
    def alter(call: CallRecord) -> Any:
        answered = call.operation == operation
        return call._replace(answer=changed(call.answer)) if answered else UNFIT

    return _in_call(f"calls.answer.{operation}", alter)


def _delta_field(name: str, value: Alter, part: str = "") -> Corruption:
    def alter(call: CallRecord) -> Any:
        if call.delta is None or (new := value(getattr(call.delta, name))) is UNFIT:
            return UNFIT
        return call._replace(delta=call.delta._replace(**{name: new}))

    return _in_call(f"calls.delta.{name}{part}", alter)


def _entry_field(name: str, value: Alter) -> Corruption:
    def alter(entries: dict[str, Any]) -> Any:
        for identifier, entry in entries.items():
            if entry is not None:
                new = entry._replace(**{name: value(getattr(entry, name))})
                return {**entries, identifier: new}
        return UNFIT

    return _delta_field("entries", alter, f".{name}")


def _state_field(name: str, value: Alter) -> Corruption:
    def alter(step: StepRecord) -> Any:
        if step.state is None or (new := value(getattr(step.state, name))) is UNFIT:
            return UNFIT
        return step._replace(state=msgspec.structs.replace(step.state, **{name: new}))

    return Corruption(f"state.{name}", alter)


def _outcome(name: str, alter: Alter) -> Corruption:
    def corrupt(step: StepRecord) -> Any:
        new = alter(step.outcome)
        return UNFIT if new is UNFIT else step._replace(outcome=new)

    return Corruption(f"outcome.{name}", corrupt)


def _when(condition: Callable[[Any], bool], then: Alter) -> Alter:
    return lambda value: then(value) if condition(value) else UNFIT


def _is_walk(outcome: Any) -> bool:
    return isinstance(outcome, list)


def _without_last_call(step: StepRecord) -> Any:
    return step._replace(calls=step.calls[:-1]) if step.calls else UNFIT


def _with_last_call_twice(step: StepRecord) -> Any:
    return step._replace(calls=[*step.calls, step.calls[-1]]) if step.calls else UNFIT


def _with_calls_swapped(step: StepRecord) -> Any:
    calls = step.calls
    if len(calls) < 2 or calls[0] == calls[1]:
        return UNFIT
    return step._replace(calls=[calls[1], calls[0], *calls[2:]])


def _is_present(value: Any) -> bool:
    return value is not None


CORRUPTIONS = (
    _outcome("granted", _when(_is_walk, lambda walk: [walk[0] + 1, walk[1]])),
    _outcome("granted", _when(_is_walk, lambda walk: [-1, walk[1]])),
    _outcome("duplicates", _when(_is_walk, lambda walk: [walk[0], [*walk[1], 0]])),
    _outcome("done", _when(lambda outcome: outcome is True, lambda outcome: None)),
    _outcome("done", _when(lambda outcome: outcome is None, lambda outcome: True)),
    Corruption("calls.missing", _without_last_call),
    Corruption("calls.doubled", _with_last_call_twice),
    Corruption("calls.swapped", _with_calls_swapped),
    _call_field("operation", lambda name: "can" if name == "check" else "check"),
    _call_field("operation", lambda name: "no such call"),
    _call_field("request"),
    _call_field("request", lambda name: None),
    _call_field("input", of=_is_present),
    _call_field("input", lambda number: 10**6, of=_is_present),
    _call_field("budget", of=_is_present),
    _call_field("pending", of=_is_present),
    *(_answer_of(operation) for operation in OPERATIONS),
    _call_field("answer", lambda answer: {"raises": "KeyError"}, of=_is_present),
    _call_field("delta", lambda delta: None, of=_is_present),
    _call_field(
        "delta",
        lambda delta: Delta(0, 0, {"h'": Entry(["r'"], 1)}, None, None),
        of=lambda delta: not delta,
    ),
    _delta_field("free_slots", changed),
    _delta_field("freeable_slots", changed),
    _entry_field("holders", changed),
    _entry_field("holders", lambda holders: holders[1:] or ["r'"]),
    _entry_field("size", changed),
    _delta_field("entries", lambda entries: {**entries, "h'": Entry([], 1)}),
    _delta_field("entries", _when(bool, lambda entries: dict.fromkeys(entries))),
    _delta_field("entries", _when(bool, lambda entries: {})),
    _delta_field("queue", _when(bool, lambda queue: [("h'", queue[0][1]), *queue[1:]])),
    _delta_field("queue", _when(bool, lambda queue: [(queue[0][0], queue[0][1] + 1), *queue[1:]])),
    _delta_field("queue", _when(lambda queue: queue and len(queue) > 1, lambda queue: queue[::-1])),
    _delta_field("queue", _when(_is_present, lambda queue: None)),
    _delta_field("queue", _when(lambda queue: queue is None, lambda queue: [("h'", 1)])),
    _delta_field("notices", _when(_is_present, changed)),
    _delta_field("notices", _when(_is_present, lambda notices: None)),
    _delta_field("notices", _when(lambda notices: notices is None, lambda notices: ["h'"])),
    Corruption("raised.type", lambda step: step._replace(raised=Raised("KeyError", "h'"))),
    _state_field("free", changed),
    _state_field("freeable", changed),
    _state_field("entries", lambda entries: {**entries, "h'": Entry([], 1)}),
    _state_field(
        "entries",
        _when(bool, lambda entries: {h: Entry(["r'"], size) for h, (_, size) in entries.items()}),
    ),
    _state_field(
        "entries",
        _when(
            bool,
            lambda entries: {h: Entry(holders, size + 1) for h, (holders, size) in entries.items()},
        ),
    ),
    _state_field("queue", lambda queue: [*queue, ("h'", 1)]),
    _state_field("queue", _when(lambda queue: len(queue) > 1, lambda queue: queue[::-1])),
    _state_field("notices", changed),
    Corruption("state.missing", lambda step: step._replace(state=None) if step.state else UNFIT),
)


class CorruptPipe:
    """A target whose records are altered once on their way: at one occurrence of one field."""

    def __init__(self, target: ReferenceTarget, corruption: Corruption, occurrence: int) -> None:
        self.name, self.release, self.protocol = target.name, target.release, target.protocol
        self.mended = target.mended
        self.struck = False
        self._target = target
        self._corruption = corruption
        self._left = occurrence

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        return [self._alter(result) for result in self._target.run(traces, fault)]

    def close(self) -> None:
        self._target.close()

    def _alter(self, result: TraceResult) -> TraceResult:
        records = list(result.records)
        for number, step in enumerate(records):
            if self.struck or (altered := self._corruption.alter(step)) is UNFIT:
                continue
            self._left -= 1
            if self._left < 0:
                records[number] = altered
                self.struck = True
        return msgspec.structs.replace(result, records=records)


def is_reported(
    trace: Trace, result: TraceResult, target: Target, reference: ReferenceTarget
) -> bool:
    try:
        examination = examine(trace, result, target, reference)
    except HarnessError:
        return True
    return bool(examination.violations) or examination.difference is not None


@pytest.mark.sample(3)
@pytest.mark.parametrize("occurrence", OCCURRENCES)
@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda corruption: corruption.field)
def test_an_altered_field_is_reported(corruption: Corruption, occurrence: int) -> None:
    reference = ReferenceTarget(Semantics.of_vllm("0.33.0"), release="0.33.0")
    pipe = CorruptPipe(reference, corruption, occurrence)
    events = seed = 0
    while events < EVENTS_MAX:
        trace = manager_trace(seed)
        seed += 1
        events += len(trace.events)
        if is_reported(trace, pipe.run([trace])[0], pipe, reference):
            assert pipe.struck, "reported before anything was altered"
            return
    pytest.fail(f"no report in {events} events (altered: {pipe.struck})")


def test_an_unaltered_pipe_is_not_reported() -> None:
    reference = ReferenceTarget(Semantics.of_vllm("0.33.0"), release="0.33.0")
    for seed in range(20):
        trace = manager_trace(seed)
        assert not is_reported(trace, reference.run([trace])[0], reference, reference)


@pytest.mark.parametrize("field", ["records", "capacity"])
def test_an_altered_result_is_reported(field: str) -> None:
    reference = ReferenceTarget(Semantics.of_vllm("0.33.0"), release="0.33.0")
    trace = manager_trace(0)
    result = reference.run([trace])[0]
    value = result.records[:-1] if field == "records" else trace.header.config.capacity + 1
    altered = msgspec.structs.replace(result, **{field: value})
    assert is_reported(trace, altered, reference, reference)


def test_every_field_of_a_step_record_is_altered_by_some_corruption() -> None:
    fields = {
        *StepRecord._fields,
        *(f"calls.{name}" for name in CallRecord._fields),
        *(f"calls.delta.{name}" for name in Delta._fields),
        *(f"calls.delta.entries.{name}" for name in Entry._fields),
        *(f"state.{name}" for name in FullState.__struct_fields__),
    }
    altered = [f"{corruption.field}." for corruption in CORRUPTIONS]
    unaltered = [
        field for field in fields if not any(name.startswith(f"{field}.") for name in altered)
    ]
    assert unaltered == []


def test_the_fields_of_a_result_are_the_known_ones() -> None:
    """`illegal` is no silence either: a campaign counts illegal traces and says so."""
    assert set(TraceResult.__struct_fields__) == {"records", "illegal", "capacity"}


def test_the_answers_of_all_operations_are_altered() -> None:
    reference = ReferenceTarget()
    met = {
        call.operation
        for seed in range(40)
        for step in reference.records(manager_trace(seed))
        for call in step.calls
    }
    assert met == set(OPERATIONS)
