"""A counterexample run again: the class's own text, by CPython, from the state that a solver found.

The state is one that the invariants which stand allow; whether calls lead there a search says. What
a replay adds is that the contract is broken where nothing of ours has read the text.
"""

import collections
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cacheproof.proofs.crosshair.episode import BrokenRule, ClaimTables, Episode, ReadState
from cacheproof.proofs.crosshair.states import SymbolicRequest
from cacheproof.proofs.symbolic.deciding.counterexample import Model
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.values.state import Operand, Snapshot, State
from cacheproof.proofs.witness.calls import MadeCall, perform
from cacheproof.proofs.witness.classes import class_of
from cacheproof.proofs.witness.limits import Endless, limited
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.registry import WHOLE_EVENT, Contract, by_id

SECONDS = 3.0
"""Seconds of CPU time of this process that a call may take when it is run again; it takes
milliseconds."""


@dataclass(frozen=True)
class CounterexampleReplay:
    """How counterexamples of a manager are run again: `state_of` makes the record that contracts
    look at; `has_ledger` says whether the manager knows what may stay in a worker's store."""

    state_of: ReadState
    has_ledger: bool

    def breaks(
        self,
        source: Source,
        constants: Mapping[tuple[str, str], Operand],
        operation: str,
        rule: str,
        found: Model,
        state: State,
    ) -> bool:
        """Whether the class breaks a contract in the call that a model and its path describe."""
        try:
            with limited(SECONDS):
                self.run(source, constants, operation, [by_id(rule)], found, state.snapshots[0])
        except BrokenRule:
            return True
        except Endless:
            # a call without an end breaks the contract that nothing raises, and no other
            return by_id(rule).calls == WHOLE_EVENT
        return False

    def run(
        self,
        source: Source,
        constants: Mapping[tuple[str, str], Operand],
        operation: str,
        rules: Collection[Contract],
        found: Model,
        at: Snapshot,
    ) -> tuple[Episode, object]:
        """The class after the call that a model describes, from the state that it has at a moment,
        and what the call answers.

        Raises:
            BrokenRule: one of the rules does not hold there.
        """
        before = {**constants, **found.attributes(at)}
        of_class = class_of(source.tree, source.path, source.name)
        # without __init__: every attribute is the one that the solver found
        manager, ghost = object.__new__(of_class), Ghost()
        for (owner, name), value in before.items():
            if owner in ("m", "g"):
                setattr(manager if owner == "m" else ghost, name, value)
        episode = Episode(
            manager, ghost, self.state_of, lambda _: ClaimTables({}, {}), rules,
            encoded=before.get(("w", "encoded"), {}),
        )  # fmt: skip
        if operation == "init":
            built = of_class(found.arguments()["capacity"], *constants.values())
            vars(manager).update(vars(built))
            episode.judge_state(operation)
            return episode, None
        made = made_of(operation, found)
        request = _requests(found).get(made.request)
        return episode, perform(episode, made, request, ledger=self.has_ledger)


def made_of(operation: str, found: Model) -> MadeCall:
    """The call that a model describes."""
    given = found.arguments()
    return MadeCall(
        operation, given.get("r", ""), given.get("i", -1), given.get("budget", 0),
        given.get("pending", 0), given.get("progress", 0),
    )  # fmt: skip


def _requests(found: Model) -> dict[str, SymbolicRequest]:
    """The requests of a model; a number without an input is an item that nobody else has."""
    inputs: dict[str, dict[int, tuple[str, int, int]]] = collections.defaultdict(dict)
    for (name, number), item in found.inputs().items():
        inputs[name][number] = item
    requests = {}
    for name in found.requests():
        shown = inputs[name]
        items = [
            shown.get(number, ("absent", 1, 1)) for number in range(max(shown, default=-1) + 1)
        ]
        request = SymbolicRequest(name, [item[0] for item in items], [item[1] for item in items])
        request.ends = [item[2] for item in items]
        requests[name] = request
    return requests
