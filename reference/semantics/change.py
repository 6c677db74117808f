"""One change that vLLM made on purpose: what a flag of the semantics says, and since when."""

from dataclasses import dataclass, field
from typing import Any

from cacheproof.reference.releases import MODELLED

NOT_FOUND = "no thread found"


@dataclass(frozen=True)
class Change:
    """What is true of a release under a flag, where vLLM decides it, and of which releases.

    Attributes:
        first: the first release of which the sentence is true; None: of no release yet.
        last: the last one before a release of which it is not; None: the newest still has it.
        again: the release from which on it is true once more.
        function: the function or class of vLLM whose decision it is.
        sentence: what is true then.
        thread: the public thread about it; None: what is known comes from the release's source.
    """

    first: str | None
    last: str | None
    again: str | None
    function: str
    sentence: str
    thread: str | None

    @property
    def source(self) -> str:
        """Where the change is told of."""
        return self.thread or f"release source: {self.function}"

    def is_true_of(self, release: str) -> bool:
        """Whether it is true of a modelled release."""
        at = MODELLED.index(release)
        lasts = self.last is None or at <= MODELLED.index(self.last)
        returns = self.again is not None and at >= MODELLED.index(self.again)
        return self.first is not None and at >= MODELLED.index(self.first) and (lasts or returns)


def change(
    first: str | None,
    function: str,
    sentence: str,
    *,
    last: str | None = None,
    again: str | None = None,
    thread: str | None = None,
) -> Any:
    """A flag that is true of the ideal, and of releases as `Change` says."""
    return field(
        default=True,
        metadata={"change": Change(first, last, again, function, sentence, thread)},
    )
