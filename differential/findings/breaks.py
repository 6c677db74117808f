"""What a search keeps of a break until it is written down."""

from dataclasses import dataclass

from cacheproof.differential.traces.trace import Trace


@dataclass(frozen=True)
class Attributed:
    """Which listed fault a break is, by name; None where it is new, and `why`, if one is listed
    that breaks the same. `by_symptom`: no cause of that fault is known, and it was told by what it
    breaks alone. `parts`: none, since the target decided otherwise than the model of its release
    before, or was changed and the model does not run the trace."""

    fault: str | None = None
    why: str = ""
    by_symptom: bool = False
    parts: bool = False


@dataclass(frozen=True)
class Break:
    """A trace that breaks something: a contract by id, in a kind that its judge tells apart, or the
    lockstep; the name of the lane in which it was found, when, what was asked there, and which
    listed fault it is."""

    contract: str
    kind: str
    lane: str
    trace: Trace
    event: int
    sentence: str
    seconds: float
    operation: str = ""
    attributed: Attributed = Attributed()

    @property
    def place(self) -> tuple[str, str, str, str | None, str | None]:
        """What is broken and where, and the listed fault: breaks of one place may be one fault."""
        return self.contract, self.lane, self.kind, self.trace.runner, self.attributed.fault
