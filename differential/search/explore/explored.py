"""What comes of exploring a scope: how far it went, how a state came about, a row of evidence."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from cacheproof.differential.traces.records import Expansion, FullState, StepRecord
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin

BATCH = 32
"""States that a target is asked for at once."""


class Sized(Protocol):
    """A scope that says in words how large it is."""

    @property
    def name(self) -> str: ...

    @property
    def sentence(self) -> str: ...


ScopeT = TypeVar("ScopeT", bound=Sized)
BrokenT = TypeVar("BrokenT")
EventT = TypeVar("EventT", covariant=True)


@dataclass(frozen=True)
class ExploredScope(Generic[ScopeT, BrokenT]):
    """The outcome of exploring one scope on one target.

    `states` are counted without those that differ only in names, `transitions` without events that
    are no-ops. `closed`: every state was gone on from; otherwise all that is up to `events` long
    was covered. `source` is the SHA-256 of the text of the class, and `broken` has the shortest way
    to break each contract.
    """

    STEPS: ClassVar[str] = "events"

    scope: ScopeT
    states: int
    transitions: int
    events: int
    closed: bool
    seconds: float
    source: str
    broken: BrokenT = field(repr=False)

    @property
    def reach(self) -> str:
        """How far the scope was explored, in words."""
        how = "closed" if self.closed else f"up to {self.events} {self.STEPS}"
        return f"{how}: {self.scope.sentence}, {self.states:,} states"


class Reached(Protocol[EventT]):
    """A state with its parent and the event that leads from there to it; None at the root."""

    @property
    def number(self) -> int: ...

    @property
    def parent(self) -> "Reached[EventT] | None": ...

    @property
    def event(self) -> EventT | None: ...


def path_to(state: Reached[EventT]) -> Iterator[EventT]:
    """The events that lead to a state."""
    if state.parent is not None and state.event is not None:
        yield from path_to(state.parent)
        yield state.event


class Explorer(Protocol):
    """Runs every event of a scope on a target, from states that are given by number."""

    @property
    def tree(self) -> Any: ...

    def submit(self, states: Sequence[int], /) -> None: ...

    def collect(self) -> Expansion: ...

    def leave(self) -> None: ...


class Steps:
    """A target's steps from its states. Each state is asked for once, though several states of a
    search have it; the target works on those that are wanted while the caller judges others.

    Attributes:
        trees: the tree of each state of the target that was met, by number.
        full: the full state of those that were met and not taken out yet, where it is shown.
        records: what the target did, by number.
    """

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self.trees = [explorer.tree]
        self.full: dict[int, FullState] = {}
        self.records: list[StepRecord] = []
        self._known: dict[int, list[tuple[int, int, int]]] = {}
        self._wanted: set[int] = set()
        self._next: list[int] = []
        self._asked: deque[list[int]] = deque()

    def want(self, state: int) -> None:
        """Have the steps from a state ready for later."""
        if state not in self._wanted:
            self._wanted.add(state)
            self._next.append(state)
            if len(self._next) == BATCH:
                self._ask()

    def of(self, state: int) -> list[tuple[int, int, int]]:
        """The steps from a state: numbers of event, record and next state."""
        self.want(state)
        while state not in self._known:
            if not self._asked:
                self._ask()
            self._collect()
        return self._known[state]

    def _ask(self) -> None:
        self._explorer.submit(self._next)
        self._asked.append(self._next)
        self._next = []

    def _collect(self) -> None:
        expansion = self._explorer.collect()
        for state, steps in zip(self._asked.popleft(), expansion.steps, strict=True):
            numbers = iter(steps)
            self._known[state] = list(zip(numbers, numbers, numbers, strict=True))
        self.records += expansion.records
        for tree, full in zip(expansion.trees, expansion.full, strict=True):
            if full is not None:
                self.full[len(self.trees)] = full
            self.trees.append(tree)


AnyExploration = ExploredScope[Any, Any]


def row_of(
    explorations: Sequence[AnyExploration],
    contract: str,
    target: str,
    subject: str,
    outcome: Outcome,
    note: str,
    twins: Sequence[RedTwin],
) -> Evidence:
    """The row of evidence about one contract of a target's subject, whose scopes were explored."""
    return Evidence(
        contract=contract,
        target=target,
        subject=subject,
        method="exploration",
        scope="; ".join(f"{one.scope.name}: {one.reach}" for one in explorations),
        outcome=outcome,
        note=note,
        digest=digest_of_class(explorations),
        seconds=round(sum(one.seconds for one in explorations), 1),
        twins=tuple(twins),
    )


def digest_of_class(explorations: Sequence[AnyExploration]) -> str:
    """Digest of the text of the explored class: the first 12 digits of its SHA-256."""
    return explorations[0].source[:12]
