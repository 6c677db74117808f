"""Results of steps that a worker executes, with a model."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ..protocol import Json


class Executed(NamedTuple):
    """The result of a step's execution.

    tokens: those that it sampled for each of its requests.
    outputs: of each request with tokens, each one's id, log probability and lead.
    said: what else the step's outcome says.
    drafts: what is proposed to the scheduler for requests; None: nothing.
    """

    tokens: dict[str, list[int]]
    outputs: dict[str, list[list[float]]]
    said: Mapping[str, Json]
    drafts: dict[str, list[int]] | None = None


class Worker(Protocol):
    """Executes the steps that the scheduler decides on, with a model."""

    def execute(self, output: Any) -> Executed:
        """Execute a step, a release's or the reference's, as soon as it is decided on."""

    def reset(self) -> None:
        """Forget every encoder output."""

    def reload(self, version: int) -> None:
        """Load the weights of a version."""


def said_of(steps: list[tuple[Executed, dict[str, int]]]) -> dict[str, Json]:
    """The part of an update's outcome about steps that a worker has executed, each with the number
    of its tokens that the scheduler took; empty where there are none."""
    if not steps:
        return {}
    outputs: dict[str, list[list[float]]] = {}
    untaken: dict[str, list[int]] = {}
    for step, took in steps:
        for request_id, tokens in step.outputs.items():
            said = outputs.setdefault(request_id, [])
            first = len(said) + took.get(request_id, 0)
            said += tokens
            if first < len(said):
                untaken.setdefault(request_id, []).extend(range(first, len(said)))
    return {"outputs": outputs, **({"untaken": untaken} if untaken else {})}
