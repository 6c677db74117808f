"""The register of contracts: one executable rule each, with what an auditor asks about it.

A method of a `Component` checks at import that the predicate is one expression in the subset (see
`subset`), registers it and returns the function unchanged: what runs is what is proved and printed.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypedDict, TypeVar, Unpack

from cacheproof.spec import subset
from cacheproof.spec.versions import Versions

Kind = Literal[
    "state", "transition", "trace", "mirror", "progress", "pair", "keys", "answer", "promise"
]
Harm = Literal["safety", "liveness", "efficiency"]
Predicate = TypeVar("Predicate", bound=Callable[..., bool])

ADMISSION = frozenset({"can"})
LOOK_UP = frozenset({"check"})
LOOK_AT = frozenset({"embeds"})
HELD = frozenset({"inputs"})
RELEASE = frozenset({"release"})
WHOLE_EVENT = frozenset({"event"})
WITHDRAWAL = frozenset({"withdraw"})
BEGIN = frozenset({"begin"})
ANY_CALL = frozenset(
    {"check", "can", "allocate", "release", "free", "notices", "inputs", "embeds", "reset"}
)
_OF_CALLS = frozenset({"transition", "promise"})


@dataclass(frozen=True)
class Contract:
    """One rule. `parameters` names what the predicate looks at: s, pre, post, g, c, w, p or k.

    `calls` are the manager calls a transition contract judges, or WHOLE_EVENT for one verdict over
    all the calls of an event. A promise judges the caller, before the call; WITHDRAWAL is a
    call that only the ghost sees: a request stops running. BEGIN is a call of a store's table, for
    the room of an entry that is to be written. `also_unchanged` says that a contract must be judged
    even when the call left the state as it was (the others hold of any such call).
    `synchronous_only` says that the rule leans on the moment when a request gets past an item,
    which asynchronous scheduling leaves to the release.
    `versions` are the vLLM releases that promise the rule; `applies_to` the components.
    """

    id: str
    title: str
    kind: Kind
    harm: Harm
    component: str
    source: str
    versions: Versions
    applies_to: tuple[str, ...]
    calls: frozenset[str]
    also_unchanged: bool
    synchronous_only: bool
    predicate: Callable[..., bool] = field(compare=False)
    parameters: tuple[str, ...]
    expression: subset.Expression = field(compare=False, repr=False)

    def explain(self, **values: object) -> str:
        """Both sides of the comparison that failed, evaluated from the predicate's own source."""
        return self.expression.explain(values)


_CONTRACTS: dict[str, Contract] = {}


class RuleDetails(TypedDict, total=False):
    """Further fields of a rule; what is left out is the component's, or as `Contract` has it."""

    source: str
    versions: str
    applies_to: tuple[str, ...]
    calls: Iterable[str]
    also_unchanged: bool
    synchronous_only: bool


class Register(Protocol):
    """A decorator that registers a predicate and returns it unchanged."""

    def __call__(self, predicate: Predicate, /) -> Predicate: ...


class Component:
    """A part of vLLM that rules are about. Each method registers rules of one kind, by id, harm and
    title, and says which parameters the predicate takes.

    The methods raise ValueError where two contracts share an id, or where one of calls names none;
    and subset.SubsetError, with file and line, where the predicate is not one expression in the
    subset.
    """

    def __init__(
        self, name: str, *, versions: str = "all", applies_to: tuple[str, ...] = ()
    ) -> None:
        self._name = name
        self._about: RuleDetails = {"versions": versions, "applies_to": applies_to or (name,)}

    def state(self, id: str, harm: Harm, title: str, **about: Unpack[RuleDetails]) -> Register:
        """Register a rule of states: its predicate takes `s`, or `s, g`."""
        return self._rule("state", id, harm, title, about)

    def transition(self, id: str, harm: Harm, title: str, **about: Unpack[RuleDetails]) -> Register:
        """Register a rule of `calls`: its predicate takes `pre, post, c`, `pre, c` or `post, c`;
        `pre, post, g` where it looks at the ghost; `c` alone for WHOLE_EVENT."""
        return self._rule("transition", id, harm, title, about)

    def promise(self, id: str, harm: Harm, title: str, **about: Unpack[RuleDetails]) -> Register:
        """Register what callers owe before `calls`: any of `s, g, w`, then `c`."""
        return self._rule("promise", id, harm, title, about)

    def trace(self, id: str, harm: Harm, title: str, **about: Unpack[RuleDetails]) -> Register:
        """Register a rule of one step or event of a trace: `w`, or `c`."""
        return self._rule("trace", id, harm, title, about)

    def mirror(self, id: str, harm: Harm, title: str, **about: Unpack[RuleDetails]) -> Register:
        """Register a rule of `w`, a step with the ledger and the worker's store."""
        return self._rule("mirror", id, harm, title, about)

    def progress(self, id: str, harm: Harm, title: str, **about: Unpack[RuleDetails]) -> Register:
        """Register a rule of progress: `c` is what came of a stretch of steps."""
        return self._rule("progress", id, harm, title, about)

    def pair(self, id: str, harm: Harm, title: str, **about: Unpack[RuleDetails]) -> Register:
        """Register a rule of `p`, a pair of which neither may be taken for the other."""
        return self._rule("pair", id, harm, title, about)

    def keys(self, id: str, harm: Harm, title: str, **about: Unpack[RuleDetails]) -> Register:
        """Register a rule of the keys of one request: `k`, or `c` for their number."""
        return self._rule("keys", id, harm, title, about)

    def answer(self, id: str, harm: Harm, title: str, **about: Unpack[RuleDetails]) -> Register:
        """Register a rule of what a call answers: `c`, or `p`."""
        return self._rule("answer", id, harm, title, about)

    def _rule(self, kind: Kind, id: str, harm: Harm, title: str, about: RuleDetails) -> Register:
        told: RuleDetails = {**self._about, **about}
        calls = frozenset(told.get("calls", ()))

        def register(predicate: Predicate) -> Predicate:
            if id in _CONTRACTS:
                raise ValueError(f"contract {id} is registered twice")
            if (kind in _OF_CALLS) != bool(calls):
                raise ValueError(
                    f"contract {id}: transitions and promises, and only they, name calls"
                )
            expression = subset.parse(predicate)
            _CONTRACTS[id] = Contract(
                id=id,
                title=title,
                kind=kind,
                harm=harm,
                component=self._name,
                source=told["source"],
                versions=Versions(told["versions"]),
                applies_to=told["applies_to"],
                calls=calls,
                also_unchanged=told.get("also_unchanged", False),
                synchronous_only=told.get("synchronous_only", False),
                predicate=predicate,
                parameters=expression.parameters,
                expression=expression,
            )
            return predicate

        return register


def contracts(component: str | None = None, release: str | None = None) -> Iterator[Contract]:
    """Registered contracts that apply to a component, of a release, in order of definition."""
    for rule in _CONTRACTS.values():
        if component is not None and component not in rule.applies_to:
            continue
        if release is None or release in rule.versions:
            yield rule


def by_id(id: str) -> Contract:
    """The contract of that id. Raises KeyError when there is none."""
    return _CONTRACTS[id]
