"""Judges a scheduler: the contracts of its manager at every call, and its own after every event."""

from collections.abc import Iterable, Mapping
from typing import Any

from cacheproof.differential import trace as events
from cacheproof.differential.judge import Judge, Rules
from cacheproof.differential.reachability import Reachability
from cacheproof.differential.record import CallRecord, Raised, StepRecord
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.trace import SchedulerConfig, Trace
from cacheproof.spec.records import EncoderCacheState
from cacheproof.spec.scheduler import Answer, Plan, References, Span, Standing, Turn

_LETTERS: Mapping[type, str] = {Plan: "w", References: "s"}
_IN_ITS_COURSE = (events.Schedule, events.Update)


class SchedulerJudge(Judge):
    """Judges one trace at scheduler depth."""

    def __init__(self, trace: Trace, rules: Rules, reach: Reachability, protocol: Protocol) -> None:
        super().__init__(trace, rules, reach, protocol)
        assert isinstance(trace.header.config, SchedulerConfig)
        self._config = trace.header.config
        self._encoder_budget = max(self._config.compute_budget, _largest_item(trace, protocol))
        self._paused = False
        self._resumable: set[str] = set()
        self._pending: set[str] = set()
        self._stood: Standing | None = None

    def judge(self, number: int, event: Any, record: StepRecord) -> None:
        super().judge(number, event, record)
        outcome = record[0]
        operation = type(event).__struct_config__.tag
        if isinstance(event, events.Pause):
            self._paused = event.mode != "none"
        if isinstance(event, events.Add) and event.resumable:
            self._resumable.add(event.request)
        if isinstance(event, events.Transfer):
            self._pending -= {event.identifier}
            self._pending |= {event.identifier} if event.state == "pending" else set()
        if not isinstance(event, _IN_ITS_COURSE) or (outcome and outcome.get("sampled")):
            self._stood = None
        if not isinstance(outcome, dict):
            return
        if isinstance(event, events.Schedule):
            self._check(operation, self._plan(outcome))
            self._judge_turn(operation, outcome)
        elif isinstance(event, events.Update) and isinstance(self._state, EncoderCacheState):
            self._check(operation, References(set(outcome["running"]), self._state.holders))

    @property
    def _suspects(self) -> str:
        """What is configured that may keep a chunk from its item: kinds in which steps stop."""
        config = self._config
        drafter = config.drafter and config.num_speculative_tokens > 0
        named = {"drafter": drafter, "whole items": config.disable_chunked_mm_input}
        return " + ".join(name for name, is_there in named.items() if is_there)

    def _raised(self, event: Any, calls: Iterable[CallRecord], raised: Raised) -> None:
        """Of a manager that raised the manager's contracts speak, of any other the scheduler's."""
        if any(isinstance(call[5], dict) for call in calls):
            super()._raised(event, calls, raised)
            return
        operation = type(event).__struct_config__.tag
        self._check(operation, Answer(raised[0]), kind=f"{raised[0]} in {operation}")

    def _check(self, operation: str, subject: Any, kind: str = "") -> None:
        self.calls_judged += 1
        for rule in self._rules.of_scheduler.get(type(subject), ()):
            if not rule.predicate(subject):
                values = {_LETTERS.get(type(subject), "c"): subject}
                self._broken(rule, values, operation, "", "", kind)

    def _plan(self, outcome: Mapping[str, Any]) -> Plan:
        tokens, computed = outcome["scheduled"], outcome["computed"]
        windows = {name: Span(start, start + tokens[name]) for name, start in computed.items()}
        requests = self._requests
        return Plan(
            self._config.max_num_batched_tokens,
            tokens,
            self._encoder_budget,
            {
                name: sum(requests[name].sizes[number] for number in inputs)
                for name, inputs in outcome["encode"].items()
            },
            int(self._config.disable_chunked_mm_input),
            windows,
            {
                name: tuple(map(Span, requests[name].offsets, requests[name].ends))
                for name in windows
            },
            self._config.max_num_seqs,
            len(outcome["running"]),
        )

    def _judge_turn(self, operation: str, outcome: Mapping[str, Any]) -> None:
        """Judge the second of two steps in a row that are decided with nothing outstanding."""
        stood, self._stood = self._stood, None
        if not self._resumable.isdisjoint((*outcome["running"], *outcome["waiting"])):
            return  # it may wait for more prompt
        if outcome.get("rejected"):
            return  # they are there until the next update
        if self._paused or self._pending or any(self._in_flight[:-1]):
            return
        state = self._state
        stands = Standing(
            tuple(outcome["running"]),
            tuple(outcome["waiting"]),
            outcome["free_blocks"],
            state.free_slots,
            state.freeable_slots if isinstance(state, EncoderCacheState) else state.free_slots,
        )
        tokens = sum(outcome["scheduled"].values())
        if stood is not None:
            requests = len(stands.running) + len(stands.waiting)
            self._check(operation, Turn(tokens, requests, stood, stands), self._suspects)
        if tokens == 0:
            self._stood = stands


def _largest_item(trace: Trace, protocol: Protocol) -> int:
    """Embeddings of the trace's largest item: it stands for the model's, which must be encoded."""
    return max(
        (
            item.length
            if item.is_embed is None or not protocol.counts_embeds
            else sum(item.is_embed)
            for event in trace.events
            if isinstance(event, events.Add | events.Chunk)
            for item in event.items
        ),
        default=0,
    )
