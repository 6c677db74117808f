"""The states of a small scope, by running a class: calls in every order that its caller may make.

The calls are those that a proof is about, each with the ghost's part in it, and made only where the
caller keeps its promises; the contracts are spec's own functions. Breadth first, so what breaks a
contract first does so in the fewest calls.
"""

import pickle
import signal
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cacheproof.proofs.crosshair.episode import Broken, Episode, Tables
from cacheproof.proofs.crosshair.states import Request
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.manager_calls import COMPONENT as CALLERS
from cacheproof.spec.records import Call, Making
from cacheproof.spec.registry import Contract, contracts


class Endless(BaseException):
    """A call does not end; no contract's judge may take it for an answer."""


def _raise_endless(*_: object) -> None:
    raise Endless


class Unexplorable(Exception):
    """The states of a class cannot be saved, and gone back to; the message says why."""


SECONDS_OF_STATE = 3.0
"""CPU time of this process that all calls from one state may take; they take some milliseconds."""
UNREPORTED_MAX = 3
"""A step ends at the latest when so many evictions wait to be reported."""


@dataclass(frozen=True)
class Scope:
    """The items of requests, each an identifier and a size, and what their scheduler may spend.
    `leaves_out` are operations that would make it too large to be gone through."""

    name: str
    capacity: int
    requests: Mapping[str, Sequence[tuple[str, int]]]
    budgets: Sequence[int]
    pending: Sequence[int] = (0, 1)
    leaves_out: Collection[str] = ()

    @property
    def fixes_sizes(self) -> bool:
        """Whether an identifier has one size."""
        items = {item for one in self.requests.values() for item in one}
        return len(items) == len({identifier for identifier, _ in items})

    @property
    def items_differ(self) -> bool:
        """Whether no request shows an item twice."""
        return all(len({h for h, _ in one}) == len(one) for one in self.requests.values())


SCOPES = (
    Scope(
        "order of eviction",
        2,
        {"r0": [("h0", 1)], "r1": [("h1", 1)], "r2": [("h2", 1)]},
        budgets=(2,),
        pending=(0,),
        leaves_out=("inputs", "embeds", "reset", "withdraw", "free", "check"),
    ),
    Scope(
        "two requests share an item", 3, {"r0": [("h0", 1), ("h1", 2)], "r1": [("h1", 2)]}, (1, 3)
    ),
    Scope("room for two of three", 2, {"r0": [("h0", 1), ("h1", 1)], "r1": [("h2", 1)]}, (1, 2)),
    Scope("an item twice in a request", 3, {"r0": [("h0", 1), ("h0", 1)], "r1": [("h1", 2)]}, (3,)),
    Scope("an identifier of two sizes", 3, {"r0": [("h0", 1)], "r1": [("h0", 2), ("h1", 1)]}, (3,)),
)
"""Elements are called by a letter and their number."""


@dataclass(frozen=True)
class Made:
    """One call: its operation, and what it is given."""

    operation: str
    request: str = ""
    input_id: int = -1
    budget: int = 0
    pending: int = 0
    progress: int = 0

    def __str__(self) -> str:
        match self.operation:
            case "can":
                given = f"{self.request}, {self.input_id}, {self.budget}, {self.pending}"
            case "consume":
                given = f"{self.request}, up to {self.progress}"
            case _:
                given = self.request + (f", {self.input_id}" if self.input_id >= 0 else "")
        return f"{self.operation}({given})"


@dataclass(frozen=True)
class State:
    """All that there is between two calls: attributes of the manager and of the ghost, and what the
    step in the making encodes. `parent` and `made` say how it came about."""

    saved: bytes
    encoded: Mapping[str, int]
    key: "_Key"
    parent: "State | None" = None
    made: Made | None = None

    def path(self) -> Iterator[Made]:
        if self.parent is not None and self.made is not None:
            yield from self.parent.path()
            yield self.made


@dataclass(frozen=True)
class Break:
    """The calls that break a contract, and in words what does not hold."""

    calls: tuple[Made, ...]
    why: str

    def __str__(self) -> str:
        return f"{'; '.join(map(str, self.calls))}: {self.why}"


@dataclass
class Exploration:
    """What came of a scope.

    Attributes:
        closed: every state was gone on from.
        calls: of each operation, how many were made.
        broken: contract -> how it is broken first. It is not asserted any more from there on.
    """

    scope: Scope
    states: int = 0
    closed: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    broken: dict[str, Break] = field(default_factory=dict)


class Explorer:
    """Explores scopes with a class of managers.

    Args:
        manager: the class.
        operations: the calls that are made.
        constants: attributes of every object that no call changes, kept as they are.
        component: whose callers' promises are kept.
        rules: the contracts that are asserted.
        safety: the one that nothing raises.
        state_of: the record that contracts look at.
        has_ledger: whether the manager says what may stay in a worker's store.
    """

    def __init__(
        self,
        manager: type[Any],
        operations: Collection[str],
        constants: Mapping[str, Any],
        component: str,
        rules: Sequence[Contract],
        safety: str,
        state_of: Callable[[Any, Ghost], Any],
        *,
        has_ledger: bool,
    ) -> None:
        self._manager = manager
        self._operations = frozenset(operations)
        self._constants = constants
        self._rules = rules
        self._safety = safety
        self._state_of = state_of
        self._has_ledger = has_ledger
        self._promises = [
            rule
            for rule in contracts(component)
            if rule.component == CALLERS and not rule.synchronous_only
        ]

    def explore(self, scope: Scope, calls_max: int) -> Exploration:
        """The states that calls lead to, until `calls_max` are made and the last state is done;
        or to a call that does not end, which breaks the contract that nothing raises.

        Raises:
            Unexplorable: the class has states that cannot be saved.
        """
        before = signal.signal(signal.SIGVTALRM, _raise_endless)
        try:
            return self._explored(scope, calls_max)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def _explored(self, scope: Scope, calls_max: int) -> Exploration:
        found = Exploration(scope)
        begun = self._begun(scope, found)
        level = deque([] if begun is None else [begun])
        met = {one.key for one in level}
        while level and found.calls.total() < calls_max:
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_OF_STATE)
            state = level.popleft()
            for made in self._offered(scope):
                try:
                    after = self._made(scope, state, made, found)
                except Endless:
                    found.broken[self._safety] = Break((*state.path(), made), "it does not end")
                    return found
                if after is not None and after.key not in met:
                    met.add(after.key)
                    level.append(after)
        found.states, found.closed = len(met), not level
        return found

    # one call

    def _begun(self, scope: Scope, found: Exploration) -> State | None:
        manager, ghost = object.__new__(self._manager), Ghost()
        nothing = State(pickle.dumps(({}, ghost)), {}, ((), (), ()))

        def build(episode: Episode) -> None:
            episode.manager.__init__(scope.capacity, *self._constants.values())
            episode.judge_state("init")

        return self._judged(manager, ghost, build, scope, nothing, Made("init"), found)

    def _made(self, scope: Scope, state: State, made: Made, found: Exploration) -> State | None:
        """The state after a call; None where the caller does not make it, or it ends all."""
        manager, ghost = self._restored(state)
        if not self._may(scope, manager, ghost, state, made):
            return None
        found.calls[made.operation] += 1

        def run(episode: Episode) -> Any:
            return self._run(episode, scope, made)

        return self._judged(manager, ghost, run, scope, state, made, found)

    def _judged(
        self,
        manager: Any,
        ghost: Ghost,
        run: Callable[[Episode], object],
        scope: Scope,
        state: State,
        made: Made,
        found: Exploration,
    ) -> State | None:
        rules = [rule for rule in self._rules if rule.id not in found.broken]
        episode = Episode(
            manager,
            ghost,
            self._state_of,
            lambda _: Tables({}, {}),
            rules,
            encoded=dict(state.encoded),
        )
        try:
            run(episode)
        except Broken as broken:
            found.broken[broken.rule.id] = Break((*state.path(), made), broken.why)
            again = self._restored(state)  # the others are asserted, and gone on with
            return self._judged(*again, run, scope, state, made, found)
        except Exception as error:  # in __init__, or an attribute is gone
            why = f"raises {type(error).__name__}: {error}"
            found.broken.setdefault(self._safety, Break((*state.path(), made), why))
            return None
        if episode.ended:
            return None
        kept = {k: v for k, v in vars(manager).items() if k not in self._constants}
        encoded = episode.encoded
        key = (_canonical(kept), _of_ghost(ghost), _canonical(encoded))
        try:
            saved = pickle.dumps((kept, ghost))
        except Exception as error:
            raise Unexplorable(f"after {made}: {error}") from error
        return State(saved, encoded, key, state, made)

    def _run(self, episode: Episode, scope: Scope, made: Made) -> Any:
        """Make a call, with the ghost's part in it. Returns its answer."""
        request = _request(scope, made.request) if made.request else None
        match made.operation:
            case "notices":
                return episode.step(ledger=self._has_ledger)
            case "consume":
                episode.ghost.consume(made.request, made.progress)
                return episode.judge_state(made.operation)
            case "withdraw":
                episode.ghost.withdraw(made.request)
                return episode.judge_state(made.operation)
            case "reset":
                episode.call("reset")
                episode.encoded = {}
                return None
            case "free" | "inputs":
                return episode.call(made.operation, request)
            case "can":
                return episode.call("can", request, made.input_id, made.budget, made.pending)
            case _:
                return episode.call(made.operation, request, made.input_id)

    # what a caller may ask

    def _offered(self, scope: Scope) -> Iterator[Made]:
        """The calls of the operations that the class has."""
        for made in _all_calls(scope):
            if made.operation in self._operations and made.operation not in scope.leaves_out:
                yield made

    def _may(self, scope: Scope, manager: Any, ghost: Ghost, state: State, made: Made) -> bool:
        """Whether a caller that keeps its promises makes this call."""
        seen = self._state_of(manager, ghost)
        holders = getattr(seen, "holders", {})
        is_progress = made.operation in ("consume", "withdraw")
        if is_progress and any(held and h not in ghost.needed for h, held in holders.items()):
            return False  # what was got past is released first
        if made.operation == "consume" and state.encoded:
            return False  # outputs arrive between two steps
        if made.operation != "notices" and len(seen.notices) >= UNREPORTED_MAX:
            return False
        call = _call(scope, ghost, made)
        values = {"s": seen, "g": ghost, "w": Making(dict(state.encoded)), "c": call}
        return all(
            rule.predicate(*[values[name] for name in rule.parameters])
            for rule in self._promises
            if made.operation in rule.calls
        )

    # states

    def _restored(self, state: State) -> tuple[Any, Ghost]:
        kept, ghost = pickle.loads(state.saved)
        manager = object.__new__(self._manager)
        vars(manager).update(self._constants, **kept)
        return manager, ghost


def _all_calls(scope: Scope) -> Iterator[Made]:
    for operation in ("notices", "reset"):
        yield Made(operation)
    for name, items in scope.requests.items():
        for operation in ("free", "inputs", "withdraw"):
            yield Made(operation, name)
        for number in range(len(items)):
            yield Made("consume", name, progress=number + 1)
            for operation in ("check", "allocate", "release", "embeds"):
                yield Made(operation, name, number)
            for budget in scope.budgets:
                for pending in scope.pending:
                    yield Made("can", name, number, budget, pending)


def _request(scope: Scope, name: str) -> Request:
    items = scope.requests[name]
    return Request(name, [h for h, _ in items], [size for _, size in items])


def _call(scope: Scope, ghost: Ghost, made: Made) -> Call:
    if made.input_id < 0:
        identifier, size = "", 0
    else:
        identifier, size = scope.requests[made.request][made.input_id]
    debited = (made.request, made.input_id) in ghost.debits
    return Call(
        made.operation, made.request, made.input_id, identifier, size, made.input_id + 1,
        made.budget, made.pending, False, debited, "",
    )  # fmt: skip


def _canonical(value: Any) -> Any:
    """A value that is equal of containers that are alike, order included where there is one."""
    match value:
        case dict():
            return tuple((key, _canonical(one)) for key, one in value.items())
        case set() | frozenset():
            return frozenset(value)
        case list() | tuple():
            return tuple(map(_canonical, value))
        case _:
            return value


def _of_ghost(ghost: Ghost) -> Any:
    """What a ghost is owed, whatever the clock says: of entries that became idle their order, of
    what is stored whether it was just encoded."""
    times = sorted(set(ghost.idle_since.values()))
    return (
        frozenset((h, frozenset(one)) for h, one in ghost.needed.items()),
        frozenset((h, times.index(one)) for h, one in ghost.idle_since.items()),
        frozenset(ghost.size.items()),
        frozenset(ghost.stored.items()),
        frozenset(ghost.debits.items()),
        frozenset((h, min(2, one)) for h, one in ghost.steps_since_encode.items()),
        frozenset((r, frozenset(one.items())) for r, one in ghost.claimed_end.items()),
    )


_Key = tuple[Any, Any, Any]
