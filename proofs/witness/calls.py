"""Calls of a manager as its scheduler makes them, each with the ghost's part in it, by CPython."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from cacheproof.proofs.crosshair.episode import Episode
from cacheproof.proofs.crosshair.states import SymbolicRequest
from cacheproof.spec.ghost import Ghost


@dataclass(frozen=True)
class MadeCall:
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


def perform(
    episode: Episode, made: MadeCall, request: SymbolicRequest | None, *, ledger: bool
) -> object:
    """Make a call, and let the episode judge it. Returns its answer.

    Args:
        episode: whose manager is called, and whose ghost is told.
        made: the call.
        request: the object that the call is about, where it is about one.
        ledger: whether the manager says what may stay in a worker's store.
    """
    match made.operation:
        case "notices":
            episode.step(ledger=ledger)
            return None
        case "consume":
            episode.ghost.consume(made.request, made.progress)
            episode.judge_state(made.operation)
            return None
        case "withdraw":
            episode.ghost.withdraw(made.request)
            episode.judge_state(made.operation)
            return None
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


def attributes_of(
    manager: Mapping[str, object], ghost: Ghost, encoded: Mapping[str, int]
) -> dict[tuple[str, str], object]:
    """What every attribute is, of a manager, of the ghost, and of the step in the making, by its
    owner, "m", "g" or "w", and its name."""
    return {
        **{("m", name): value for name, value in manager.items()},
        **{("g", one.name): getattr(ghost, one.name) for one in fields(Ghost)},
        ("w", "encoded"): dict(encoded),
    }
