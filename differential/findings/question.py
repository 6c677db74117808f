"""What a trace is run again for: whether it still breaks what it broke."""

from dataclasses import dataclass

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.judges.examination import LOCKSTEP, Examination
from cacheproof.differential.media.differences import parts
from cacheproof.differential.traces.trace import Trace


@dataclass(frozen=True)
class Question:
    """A trace, and what it is to break: a contract, by nothing but parts of that `kind` where one
    is given, or the lockstep; without a contract, anything."""

    trace: Trace
    contract: str | None = None
    kind: str | None = None

    @classmethod
    def of(cls, what: Finding | Trace, contract: str | None = None) -> "Question":
        """Whether it breaks that contract; without one, what a finding says, or anything that a
        trace breaks."""
        trace = what.trace if isinstance(what, Finding) else what
        if isinstance(what, Finding) and contract in (None, what.contract):
            return cls(trace, what.contract, what.kind)
        return cls(trace, contract)

    def asks(self, contract: str, kind: str) -> bool:
        """Whether a break of that contract and kind is what is asked for."""
        if self.contract in (None, LOCKSTEP):
            return self.contract in (None, contract)
        if self.kind is None:
            return contract == self.contract
        return contract == self.contract and parts(kind) <= parts(self.kind)

    def broken(self, seen: Examination) -> frozenset[str]:
        """What is asked for and broken."""
        return frozenset(
            contract for contract, kind, *_ in seen.breaks() if self.asks(contract, kind)
        )
