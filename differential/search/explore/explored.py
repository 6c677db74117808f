"""What comes of exploring a scope: how far it went, how a state came about, a row of evidence."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from cacheproof.differential.traces.records import ExplorerStep
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin

BATCH = 128


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


StateT = TypeVar("StateT", bound=Reached[object])
Expanded = list[tuple[StateT, list[ExplorerStep | None]]]


def path_to(state: Reached[EventT]) -> Iterator[EventT]:
    """The events that lead to a state."""
    if state.parent is not None and state.event is not None:
        yield from path_to(state.parent)
        yield state.event


class Expander(Protocol):
    """Runs every event of a scope on a target, from states that are given by number."""

    def submit(self, states: Sequence[int], /) -> None: ...

    def collect(self) -> list[list[ExplorerStep | None]]: ...


def expanded(
    explorer: Expander, level: Sequence[StateT]
) -> Generator[Expanded[StateT], None, None]:
    """The states of a level, batch by batch, with the target's steps from them; the target works on
    the next batch while the caller judges one."""
    batches = [level[first : first + BATCH] for first in range(0, len(level), BATCH)]
    asked = collected = 0
    try:
        for number, batch in enumerate(batches):
            for ahead in batches[asked : number + 2]:
                explorer.submit([state.number for state in ahead])
                asked += 1
            collected += 1
            yield list(zip(batch, explorer.collect(), strict=True))
    finally:
        # Answers come in order: those left here would be taken for those to the next question.
        for _ in range(asked - collected):
            explorer.collect()


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
