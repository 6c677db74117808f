"""What an engine broke, in the order in which an operator wants to know it."""

from dataclasses import dataclass

from cacheproof.differential.audit.account import Failure, FoundBreak
from cacheproof.differential.audit.auditor import Auditor

READS_SHARED = "PM-8"
"""The contract of processed media of which a worker ends that breaks it."""
_GRAVITY = {"safety": 0, "liveness": 1, "efficiency": 2}


@dataclass(frozen=True)
class RankedBreak:
    """A contract that an engine broke in one way: the first time, the last, and how often.
    `is_fatal`: it broke in the step in which the engine died, and is the likeliest to be why."""

    first: FoundBreak
    last: FoundBreak
    times: int
    is_fatal: bool = False

    @property
    def shown(self) -> FoundBreak:
        """The break to look at: where the engine died, else the first."""
        return self.last if self.is_fatal else self.first

    @property
    def harm(self) -> str:
        return self.first.violation.contract.harm


def ranked(auditor: Auditor) -> list[RankedBreak]:
    """What broke where the engine died, then what harms safety, liveness and efficiency; of each
    the first that broke comes first."""
    account, fatal = auditor.account, auditor.fatal
    broken = [
        RankedBreak(found, auditor.last[found.key], account.broken[found.key])
        for found in auditor.found
        if found.key in auditor.last
    ]
    broken.sort(key=lambda one: _GRAVITY[one.harm])
    ends = [] if fatal is None else [one for one in broken if _may_have_ended(one, fatal)]
    if fatal is None or not ends:
        return broken
    # what had been broken before, and is still, is less likely to be why
    end = min(ends, key=lambda one: one.first.at.step < fatal.step)
    rest = [one for one in broken if one is not end]
    return [RankedBreak(end.first, end.last, end.times, is_fatal=True), *rest]


def _may_have_ended(one: RankedBreak, fatal: Failure) -> bool:
    # A request that is refused before it comes to a scheduler ends no engine.
    is_aside = one.first.is_of_media and one.first.violation.contract.id != READS_SHARED
    return not is_aside and one.harm != "efficiency" and one.last.at.step == fatal.step
