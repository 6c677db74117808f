"""What is asked of a manager: evaluates the contracts at every call and keeps what is broken.

A pure predicate of an unchanged state needs no second evaluation: state contracts are judged when
the state or the ghost moved, transition contracts that hold of any unchanged state only when it
changed (`also_unchanged` marks the others).

Where it is known what a call changed, all contracts are asked at once and narrowed to that. Where
these do not say that all of them hold, each is asked as it stands in `spec/`, so that every break
is a break of that text.
"""

from collections.abc import Collection, Mapping, Set

from cacheproof.differential.judges.rules import Rules
from cacheproof.differential.judges.violation import Violation
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import Call, LedgerState, Making, Step
from cacheproof.spec.registry import Contract

Values = Mapping[str, object]
"""What a contract looks at, by the names of its parameters."""


class Evaluator:
    """Evaluates the contracts of one trace. `violations` has the first violation of each, `event`
    is the number of the event that is judged. Why those of contracts in `explained` are broken has
    been told, and is not told again."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.event = 0
        self.explained: Set[str] = frozenset()
        self.violations: dict[str, Violation] = {}
        self._held: LedgerState | None = None
        self._making = Making({})

    def forget(self) -> None:
        """Forget what was found: what is judged next does not follow from it."""
        self.violations = {}
        self.doubt()

    def doubt(self) -> None:
        """Judge the next state whole: more has changed than will be said."""
        self._held = None

    def raised(self, call: Call) -> None:
        """Judge a call that raised, or the event outside all calls."""
        for rule in self.rules.of_event:
            if not rule.predicate(call):
                self.broken(rule, {"c": call}, call.operation, call.request, "")

    def promises(
        self, state: LedgerState, ghost: Ghost, encoded: Mapping[str, int], call: Call
    ) -> None:
        """Judge what the caller promises of a call, before it is made."""
        # `encoded` grows with the step, so that one object serves all of its calls.
        if self._making.encoded is not encoded:
            self._making = Making(encoded)
        # All at once is cheaper; only where one may be broken each is asked by its own text.
        if self.rules.narrowed.promised[call.operation](state, ghost, self._making, call):
            return
        for rule, holds in self.rules.promised[call.operation]:
            if not holds(state, ghost, encoded, call):
                values: Values = {"s": state, "g": ghost, "w": Making(encoded), "c": call}
                self.broken(rule, values, call.operation, call.request, call.identifier)

    def transition(
        self,
        pre: LedgerState,
        post: LedgerState,
        ghost: Ghost,
        call: Call,
        changed: Collection[str] | None = None,
    ) -> None:
        """Judge a call by the states before and after it, by what the requests are owed, and by
        what it says. The states are one object if nothing changed. Entries that are not `changed`
        are in both as they were; None: unknown."""
        values: Values
        operation, rules = call.operation, self.rules
        narrowed = rules.narrowed.unchanged if pre is post else rules.narrowed.changed
        if changed is not None and narrowed[operation](pre, post, ghost, call, changed):
            return
        if pre is not post:
            for rule in rules.of_ghost[operation]:
                if not rule.predicate(pre, post, ghost):
                    values = {"pre": pre, "post": post, "g": ghost}
                    self.broken(rule, values, operation, call.request, call.identifier)
        for rule, holds in (rules.unchanged if pre is post else rules.changed)[operation]:
            if not holds(pre, post, call):
                values = {"pre": pre, "post": post, "c": call}
                self.broken(rule, values, operation, call.request, call.identifier)

    def state(
        self,
        pre: LedgerState,
        post: LedgerState,
        ghost: Ghost,
        call: Call,
        kind: str = "",
        changed: Collection[str] | None = None,
    ) -> None:
        """Judge the state after a call: rules of states if it changed, rules of the ghost always.
        `kind` is that of a break of the latter. `changed` names the entries that differ from the
        state that was judged last; None: unknown."""
        if (
            changed is not None
            and self._held is pre
            and self.rules.narrowed.states(pre, post, ghost, changed)
        ):
            self._held = post
            return
        operation, request, identifier = call.operation, call.request, call.identifier
        # An unchanged state holds its rules only if it did when it was judged.
        held = pre is not post or self._held is pre
        if pre is not post:
            for rule, holds in self.rules.of_state:
                if not holds(post):
                    held = False
                    self.broken(rule, {"s": post}, operation, request, identifier)
        for rule, holds in self.rules.of_state_and_ghost:
            if not holds(post, ghost):
                held = False
                values = {"s": post, "g": ghost}
                self.broken(rule, values, operation, request, identifier, kind)
        # A broken state is asked whole again: narrowed contracts assume that they held before.
        self._held = post if held else None

    def step(
        self, step: Step, operation: str = "step", kinds: frozenset[str] | None = None
    ) -> bool:
        """Judge a step as the worker sees it, by all contracts or by those of some kinds. Returns
        whether they hold."""
        if kinds is None and self.rules.step_together(step):
            return True
        held = True
        for rule in self.rules.of_step:
            if (kinds is None or rule.kind in kinds) and not rule.predicate(step):
                held = False
                self.broken(rule, {"w": step}, operation, "", "")
        return held

    def broken(
        self,
        rule: Contract,
        values: Values,
        operation: str,
        request: str,
        identifier: str,
        kind: str = "",
    ) -> None:
        """Keep a violation, unless its contract already has one."""
        if rule.id not in self.violations:
            why = "" if rule.id in self.explained else rule.explain(**values)
            self.violations[rule.id] = Violation(
                rule, self.event, operation, request, identifier, why, kind
            )
