"""Who of the waiting requests a step overtook, and whether it had to wait for something of its own.

Order and reasons are folded from the trace and from what was scheduled, never from the scheduler's
queues: these say only who waits. A reason is looked for where the step ends; what it leaves of its
budgets is no more than it had when it came to the request.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cacheproof.differential.judges.requests import tokens_max
from cacheproof.differential.judges.scheduler_items import PromptItem, UnspentBudget
from cacheproof.differential.judges.scheduler_position import Arrivals
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.outcomes import StepOutcome
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.scheduler_records import Overtaking, Victims

_NOBODY_OVERTAKEN = Overtaking(*[frozenset()] * len(Overtaking._fields))


class Order:
    """The requests of one trace in the order in which they are due."""

    def __init__(self, config: SchedulerConfig, facts: Semantics, arrivals: Arrivals) -> None:
        self._config = config
        self._facts = facts
        self._arrived: dict[str, int] = {}
        self.go_to(arrivals)

    def add(self, request: Add) -> None:
        """A request arrives."""
        self._arrived[request.request] = len(self._arrived)
        self._added[request.request] = request
        self._tokens[request.request] = tokens_max(request, self._config)

    def forget(self, names: Iterable[str]) -> None:
        """These requests are gone."""
        for name in names:
            del self._arrived[name], self._added[name], self._tokens[name]
            self._has_run.discard(name)
        self._arrived = {other: place for place, other in enumerate(self._arrived)}

    def go_to(self, arrivals: Arrivals) -> None:
        """Go on from there; what arrives and runs is noted in it."""
        self._added, self._has_run = arrivals.added, arrivals.has_run
        self._arrived = {name: place for place, name in enumerate(self._added)}
        self._tokens = {name: tokens_max(one, self._config) for name, one in self._added.items()}

    def tokens_max(self, names: Iterable[str]) -> int:
        """Tokens that these requests may come to, together."""
        return sum(map(self._tokens.__getitem__, names))

    def added(self, name: str) -> Add:
        """How the request arrived."""
        return self._added[name]

    def judge(
        self,
        outcome: StepOutcome,
        in_flight: Iterable[Mapping[str, int]],
        items: Callable[[str], Iterable[PromptItem]],
        rest: UnspentBudget,
    ) -> Overtaking:
        """Which requests a step let others overtake.

        `in_flight` are the steps whose output was outstanding when it was decided, `items` those of
        a request. Who is rejected only waits for its end.
        """
        admitted = list(self._admitted(outcome)) if outcome["waiting"] else ()
        may_be = outcome["waiting"] if admitted else ()
        if may_be and self._config.policy != "priority" and self._has_run.isdisjoint(may_be):
            place = self._arrived.__getitem__
            if min(map(place, may_be)) > max(map(place, admitted)):
                may_be = ()  # all arrived after whom the step admitted
        overtaken = {
            name
            for name in may_be
            if not self._added[name].resumable
            and name not in outcome["rejected"]
            and any(self._is_due_before(name, other) for other in admitted)
        }
        self._has_run.update(outcome["computed"])
        if not overtaken:
            return _NOBODY_OVERTAKEN
        adapters = {self._adapter(name) for name in outcome["computed"]} - {0}
        all_adapters = {self._adapter(name) for name in outcome["running"]} - {0}
        is_full = 0 < self._config.max_loras <= len(all_adapters)
        return Overtaking(
            overtaken,
            stale={name for name in overtaken if any(name in step for step in in_flight)},
            adapter={
                name for name in overtaken if is_full and self._adapter(name) not in adapters | {0}
            },
            transfer=set(outcome.get("awaiting", ())),
            item={
                name
                for name in overtaken
                if self._facts.scheduler.passes_over_unschedulable
                and any(self._is_refused(item, rest) for item in items(name))
            },
            prompt={
                name
                for name in overtaken
                if not self._facts.scheduler.waits_for_long_prompts
                and not self._config.chunked_prefill
                and self._added[name].prompt + self._added[name].max_tokens > rest.tokens
            },
        )

    def victims(self, preempted: Collection[str], ran: Sequence[str]) -> Victims:
        """Which of the requests that `ran` before a step, in order, it preempts. Sessions have an
        order of their own."""
        names = [name for name in ran if not self._added[name].resumable]
        if self._config.policy == "priority":
            names.sort(key=self._urgency)
        places = {name: place for place, name in enumerate(names)}
        return Victims(
            {name: place for name, place in places.items() if name in preempted},
            {name: place for name, place in places.items() if name not in preempted},
        )

    def _admitted(self, outcome: StepOutcome) -> Iterable[str]:
        """The requests that the step admitted, and that could have overtaken another."""
        resumes = self._config.policy == "priority"
        for name in [*outcome["new"], *(outcome["resumed"] if resumes else ())]:
            if not self._added[name].resumable:
                yield name

    def _is_due_before(self, name: str, other: str) -> bool:
        if self._config.policy == "priority":
            return self._urgency(name) < self._urgency(other)
        if name in self._has_run:
            return not self._sets_apart
        return self._arrived[name] < self._arrived[other]

    @property
    def _sets_apart(self) -> bool:
        """Whether a request that was passed over once goes before those that were preempted."""
        return (
            self._facts.scheduler.sets_passed_over_apart
            and not self._facts.scheduler.rejoins_passed_over
        )

    def _urgency(self, name: str) -> tuple[int, float]:
        return self._added[name].priority, self._arrived[name]

    def _adapter(self, name: str) -> int:
        lora = self._added[name].lora
        return 0 if lora is None else lora.lora_int_id

    def _is_refused(self, item: PromptItem, rest: UnspentBudget) -> bool:
        """Whether a chunk that begins with the item cannot be computed."""
        threshold = self._config.long_prefill_token_threshold or rest.tokens
        is_too_long = item.length > min(rest.tokens, threshold)
        return item.is_refused(rest) or (self._config.disable_chunked_mm_input and is_too_long)
