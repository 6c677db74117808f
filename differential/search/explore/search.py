"""Breadth first through every state of a scope, every transition judged by the contracts.

A state is what the target's manager and its driver hold, together with what the judge knows. From
each the target tries every event of the scope, and the judge, put back to that state, judges the
record. States that differ in nothing but names are one, and are gone on from once. So the trace
that breaks a contract first is a shortest one.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Set
from contextlib import closing
from dataclasses import dataclass

import msgspec

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.judges.examination import judge_of, judge_record
from cacheproof.differential.judges.manager import ManagerJudge
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.search.explore import judged
from cacheproof.differential.search.explore.explored import ExploredScope, expanded, path_to
from cacheproof.differential.search.explore.scope import Scope
from cacheproof.differential.search.explore.symmetry import StatePart, Symmetry
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.records import ExplorerStep
from cacheproof.differential.traces.trace import AnyEvent, Trace

Explorable = ReferenceTarget | HostTarget


class Exploration(ExploredScope[Scope, dict[str, tuple[Violation, Trace]]]):
    """The outcome for a manager or a scheduler: `broken` has a shortest trace for each contract."""


@dataclass(frozen=True)
class _State:
    """A state of the frontier: of the target, of the judge, and how it came about."""

    number: int
    judge: bytes
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
        self._parts = [StatePart(self._explorer.tree)]
        self._ledgers = {0: judged.ledger(self._judge)}
        self._parts_of_judge: dict[bytes, StatePart] = {}
        root = _State(0, self._saved(0))
        self._met = {(root.number, root.judge)}
        self._keys = {self._key(root)}
        self._level = [root]
        self.taken: list[tuple[_State, AnyEvent]] = []
        self._broken: dict[str, tuple[Violation, Trace]] = {}

    def run(self, transitions_max: int | None, until: Callable[[Set[str]], object]) -> Exploration:
        events = 0
        # Levels are finished, so that all that is up to `events` long is covered.
        while self._level and (transitions_max is None or len(self.taken) < transitions_max):
            level, self._level = self._level, []
            with closing(expanded(self._explorer, level)) as batches:
                for state, steps in itertools.chain.from_iterable(batches):
                    self._judge_steps(state, steps)
                    if until(self._broken.keys()):
                        return self._outcome(events, closed=False)
            events += 1
        return self._outcome(events, closed=not self._level)

    def _outcome(self, events: int, *, closed: bool) -> Exploration:
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

    def _judge_steps(self, state: _State, steps: list[ExplorerStep | None]) -> None:
        for event, step in zip(self._alphabet, steps, strict=True):
            if step is None:
                continue
            record, number, tree = step
            # Kept before anything is skipped: parts are found by the numbers of their states.
            if tree is not None:
                self._parts.append(StatePart(tree))
            # In a trace no name comes twice: one is free again once nothing remembers it.
            if isinstance(event, Add) and self._remembers(state, event.request):
                continue
            self.taken.append((state, event))
            judged.put_back(self._judge, state.judge)
            judge_record(self._judge, 0, event, record, self._target)
            if self._judge.violations:
                self._note(state, event)
            # A state of the target has one ledger, by whichever deltas it is reached.
            ledger = judged.ledger(self._judge)
            if ledger != self._ledgers.setdefault(number, ledger):
                raise HarnessError(
                    f"host of {self._target.name}: the deltas of {event} do not add up to the "
                    f"state that it leads to"
                )
            if record.raised is None:  # a target that raised goes on from nowhere
                self._meet(_State(number, self._saved(number), state, event))

    def _saved(self, number: int) -> bytes:
        """The judge's knowledge, where the target is in the state of that number."""
        return judged.saved(self._judge, self._parts[number].__contains__)

    def _meet(self, state: _State) -> None:
        raw = state.number, state.judge
        # A key takes the texts of several renamings: most states are known without one.
        if raw in self._met:
            return
        self._met.add(raw)
        key = self._key(state)
        if key not in self._keys:
            self._keys.add(key)
            self._level.append(state)

    def _remembers(self, state: _State, name: str) -> bool:
        """Whether the target or the judge still knows a request of that name."""
        return name in self._parts[state.number] or name in self._parts_of_judge[state.judge]

    def _key(self, state: _State) -> bytes:
        """The state's key; the judge must be in that state."""
        of_judge = self._parts_of_judge.get(state.judge)
        if of_judge is None:
            of_judge = self._parts_of_judge[state.judge] = StatePart(judged.tree(self._judge))
        return self._symmetry.key(self._parts[state.number], of_judge)

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
