"""The register of contracts: one executable rule each, with what an auditor asks about it.

`contract` checks at import that the predicate is one expression in the subset (see `subset`),
registers it and returns the function unchanged: what runs is what is proved and printed.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

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
    all the calls of an event. A promise judges the caller, before the call; WITHDRAWAL is what only
    the ghost is told: a request runs no more. BEGIN is that of a store's table: room is asked for,
    for an entry that is to be written. `also_unchanged` says that a contract must be judged
    even when the call left the state as it was (the others hold of any such call).
    `synchronous_only` says that the rule leans on the moment when a request gets past an item,
    which asynchronous scheduling leaves to the release.
    `versions` are the vLLM releases that promise the rule; `applies_to` the kinds of manager.
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

    def explain(self, **values: Any) -> str:
        """Both sides of the comparison that failed, evaluated from the predicate's own source."""
        return self.expression.explain(values)


_CONTRACTS: dict[str, Contract] = {}


def contract(
    id: str,
    title: str,
    *,
    kind: Kind,
    harm: Harm,
    component: str,
    source: str,
    versions: str = "all",
    applies_to: tuple[str, ...] = (),
    calls: Iterable[str] = (),
    also_unchanged: bool = False,
    synchronous_only: bool = False,
) -> Callable[[Predicate], Predicate]:
    """Register the decorated predicate under `id` and return it unchanged.

    Raises:
        ValueError: two contracts share an id, or one of calls names none.
        subset.SubsetError: the predicate is not one expression in the subset; names file and line.
    """

    def register(predicate: Predicate) -> Predicate:
        if id in _CONTRACTS:
            raise ValueError(f"contract {id} is registered twice")
        if (kind in _OF_CALLS) != bool(calls):
            raise ValueError(f"contract {id}: transitions and promises, and only they, name calls")
        expression = subset.parse(predicate)
        _CONTRACTS[id] = Contract(
            id=id,
            title=title,
            kind=kind,
            harm=harm,
            component=component,
            source=source,
            versions=Versions(versions),
            applies_to=applies_to or (component,),
            calls=frozenset(calls),
            also_unchanged=also_unchanged,
            synchronous_only=synchronous_only,
            predicate=predicate,
            parameters=expression.parameters,
            expression=expression,
        )
        return predicate

    return register


def contracts(manager: str | None = None, release: str | None = None) -> Iterator[Contract]:
    """Registered contracts in order of definition, for one kind of manager and one release."""
    for rule in _CONTRACTS.values():
        if manager is not None and manager not in rule.applies_to:
            continue
        if release is None or release in rule.versions:
            yield rule


def by_id(id: str) -> Contract:
    """The contract of that id. Raises KeyError when there is none."""
    return _CONTRACTS[id]
