"""Which contracts judge a kind of manager, and the schedulers and engines around it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import cacheproof.spec.block_hash
import cacheproof.spec.block_pool
import cacheproof.spec.encoder_cache
import cacheproof.spec.encoder_connector
import cacheproof.spec.encoder_decoder_cache
import cacheproof.spec.engine
import cacheproof.spec.entry_table
import cacheproof.spec.kv_cache
import cacheproof.spec.kv_transfers
import cacheproof.spec.manager_calls
import cacheproof.spec.media_hash
import cacheproof.spec.media_identifier
import cacheproof.spec.processed_media
import cacheproof.spec.scheduler
import cacheproof.spec.scheduler_kv
import cacheproof.spec.worker_mirror
from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.judges import narrowing
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call, LedgerState, Making, Step
from cacheproof.spec.registry import ANY_CALL, WHOLE_EVENT, WITHDRAWAL, Contract, contracts

READS = frozenset({"inputs", "embeds", "notices"})
"""Calls that only read."""
Subject = tuple[object, ...]
"""A record of `spec/` that contracts are about, whichever it is."""
SCHEDULER = cacheproof.spec.scheduler.COMPONENT
ENGINE = cacheproof.spec.engine.COMPONENT
NO_CALL = Call("event", "", -1, "", 0, 0, 0, 0, False, False, "")
"""The call that an event stands for as a whole."""
FOLLOWED = frozenset({"g.size"})
"""Maps of the ghost in which a call changes no other entry than its own."""


class Rules:
    """The contracts that apply to one kind of manager and one release, sorted for the hot path.

    Transition contracts are grouped by operation, state contracts by whether they look at the
    ghost. At scheduler depth those of the scheduler are beside them, by what they look at, and what
    it promises, by operation: elsewhere it is this harness that calls. Where an engine executes its
    steps those of the engine are there as well. Those that are `silent` are left out.

    What is `narrowed` says of all contracts at once whether they hold, and looks at fewer entries;
    `together` says so of a scheduler's records by their type, and `step_together` of steps.
    """

    def __init__(
        self,
        manager: str,
        release: str | None,
        *,
        asynchronous: bool = False,
        depth: str = "manager",
        silent: frozenset[str] = frozenset(),
    ) -> None:
        rules = [
            rule
            for rule in contracts(manager_component(manager), release)
            if rule.id not in silent
            and not (asynchronous and rule.synchronous_only)
            and not (rule.kind == "promise" and not DEPTHS[depth].has_scheduler)
        ]
        of_scheduler = list(contracts(SCHEDULER, release)) if DEPTHS[depth].has_scheduler else []
        if DEPTHS[depth].is_executed:
            of_scheduler += contracts(ENGINE, release)
        of_scheduler = [rule for rule in of_scheduler if rule.id not in silent]
        self.all = [*rules, *of_scheduler]
        self.of_scheduler = {
            subject: [(rule, rule.predicate) for rule in found]
            for subject, found in by_subject(of_scheduler).items()
        }
        self.together = {subject: found.hold for subject, found in by_subject(of_scheduler).items()}
        states = [rule for rule in rules if rule.kind == "state"]
        self.of_state = [(rule, rule.predicate) for rule in states if rule.parameters == ("s",)]
        self.of_state_and_ghost = [
            (rule, rule.predicate) for rule in states if rule.parameters == ("s", "g")
        ]
        assert len(self.of_state) + len(self.of_state_and_ghost) == len(states)
        of_records = by_subject(rule for rule in rules if rule.kind in ("trace", "mirror"))
        self.of_step: list[Contract] = of_records.get(Step, RulesAbout())
        self.step_together = held_together(self.of_step)
        transitions = [rule for rule in rules if rule.kind == "transition"]
        self.of_event = [rule for rule in transitions if rule.calls == WHOLE_EVENT]
        assert all(rule.predicate(NO_CALL) for rule in self.of_event)
        self.of_ghost = {
            operation: [rule for rule in transitions if _of_ghost(rule) and operation in rule.calls]
            for operation in ANY_CALL
        }
        assert not any(rule.also_unchanged for rule in transitions if _of_ghost(rule))
        self.changed = {
            operation: [
                (rule, _of_call(rule))
                for rule in transitions
                if not _of_ghost(rule) and operation in rule.calls
            ]
            for operation in ANY_CALL
        }
        self.unchanged = {
            operation: [(rule, holds) for rule, holds in rules if rule.also_unchanged]
            for operation, rules in self.changed.items()
        }
        self.silent = frozenset(one for one in READS if not self.unchanged[one])
        self.promised = {
            operation: [
                (rule, _of_promise(rule))
                for rule in rules
                if rule.kind == "promise" and operation in rule.calls
            ]
            for operation in ANY_CALL | WITHDRAWAL
        }
        self.narrowed = Narrowed(
            narrowing.of_states(states, FOLLOWED),
            {
                operation: narrowing.of_transitions(
                    rule for rule in transitions if operation in rule.calls
                )
                for operation in ANY_CALL
            },
            {
                operation: narrowing.of_transitions(rule for rule, _ in asked)
                for operation, asked in self.unchanged.items()
            },
            {
                operation: narrowing.of_promises([rule for rule, _ in asked], operation)
                for operation, asked in self.promised.items()
            },
        )


class Narrowed(NamedTuple):
    """Whether all contracts hold: of a state, of a call that `changed` the state, of one that left
    it `unchanged`, and what is `promised` of one; the latter three by operation."""

    states: narrowing.Holds
    changed: Mapping[str, narrowing.Holds]
    unchanged: Mapping[str, narrowing.Holds]
    promised: Mapping[str, narrowing.Holds]


class RulesAbout(list[Contract]):
    """Contracts about one type of record."""

    @cached_property
    def hold(self) -> narrowing.Holds:
        """Says of one record whether all of them hold."""
        return held_together(self)


def by_subject(rules: Iterable[Contract]) -> dict[type, RulesAbout]:
    """Contracts about one record, by its type."""
    found: dict[type, RulesAbout] = {}
    for rule in rules:
        (subject,) = set(rule.predicate.__annotations__.values()) - {bool}
        assert len(rule.parameters) == 1
        found.setdefault(subject, RulesAbout()).append(rule)
    return found


_TOGETHER: dict[tuple[Callable[..., bool], ...], narrowing.Holds] = {}


def held_together(rules: Sequence[Contract]) -> narrowing.Holds:
    """What says of one record whether all these contracts about its type hold."""
    predicates = tuple(rule.predicate for rule in rules)
    holds = _TOGETHER.get(predicates)
    if holds is None:
        holds = _TOGETHER[predicates] = narrowing.of_records(rules)
    return holds


def about(rule: Contract, subject: Subject) -> dict[str, Subject]:
    """The values of a contract about one record."""
    return {rule.parameters[0]: subject}


def _of_ghost(rule: Contract) -> bool:
    """Whether a transition contract looks at the ghost; the others look at the call."""
    return rule.parameters == ("pre", "post", "g")


def _of_call(rule: Contract) -> Callable[[LedgerState, LedgerState, Call], bool]:
    """The predicate under one signature, so that the hot path need not look at its parameters."""
    holds = rule.predicate
    match rule.parameters:
        case ("pre", "post", "c"):
            return holds
        case ("pre", "c"):
            return lambda pre, post, c: holds(pre, c)
        case ("post", "c"):
            return lambda pre, post, c: holds(post, c)
        case parameters:
            raise ValueError(f"contract {rule.id}: transition over {', '.join(parameters)}")


def _of_promise(
    rule: Contract,
) -> Callable[[LedgerState, Ghost, Mapping[str, int], Call], bool]:
    """The predicate of a promise under one signature: state, ghost, what the step encodes, call."""
    holds = rule.predicate
    match rule.parameters:
        case ("s", "c"):
            return lambda state, ghost, encoded, call: holds(state, call)
        case ("g", "c"):
            return lambda state, ghost, encoded, call: holds(ghost, call)
        case ("s", "g", "c"):
            return lambda state, ghost, encoded, call: holds(state, ghost, call)
        case ("g", "w", "c"):
            return lambda state, ghost, encoded, call: holds(ghost, Making(encoded), call)
        case parameters:
            raise ValueError(f"contract {rule.id}: promise over {', '.join(parameters)}")


def manager_component(manager: str) -> str:
    """The component whose contracts judge a kind of manager."""
    return "encoder_decoder_cache" if manager == "encoder_decoder" else manager


@lru_cache
def rules_for(
    manager: str,
    release: str | None,
    depth: str = "manager",
    silent: frozenset[str] = frozenset(),
    *,
    asynchronous: bool = False,
) -> Rules:
    """The contracts that judge a manager of a release, and at scheduler depth its scheduler, but
    for those that are `silent`."""
    return Rules(manager, release, asynchronous=asynchronous, depth=depth, silent=silent)


def rules_of(trace: Trace, release: str | None, silent: frozenset[str] = frozenset()) -> Rules:
    """The contracts that judge a trace of a manager, or of a scheduler and its manager, but for
    those that are `silent`."""
    config = trace.header.config
    asynchronous = isinstance(config, SchedulerConfig) and config.async_scheduling
    return rules_for(trace.header.manager, release, trace.depth, silent, asynchronous=asynchronous)
