"""Breadth first through every state of a scope, every transition judged by the contracts.

A state is what the target's manager and its driver hold, together with what the judge knows. From
each the target tries every event of the scope, and the judge, put back to that state, judges the
record. States that differ in nothing but names are one, and are gone on from once. So the trace
that breaks a contract first is a shortest one.
"""

import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

import msgspec

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.judges.examination import judge_of, judge_record
from cacheproof.differential.judges.manager import ManagerJudge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.search.explore.explored import ExploredScope, Steps, path_to
from cacheproof.differential.search.explore.judged import Knowledge
from cacheproof.differential.search.explore.scope import Scope
from cacheproof.differential.search.explore.symmetry import StatePart, Symmetry
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.trace import AnyEvent, Trace

Explorable = ReferenceTarget | HostTarget


class Exploration(ExploredScope[Scope, dict[str, tuple[Violation, Trace]]]):
    """The outcome for a manager or a scheduler: `broken` has a shortest trace for each contract."""


@dataclass(frozen=True)
class _State:
    """A state of the frontier: of the target and of the judge, by number, and how it came about."""

    number: int
    judge: int
    parent: "_State | None" = None
    event: AnyEvent | None = None


def explore(
    target: Explorable,
    scope: Scope,
    *,
    fault: str | None = None,
    transitions_max: int | None = None,
    until: Callable[[Set[str]], object] = lambda broken: False,
) -> Exploration:
    """Explore a scope on a target, with a fault of `targets/host` planted in it or none.

    It ends when no state is new; or after the level in which `transitions_max` is passed; or as
    soon as `until` is true of the contracts that are broken.

    Raises:
        HarnessError: the target broke, or what it says contradicts itself.
    """
    return _Search(target, scope, fault).run(transitions_max, until)


def traces_of(target: ReferenceTarget, scope: Scope) -> Iterator[Trace]:
    """A shortest trace for each transition of a scope, which is explored to its end."""
    search = _Search(target, scope, None)
    search.run(None, lambda broken: False)
    for state, event in search.taken:
        yield search.trace(state, event)


class _Search:
    def __init__(self, target: Explorable, scope: Scope, fault: str | None) -> None:
        self._started = time.perf_counter()
        self._target = target
        self._scope = scope
        self._alphabet = scope.alphabet
        self._symmetry = Symmetry(scope.renamings)
        self._explorer = target.explorer(scope.header, self._alphabet, fault)
        empty, capacity = Trace(scope.header, ()), self._explorer.capacity
        judge = judge_of(empty, target.release, target.protocol, capacity, Reachability())
        assert isinstance(judge, ManagerJudge)
        self._judge = judge
        self._steps = Steps(self._explorer)
        self._knowledge = Knowledge(judge, self._symmetry)
        self._parts: list[StatePart] = []
        root = _State(0, self._knowledge.keep(self._part(0).names.__contains__))
        self._ledgers = {0: self._knowledge.ledger()}
        self._judged: dict[tuple[int, int, int, frozenset[str]], tuple[int, int | None]] = {}
        self._met = {(root.number, root.judge)}
        self._keys = {self._key(root)}
        self._level = [root]
        self.taken: list[tuple[_State, AnyEvent]] = []
        self._broken: dict[str, tuple[Violation, Trace]] = {}
        # To tell why takes longer than to judge, and of each contract the first break is kept.
        judge.explain_others(self._broken.keys())

    def run(self, transitions_max: int | None, until: Callable[[Set[str]], object]) -> Exploration:
        events = 0
        # Levels are finished, so that all that is up to `events` long is covered.
        while self._level and (transitions_max is None or len(self.taken) < transitions_max):
            level, self._level = self._level, []
            for state in level:
                self._judge_steps(state)
                if until(self._broken.keys()):
                    return self._outcome(events, closed=False)
            events += 1
        return self._outcome(events, closed=not self._level)

    def _outcome(self, events: int, *, closed: bool) -> Exploration:
        self._explorer.leave()
        return Exploration(
            scope=self._scope,
            states=len(self._keys),
            transitions=len(self.taken),
            events=events,
            closed=closed,
            seconds=time.perf_counter() - self._started,
            source=self._explorer.source,
            broken=self._broken,
        )

    def _judge_steps(self, state: _State) -> None:
        for number, record, after in self._steps.of(state.number):
            event = self._alphabet[number]
            # In a trace no name comes twice: one is free again once nothing remembers it.
            if isinstance(event, Add) and self._remembers(state, event.request):
                continue
            self.taken.append((state, event))
            ledger, judge = self._judged_step(state, number, record, after)
            # A state of the target has one ledger, by whichever deltas it is reached.
            if ledger != self._ledgers.setdefault(after, ledger):
                raise HarnessError(
                    f"host of {self._target.name}: the deltas of {event} do not add up to the "
                    f"state that it leads to"
                )
            if judge is not None:
                self._meet(state, event, after, judge)

    def _judged_step(
        self, state: _State, number: int, record: int, after: int
    ) -> tuple[int, int | None]:
        """The ledger after an event with that record, and what the judge then knows; None where the
        target raised, which goes on from nowhere.

        It is judged once from what the judge knew before, in whichever states of the target: of
        these it sees no more than which names are remembered, and the full state, which the first
        step that leads there has."""
        names = self._part(after).names
        asked = state.judge, number, record, names
        full = self._steps.full.pop(after, None) if self._steps.full else None
        known = self._judged.get(asked) if full is None else None
        if known is None:
            event, step = self._alphabet[number], self._steps.records[record]
            self._knowledge.put_back(state.judge)
            told = step if full is None else step._replace(state=full)
            judge_record(self._judge, 0, event, told, self._target)
            if self._judge.violations:
                self._note(state, event)
            ledger = self._knowledge.ledger()
            judge = None if step.raised else self._knowledge.keep(names.__contains__)
            known = self._judged[asked] = ledger, judge
        return known

    def _meet(self, state: _State, event: AnyEvent, number: int, judge: int) -> None:
        # A key takes the texts of several renamings: most states are known without one.
        raw = number, judge
        if raw in self._met:
            return
        self._met.add(raw)
        met = _State(number, judge, state, event)
        key = self._key(met)
        if key not in self._keys:
            self._keys.add(key)
            self._level.append(met)
            self._steps.want(number)

    def _remembers(self, state: _State, name: str) -> bool:
        """Whether the target or the judge still knows a request of that name."""
        judge = self._knowledge.part(state.judge)
        return name in self._part(state.number).names or name in judge.names

    def _part(self, number: int) -> StatePart:
        """The state of the target of that number, as part of a state."""
        parts = self._parts
        if number >= len(parts):
            parts += map(self._symmetry.part, self._steps.trees[len(parts) :])
        return parts[number]

    def _key(self, state: _State) -> bytes:
        return self._symmetry.key(self._part(state.number), self._knowledge.part(state.judge))

    def _note(self, state: _State, event: AnyEvent) -> None:
        for contract, violation in self._judge.violations.items():
            if contract not in self._broken:  # breadth first, the first trace is a shortest one
                self._broken[contract] = violation, self.trace(state, event)

    def trace(self, state: _State, event: AnyEvent) -> Trace:
        """The trace that leads to a state, and then the event."""
        before: Iterator[AnyEvent] = path_to(state)
        return Trace(self._scope.header, _with_names_of_their_own([*before, event]))


def _with_names_of_their_own(events: list[AnyEvent]) -> tuple[AnyEvent, ...]:
    """The events, with another name for each request that arrives: in a trace none comes twice."""
    names: dict[str, str] = {}
    arrived: dict[str, int] = {}
    renamed: list[AnyEvent] = []
    for event in events:
        name = getattr(event, "request", None)
        if name is None:
            renamed.append(event)
            continue
        if isinstance(event, Add):
            arrived[name] = arrived.get(name, 0) + 1
            names[name] = name if arrived[name] == 1 else f"{name}{arrived[name]}"
        renamed.append(msgspec.structs.replace(event, request=names[name]))
    return tuple(renamed)
