"""Where a scheduler's judge is: what its later verdicts depend on, saved and put back whole."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cacheproof.differential.judges.manager import ManagerPosition
from cacheproof.differential.judges.scheduler_items import Advance
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.outcomes import StepOutcome, UpdateOutcome
from cacheproof.differential.traces.records import CallRecord
from cacheproof.spec.scheduler_records import Span, Standing

_NOTHING: frozenset[int] = frozenset()


@dataclass(slots=True)
class Arrivals:
    """Who arrived how, in order, and who has run."""

    added: dict[str, Add] = field(default_factory=dict)
    has_run: set[str] = field(default_factory=set)


@dataclass(slots=True)
class SchedulerPosition(ManagerPosition):
    """A manager's position, and what a scheduler's verdicts depend on beside it: without KV
    transfers, sessions, and what says in which kind a contract breaks.

    Attributes:
        arrivals: how requests arrived.
        running: who runs.
        prompts: the length of each prompt, in tokens.
        claims: request -> the items that it has claimed while it runs, if any.
        dropped: entries that a step's notices name, until they are allocated anew.
        paused: whether the scheduler is.
        pending: entries whose transfer is outstanding.
        in_vain: who waits for a transfer that failed.
        stood: how the last step that was decided with nothing outstanding left the engine.
        steps_without_token: steps in a row that scheduled tokens and brought none.
        preempted: who was preempted and has claimed nothing since.
        withheld: request -> the items that its worker was not sent.
        present: who has been added and has not ended.
        ran: who ran when the last event had ended, in order.
        drafted: how many drafts each step had of its requests whose output is outstanding.
    """

    arrivals: Arrivals = field(default_factory=Arrivals)
    running: set[str] = field(default_factory=set)
    prompts: dict[str, int] = field(default_factory=dict)
    claims: dict[str, set[int]] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    paused: bool = False
    pending: set[str] = field(default_factory=set)
    in_vain: set[str] = field(default_factory=set)
    stood: Standing | None = None
    steps_without_token: int = 0
    preempted: set[str] = field(default_factory=set)
    withheld: dict[str, frozenset[int]] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    ran: list[str] = field(default_factory=list)
    drafted: list[Mapping[str, int]] = field(default_factory=list)

    def forget(self, name: str) -> None:
        """Forget a request that no step in flight has."""
        del self.requests[name], self.prompts[name]
        self.claims.pop(name, None)
        self.preempted.discard(name)
        self.withheld.pop(name, None)

    def follow_tokens(self, outcome: StepOutcome) -> Advance:
        """Follow how far the step brings its requests."""
        requests, prompts, computed = self.requests, self.prompts, outcome["computed"]
        step, windows, unfinished = Advance({}, {}, set())
        for name, tokens in outcome["scheduled"].items():
            start = computed.get(name)
            if start is None:
                continue  # preempted after it was scheduled; releases up to 0.11 leave its count in
            request = requests[name]
            request.computed = step[name] = end = start + tokens
            if start < request.end_of_items:
                windows[name] = Span(start, end)
                self.gathered.update(
                    [request.identifiers[number] for number in request.read_in(start, end)]
                )
            if end < prompts[name]:
                unfinished.add(name)
        if len(step) < len(computed):
            raise LookupError("a request is computed that is not scheduled")
        self.in_flight.append(step)
        self.drafted.append(outcome["drafts"])
        return Advance(step, windows, unfinished)

    def follow_rejected(self, outcome: UpdateOutcome | None, steps: int) -> None:
        """Follow the output of the first steps: what was computed for drafts that it rejects is not
        computed."""
        sampled = outcome["sampled"] if outcome else {}
        for drafts in self.drafted[:steps]:
            for name, number in drafts.items():
                if name in self.requests and name in sampled:
                    self.requests[name].computed -= max(0, number + 1 - sampled[name])
        del self.drafted[:steps]

    def follow_withheld(self, outcome: StepOutcome) -> bool:
        """Follow what workers were not sent. Returns whether there is anything of it."""
        withheld = self.withheld
        if not withheld and "withheld" not in outcome and "dropped" not in outcome:
            return False
        # Who is told of as new comes with all its data, except what is withheld below.
        for name in outcome["told_new"]:
            withheld.pop(name, None)
        for lacking in (outcome.get("withheld", {}), outcome.get("dropped", {})):
            for name, numbers in lacking.items():
                withheld[name] = withheld.get(name, _NOTHING).union(numbers)
        for name, numbers in outcome.get("sent_again", {}).items():
            withheld[name] = withheld.get(name, _NOTHING).difference(numbers)
        return True

    def follow_claims(self, outcome: StepOutcome, calls: Iterable[CallRecord]) -> None:
        """Follow what the step's requests claim, and what its notices drop."""
        self.dropped.update(outcome["notices"])
        for call in calls:
            name, number = call.request, call.input
            if name is None or number is None:
                continue
            is_allocation = call.operation == "allocate"
            if is_allocation or (call.operation == "check" and call.answer is True):
                self.claims.setdefault(name, set()).add(number)
                if is_allocation:
                    self.dropped.discard(self.requests[name].identifiers[number])
        for name in self.claims.keys() - self.running:
            del self.claims[name]
