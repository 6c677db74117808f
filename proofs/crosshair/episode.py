"""A few calls of one manager, each judged by the contracts at its end.

CrossHair runs an episode with symbolic sizes and choices, CPython runs its counterexamples again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cacheproof.proofs.crosshair.copies import frozen
from cacheproof.spec import subset
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call, Step, inputs_in, leaves_out, named_by, number_of
from cacheproof.spec.registry import WHOLE_EVENT, Contract, by_id, contracts
from cacheproof.spec.versions import Versions

METHODS: Mapping[str, str] = {
    "check": "check_and_update_cache",
    "can": "can_allocate",
    "allocate": "allocate",
    "release": "free_encoder_input",
    "free": "free",
    "inputs": "get_cached_input_ids",
    "embeds": "get_cached_num_encoder_embeds",
    "notices": "get_freed_mm_hashes",
    "reset": "reset",
}
"""Operation of the contracts -> method of a manager."""

OF_THE_SCHEDULER = frozenset({"EC-8b"})
"""Contracts of steps that no manager alone can keep or break."""


class ClaimTables(NamedTuple):
    """What a manager remembers of claims beside its ledger, and what its calls come to."""

    kept: Mapping[Any, object]
    claimed: Mapping[Any, object]


def remembered(k: ClaimTables) -> bool:
    return k.kept == k.claimed


REMEMBERED = Contract(
    id="remembered",
    title="What a manager remembers of claims is what was claimed (auxiliary: states start so)",
    kind="state",
    harm="safety",
    component="",
    source="",
    versions=Versions("all"),
    applies_to=(),
    calls=frozenset(),
    also_unchanged=False,
    synchronous_only=False,
    predicate=remembered,
    parameters=("k",),
    expression=subset.parse(remembered),
)
"""No contract of spec, but part of the states that every condition starts in: so what ends a call
must keep it, for calls in a row to be covered by one call after another."""


def rule_of(id: str) -> Contract:
    """The contract of that id, or the auxiliary rule."""
    return REMEMBERED if id == REMEMBERED.id else by_id(id)


ReadState = Callable[[Any, Ghost], Any]
"""Makes the record that contracts look at, of a manager and the ghost."""


class BrokenRule(AssertionError):
    """A contract does not hold. `rule` says which, `values` are what it looked at."""

    def __init__(self, rule: Contract, operation: str, values: Mapping[str, object]) -> None:
        super().__init__(rule.id)
        self.rule = rule
        self.operation = operation
        self._values = values

    @property
    def why(self) -> str:
        """The operation and both sides of what failed; only where the values are concrete."""
        values = {name: self._values[name] for name in self.rule.parameters}
        return f"{self.operation}: {self.rule.explain(**values)}"


@dataclass(frozen=True)
class ConditionSubject:
    """What conditions are about: a class of managers, and the contracts that are asserted of it."""

    manager: Callable[[int], Any]
    rules: Collection[Contract]


# not a parameter of conditions: CrossHair makes all of those symbolic
_subjects: list[ConditionSubject] = []


def about(subject: ConditionSubject) -> None:
    """Let conditions be about this subject from now on."""
    _subjects[:] = [subject]


def subject() -> ConditionSubject:
    """What conditions are about."""
    return _subjects[0]


@dataclass(frozen=True)
class SymbolicCondition:
    """A function over symbolic parameters that begins with its preconditions as assertions.

    `operations` are the calls that it judges, `scope` says from which states, and `precondition`
    what their caller keeps. It is about managers without the method `lacking`, where one is named.
    """

    function: Callable[..., None]
    operations: tuple[str, ...]
    scope: str
    precondition: str
    lacking: str | None = None

    @property
    def name(self) -> str:
        return self.function.__name__

    def is_about(self, manager: type) -> bool:
        """Whether managers of that class are called so."""
        lacks = self.lacking is None or not hasattr(manager, self.lacking)
        return lacks and all(hasattr(manager, METHODS[one]) for one in self.operations)


@dataclass
class Episode:
    """The calls of one manager. One that raises ends the episode: later calls are not made.

    `read` makes the record that contracts look at, of the manager and the ghost; `recall` says what
    the manager remembers, where `claims` (by request and input) are what its calls come to.
    `has_lent` says that notices, which a step's output keeps, were a container that the manager
    goes on using, or none, such as a view: contracts see them as they are then, and not as they
    become.
    """

    manager: Any
    ghost: Ghost
    read: ReadState
    recall: Callable[["Episode"], ClaimTables]
    rules: Collection[Contract]
    claims: dict[str, dict[int, str]] = field(default_factory=dict)
    encoded: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    has_lent: bool = False

    def call(self, operation: str, *arguments: Any) -> Any:
        """Make one call, with the request, input, budget and pending embeddings that it takes, tell
        the ghost of it as a scheduler's judge does, and assert the contracts of such a call."""
        if self.ended:
            return None
        request, input_id, budget, pending = (*arguments, None, None, None, None)[:4]
        size = self._tell(operation, request, input_id)
        name = "" if request is None else request.request_id
        identifier = "" if input_id is None else request.mm_features[input_id].identifier
        debited = (name, input_id) in self.ghost.debits
        pre = self.read(self.manager, self.ghost)
        answer, raised = None, ""
        try:
            answer = getattr(self.manager, METHODS[operation])(*arguments)
        # not BaseException: `Endless`, and how CrossHair ends a path, are no answers of a call
        except (Exception, GeneratorExit, SystemExit) as error:
            raised, self.ended = type(error).__name__, True
        call = Call(
            operation,
            name,
            -1 if input_id is None else input_id,
            identifier,
            size,
            0 if input_id is None else request.ends[input_id],
            budget or 0,
            pending or 0,
            answer is True,
            debited,
            raised,
            operation == "embeds" and answer is not None,
            number_of(answer) if operation == "embeds" else 0,
            *(self._told(request, answer) if operation == "inputs" else ()),
        )
        # before the episode ends: that nothing raises is judged of what was raised
        self._judge("event", operation, {"c": call})
        if self.ended:
            return None
        post = self.read(self.manager, self.ghost)
        # before the ghost takes over a release or a claim: contracts see it as it was at the call
        self._judge("transition", operation, {"pre": pre, "post": post, "g": self.ghost, "c": call})
        if operation == "release":
            self.ghost.release(name, input_id)
            self._unclaim(name, [input_id])
        if operation == "free":
            self._unclaim(name, list(self.claims.get(name, ())))
        if operation == "allocate" or (operation == "check" and answer is True):
            self.ghost.claim(name, identifier, request.ends[input_id])
            self.claims.setdefault(name, {})[input_id] = identifier
        if operation == "reset":
            self.claims.clear()
        self.judge_state(operation)
        return answer

    def _told(self, request: Any, answer: object) -> tuple[Set[str], bool]:
        """The identifiers of the inputs in an answer, and whether it leaves one out."""
        inputs = inputs_in(answer)
        identifiers = [feature.identifier for feature in request.mm_features]
        return named_by(inputs, identifiers), leaves_out(
            self.ghost.debits, request.request_id, inputs
        )

    def judge_state(self, operation: str) -> None:
        """Assert the contracts of states, of the one that the manager and the ghost are in."""
        state = self.read(self.manager, self.ghost)
        self._judge("state", operation, {"s": state, "g": self.ghost, "k": self.recall(self)})

    def _unclaim(self, request: str, inputs: Iterable[int]) -> None:
        """The request gave these inputs back; who has claimed nothing is not remembered."""
        claims = self.claims.get(request, {})
        for input_id in inputs:
            claims.pop(input_id, None)
        if not claims:
            self.claims.pop(request, None)

    def _tell(self, operation: str, request: Any, input_id: int | None) -> int:
        """What the ghost learns before a call. Returns the size of the item."""
        if operation == "reset":
            self.ghost.reset()
        elif operation == "free":
            self.ghost.withdraw(request.request_id)
        if input_id is None:
            return 0
        size: int = request.get_num_encoder_embeds(input_id)
        if operation == "allocate":
            identifier = request.mm_features[input_id].identifier
            self.ghost.encode(request.request_id, input_id, identifier, size)
            self.encoded[identifier] = size
        return size

    def step(self, *, ledger: bool) -> None:
        """A step ends: draw the notices, let the worker run it, and assert the contracts of steps.

        `ledger`: whether the manager has one, which says what may stay in the worker's store.
        """
        notices = self.call("notices")
        if self.ended:
            return
        own = _containers(vars(self.manager).values())
        is_container = isinstance(notices, list | set | tuple)
        self.has_lent = not is_container or any(notices is one for one in own)
        before = dict(self.ghost.stored)
        self.ghost.step(tuple(notices), self.encoded)
        state = self.read(self.manager, self.ghost)
        step = Step(
            capacity=state.capacity,
            before=before,
            notices=tuple(notices),
            encoded=frozen(self.encoded),
            gathered=frozenset(),
            store=self.ghost.stored,
            ledger=state.size if ledger else {},
            pending=frozenset(),
            steps_since_encode=self.ghost.steps_since_encode,
            evicting=frozenset(),
            allocating=frozenset(),
        )
        self._judge("trace", "step", {"w": step})
        self.encoded = {}

    def _judge(self, kind: str, operation: str, values: Mapping[str, object]) -> None:
        for rule in self.rules:
            if judges(rule, kind, operation) and not rule.predicate(
                *[values[name] for name in rule.parameters]
            ):
                raise BrokenRule(rule, operation, values)


def judges(rule: Contract, kind: str, operation: str) -> bool:
    """Whether a contract is asserted at that moment of such a call."""
    if kind == "event":
        return rule.calls == WHOLE_EVENT
    return rule.kind == kind and (kind != "transition" or operation in rule.calls)


def rules_of(component: str, operations: Collection[str], release: str | None) -> list[Contract]:
    """The contracts that an episode of these calls asserts. A draw of notices ends a step."""
    return [
        rule
        for rule in contracts(component, release)
        if rule.component == component
        and (
            any(
                judges(rule, kind, operation)
                for kind in ("event", "transition", "state")
                for operation in operations
            )
            or (
                rule.kind == "trace" and rule.id not in OF_THE_SCHEDULER and "notices" in operations
            )
        )
    ]


def _containers(values: Iterable[object]) -> Iterator[object]:
    """All containers among values, and those in them."""
    for value in values:
        if isinstance(value, dict | list | set):
            yield value
            yield from _containers(value.values() if isinstance(value, dict) else value)
