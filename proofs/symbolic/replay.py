"""A counterexample run again: the class's own text, by CPython, from the state that a solver found.

The state is one that the invariants which stand allow; whether calls lead there a search says. What
a replay adds is that the contract is broken where nothing of ours has read the text.
"""

import collections
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cacheproof.proofs.crosshair.episode import Broken, Episode, Tables
from cacheproof.proofs.crosshair.states import Request
from cacheproof.proofs.symbolic.counterexample import Model
from cacheproof.proofs.symbolic.source import Source
from cacheproof.proofs.symbolic.state import State
from cacheproof.proofs.witness.classes import class_of
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.registry import by_id


@dataclass(frozen=True)
class Replay:
    """How counterexamples of a manager are run again: `state_of` makes the record that contracts
    look at; `has_ledger` says whether the manager knows what may stay in a worker's store."""

    state_of: Callable[[Any, Ghost], Any]
    has_ledger: bool

    def breaks(
        self,
        source: Source,
        constants: Mapping[tuple[str, str], Any],
        operation: str,
        rule: str,
        found: Model,
        state: State,
    ) -> bool:
        """Whether the class breaks a contract in the call that a model and its path describe."""
        before = {**constants, **found.attributes(state.snapshots[0])}
        manager, ghost = object.__new__(class_of(source.tree, source.path, source.name)), Ghost()
        for (owner, name), value in before.items():
            if owner in ("m", "g"):
                setattr(manager if owner == "m" else ghost, name, value)
        episode = Episode(
            manager, ghost, self.state_of, lambda _: Tables({}, {}), [by_id(rule)],
            encoded=before["w", "encoded"],
        )  # fmt: skip
        try:
            self._run(episode, operation, found)
        except Broken:
            return True
        return False

    def _run(self, episode: Episode, operation: str, found: Model) -> None:
        given = found.arguments()
        requests = _requests(found)
        match operation:
            case "init":
                episode.manager.__init__(given["capacity"])
                episode.judge_state(operation)
            case "notices":
                episode.step(ledger=self.has_ledger)
            case "reset":
                episode.call(operation)
            case "consume":
                episode.ghost.consume(given["r"], given["progress"])
                episode.judge_state(operation)
            case "withdraw":
                episode.ghost.withdraw(given["r"])
                episode.judge_state(operation)
            case "free" | "inputs":
                episode.call(operation, requests[given["r"]])
            case "can":
                episode.call(
                    operation, requests[given["r"]], given["i"], given["budget"], given["pending"]
                )
            case _:
                episode.call(operation, requests[given["r"]], given["i"])


def _requests(found: Model) -> dict[str, Request]:
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
        request = Request(name, [item[0] for item in items], [item[1] for item in items])
        request.ends = [item[2] for item in items]
        requests[name] = request
    return requests
