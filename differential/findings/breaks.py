"""What a search keeps of a break until it is written down."""

from dataclasses import dataclass

from cacheproof.differential.traces.trace import Trace


@dataclass(frozen=True)
class Break:
    """A trace that breaks something: a contract by id, in a kind that its judge tells apart, or the
    lockstep; the name of the lane in which it was found, when, and what was asked there."""

    contract: str
    kind: str
    lane: str
    trace: Trace
    event: int
    sentence: str
    seconds: float
    operation: str = ""

    @property
    def place(self) -> tuple[str, str, str, str | None]:
        """What is broken and where: breaks of one place may be one fault."""
        return self.contract, self.lane, self.kind, self.trace.runner
