"""The states of a small scope, by running a class: calls in every order that its caller may make.

The calls are those that a proof is about, each with the ghost's part in it, and made only where the
caller keeps its promises; the contracts are spec's own functions. Breadth first, so what breaks a
contract first does so in the fewest calls.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cacheproof.proofs.crosshair.episode import BrokenRule, ClaimTables, Episode, ReadState
from cacheproof.proofs.crosshair.states import SymbolicRequest
from cacheproof.proofs.witness.breadth import breadth_first
from cacheproof.proofs.witness.calls import MadeCall, attributes_of, perform
from cacheproof.proofs.witness.recorded import Found
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.manager_calls import COMPONENT as CALLERS
from cacheproof.spec.records import Call, Making
from cacheproof.spec.registry import Contract, contracts


class Unexplorable(Exception):
    """The states of a class cannot be saved, and gone back to, or an answer may change after the
    call; the message says why."""


UNREPORTED_MAX = 3
"""Most evictions that wait to be reported before a step must end."""


@dataclass(frozen=True)
class WitnessScope:
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

    def request(self, name: str) -> SymbolicRequest:
        """A request as a manager sees it."""
        items = self.requests[name]
        return SymbolicRequest(name, [h for h, _ in items], [size for _, size in items])


SCOPES = (
    WitnessScope(
        "order of eviction",
        2,
        {"r0": [("h0", 1)], "r1": [("h1", 1)], "r2": [("h2", 1)]},
        budgets=(2,),
        pending=(0,),
        leaves_out=("inputs", "embeds", "reset", "withdraw", "free", "check"),
    ),
    WitnessScope(
        "two requests share an item", 3, {"r0": [("h0", 1), ("h1", 2)], "r1": [("h1", 2)]}, (1, 3)
    ),
    WitnessScope(
        "room for two of three", 2, {"r0": [("h0", 1), ("h1", 1)], "r1": [("h2", 1)]}, (1, 2)
    ),
    WitnessScope(
        "an item twice in a request", 3, {"r0": [("h0", 1), ("h0", 1)], "r1": [("h1", 2)]}, (3,)
    ),
    WitnessScope(
        "an identifier of two sizes", 3, {"r0": [("h0", 1)], "r1": [("h0", 2), ("h1", 1)]}, (3,)
    ),
)
"""Elements are called by a letter and their number."""


@dataclass(frozen=True)
class WitnessState:
    """All that there is between two calls: attributes of the manager and of the ghost, and what the
    step in the making encodes. `parent` and `made` say how it came about."""

    saved: bytes
    encoded: Mapping[str, int]
    key: "_Key"
    parent: "WitnessState | None" = None
    made: MadeCall | None = None

    def path(self) -> Iterator[MadeCall]:
        if self.parent is not None and self.made is not None:
            yield from self.parent.path()
            yield self.made

    def attributes(self) -> Found:
        """What every attribute is, by its owner, "m", "g" or "w", and its name."""
        kept, ghost = pickle.loads(self.saved)
        return attributes_of(kept, ghost, self.encoded)


@dataclass(frozen=True)
class CallTransition:
    """A call that was made, what it answered, and the states before and after it; before the first,
    in which a manager is built, there is none."""

    scope: WitnessScope
    made: MadeCall
    answer: object
    before: WitnessState | None
    after: WitnessState


@dataclass(frozen=True)
class WitnessBreak:
    """The calls that break a contract, and in words what does not hold."""

    calls: tuple[MadeCall, ...]
    why: str

    def __str__(self) -> str:
        return f"{'; '.join(map(str, self.calls))}: {self.why}"


@dataclass
class ScopeExploration:
    """What came of a scope.

    Attributes:
        closed: every state was gone on from.
        calls: operation -> how many were made.
        broken: contract -> how it is broken first; from there on it is not asserted.
        unlike: one call of each kind, by what it met, answered and changed.
    """

    scope: WitnessScope
    states: int = 0
    closed: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    broken: dict[str, WitnessBreak] = field(default_factory=dict)
    unlike: dict[Hashable, CallTransition] = field(default_factory=dict)


class WitnessExplorer:
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
        constants: Mapping[str, object],
        component: str,
        rules: Sequence[Contract],
        safety: str,
        state_of: ReadState,
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
            # CP-5 is kept by `_may`, request by request
            if rule.component == CALLERS and not rule.synchronous_only
        ]

    def explore(self, scope: WitnessScope, calls_max: int) -> ScopeExploration:
        """The states that calls lead to, until `calls_max` are made and the last state is done;
        or to a call that does not end, which breaks the contract that nothing raises.

        Raises:
            Unexplorable: the class has states that cannot be saved.
        """
        found = ScopeExploration(scope)
        reached = breadth_first(
            lambda: self._begun(scope, found),
            lambda _: self._offered(scope),
            lambda state, made: self._made(scope, state, made, found),
            lambda state: state.key,
            lambda: found.calls.total() < calls_max,
        )
        if reached.endless is not None:
            state, made = reached.endless
            found.broken[self._safety] = WitnessBreak((*state.path(), made), "it does not end")
        found.states, found.closed = reached.states, reached.closed
        return found

    # one call

    def _begun(self, scope: WitnessScope, found: ScopeExploration) -> WitnessState | None:
        manager, ghost = object.__new__(self._manager), Ghost()
        # what to go back to when building breaks a contract
        nothing = WitnessState(pickle.dumps(({}, ghost)), {}, ((), (), (), ()))

        def build(episode: Episode) -> None:
            given = scope.capacity, *self._constants.values()
            vars(episode.manager).update(vars(self._manager(*given)))
            episode.judge_state("init")

        return self._judged(manager, ghost, build, scope, nothing, MadeCall("init"), found)

    def _made(
        self, scope: WitnessScope, state: WitnessState, made: MadeCall, found: ScopeExploration
    ) -> WitnessState | None:
        """The state after a call; None where the caller does not make it, or it ends all."""
        manager, ghost = self._restored(state)
        if not self._may(scope, manager, ghost, state, made):
            return None
        found.calls[made.operation] += 1

        request = scope.request(made.request) if made.request else None

        def run(episode: Episode) -> object:
            return perform(episode, made, request, ledger=self._has_ledger)

        return self._judged(manager, ghost, run, scope, state, made, found)

    def _judged(
        self,
        manager: object,
        ghost: Ghost,
        run: Callable[[Episode], object],
        scope: WitnessScope,
        state: WitnessState,
        made: MadeCall,
        found: ScopeExploration,
    ) -> WitnessState | None:
        rules = [rule for rule in self._rules if rule.id not in found.broken]
        episode = Episode(
            manager,
            ghost,
            lambda one, told: self._seen(scope, one, told),
            lambda _: ClaimTables({}, {}),
            rules,
            encoded=dict(state.encoded),
        )
        try:
            answer = run(episode)
        except BrokenRule as broken:
            found.broken[broken.rule.id] = WitnessBreak((*state.path(), made), broken.why)
            again = self._restored(state)  # the others are asserted, and gone on with
            return self._judged(*again, run, scope, state, made, found)
        except Exception as error:  # in __init__, or an attribute is gone
            why = f"raises {type(error).__name__}: {error}"
            found.broken.setdefault(self._safety, WitnessBreak((*state.path(), made), why))
            return None
        if episode.has_lent:
            raise Unexplorable(f"{made} answers with what the manager goes on using")
        if episode.ended:
            return None
        kept = {k: v for k, v in vars(manager).items() if k not in self._constants}
        encoded = episode.encoded
        attributes = tuple((name, _canonical(one)) for name, one in kept.items())
        key = (attributes, _shared(kept), _of_ghost(ghost), _canonical(encoded))
        try:
            saved = pickle.dumps((kept, ghost))
        except Exception as error:
            raise Unexplorable(f"after {made}: {error}") from error
        after = WitnessState(saved, encoded, key, state, made)
        met = _met(scope, state.key, made, answer, key)
        if met not in found.unlike:
            before = None if made.operation == "init" else state
            found.unlike[met] = CallTransition(scope, made, answer, before, after)
        return after

    def _seen(self, scope: WitnessScope, manager: object, ghost: Ghost) -> Any:
        """What contracts look at; the capacity is the one that the manager was built with, not what
        it says."""
        return self._state_of(manager, ghost)._replace(capacity=scope.capacity)

    # what a caller may ask

    def _offered(self, scope: WitnessScope) -> Iterator[MadeCall]:
        """The calls of the operations that the class has."""
        for made in _all_calls(scope):
            if made.operation in self._operations and made.operation not in scope.leaves_out:
                yield made

    def _may(
        self,
        scope: WitnessScope,
        manager: object,
        ghost: Ghost,
        state: WitnessState,
        made: MadeCall,
    ) -> bool:
        """Whether a caller that keeps its promises makes this call."""
        seen = self._seen(scope, manager, ghost)
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

    def _restored(self, state: WitnessState) -> tuple[object, Ghost]:
        kept, ghost = pickle.loads(state.saved)
        manager = object.__new__(self._manager)
        vars(manager).update(self._constants, **kept)
        return manager, ghost


def _all_calls(scope: WitnessScope) -> Iterator[MadeCall]:
    for operation in ("notices", "reset"):
        yield MadeCall(operation)
    for name, items in scope.requests.items():
        for operation in ("free", "inputs", "withdraw"):
            yield MadeCall(operation, name)
        for number in range(len(items)):
            yield MadeCall("consume", name, progress=number + 1)
            for operation in ("check", "allocate", "release", "embeds"):
                yield MadeCall(operation, name, number)
            for budget in scope.budgets:
                for pending in scope.pending:
                    yield MadeCall("can", name, number, budget, pending)


def _call(scope: WitnessScope, ghost: Ghost, made: MadeCall) -> Call:
    if made.input_id < 0:
        identifier, size = "", 0
    else:
        identifier, size = scope.requests[made.request][made.input_id]
    debited = (made.request, made.input_id) in ghost.debits
    return Call(
        made.operation, made.request, made.input_id, identifier, size, made.input_id + 1,
        made.budget, made.pending, False, debited, "",
    )  # fmt: skip


def _canonical(value: Any) -> Hashable:
    """A value that is equal for equal containers, order included where there is one."""
    match value:
        case dict():
            return tuple((key, _canonical(one)) for key, one in value.items())
        case set() | frozenset():
            return frozenset(value)
        case list() | tuple():
            return tuple(map(_canonical, value))
        case _:
            return value


def _shared(kept: Mapping[str, object]) -> tuple[int, ...]:
    """Which attributes have one container between them: two states that are equal but for that may
    go on differently."""
    objects = [id(one) for one in kept.values() if isinstance(one, dict | list | set)]
    return tuple(map(objects.index, objects))


def _of_ghost(ghost: Ghost) -> tuple[Hashable, ...]:
    """A ghost without its clock: entries that became idle by their order, what is stored by whether
    it was just encoded."""
    times = sorted(set(ghost.idle_since.values()))
    return (
        frozenset((h, frozenset(one)) for h, one in ghost.needed.items()),
        frozenset((h, times.index(one)) for h, one in ghost.idle_since.items()),
        frozenset(ghost.size.items()),
        frozenset(ghost.stored.items()),
        frozenset(ghost.debits.items()),
        # ED-3 asks no more than whether it is at most 1
        frozenset((h, min(2, one)) for h, one in ghost.steps_since_encode.items()),
        frozenset((r, frozenset(one.items())) for r, one in ghost.claimed_end.items()),
    )


_Key = tuple[tuple[tuple[str, Hashable], ...], tuple[int, ...], tuple[Hashable, ...], Hashable]
"""Equal for states of which only one need be gone on from: attributes, which of them are one
object, the ghost, and what the step in the making encodes."""


def _met(
    scope: WitnessScope, before: _Key, made: MadeCall, answer: object, after: _Key
) -> Hashable:
    """What makes a call of another kind than those before: its operation and answer, and what was
    pending; where its request, input and identifier stand in the manager's containers; which
    attributes it changed, and how; and which fields of the ghost."""
    old, new = dict(before[0]), dict(after[0])
    names: list[Hashable] = [made.request] if made.request else []
    if made.input_id >= 0:
        names += [made.input_id, scope.requests[made.request][made.input_id][0]]
    meets = tuple(_stands(found, name) for found in old.values() for name in names)
    changes = tuple((name, _change(old.get(name), new[name])) for name in new)
    of_ghost = tuple(one != other for one, other in zip(before[2], after[2], strict=False))
    return made.operation, str(answer), made.pending, meets, changes, of_ghost


def _stands(found: Hashable, name: Hashable) -> Hashable:
    """Whether something is in a container, and how much is under it."""
    if not isinstance(found, tuple | frozenset):
        return False
    for one in found:
        if one == name:
            return True
        if isinstance(one, tuple) and one and one[0] == name:
            inner = one[-1]
            return min(2, len(inner)) if isinstance(inner, tuple | frozenset) else True
    return False


def _change(old: Hashable, new: Hashable) -> Hashable:
    if old == new:
        return ""
    if isinstance(new, tuple | frozenset) and not new:
        return "emptied"
    if isinstance(old, tuple | frozenset) and isinstance(new, tuple | frozenset):
        return len(new) - len(old)
    return "changed"
