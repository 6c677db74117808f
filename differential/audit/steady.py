"""Steps in which nothing happens: the requests of the step before get one more token each.

Most steps of an engine under load are of this kind. All that contracts look at is then what it was
at the step before, which was judged whole; only progress and clocks go on. Such steps are counted,
and what they moved is moved when something happens again. A test holds both ways to the same
verdicts.
"""

from typing import NamedTuple

from cacheproof.differential.audit.following import Observed
from cacheproof.differential.recording.messages import OPERATIONS, ManagerCall, Scheduled, Updated
from cacheproof.differential.traces.manager import Update
from cacheproof.differential.traces.outcomes import StepOutcome
from cacheproof.differential.traces.records import StepRecord
from cacheproof.differential.traces.scheduler import Schedule

_DRAWS_NOTHING: ManagerCall = (OPERATIONS.index("notices"), None, None, None, None, [], None)


def is_steady_step(message: Scheduled) -> bool:
    """Whether a step says nothing but that the requests of the step before go on."""
    return (
        not message.tokens
        and not message.gone
        and not message.rest
        and message.running is None
        and message.waiting is None
        and message.order is None
        and not message.encode
        and not message.notices
        and not message.finished
        and (not message.calls or message.calls == [_DRAWS_NOTHING])
    )


def is_steady_update(message: Updated) -> bool:
    """Whether each request of the step got its token, and nothing else happened."""
    return (
        not message.sampled
        and not message.ended
        and not message.calls
        and message.running is None
        and message.waiting is None
    )


class Steady(NamedTuple):
    """A steady step, number `steps` of its row after a step with that outcome; or its update."""

    outcome: StepOutcome
    steps: int
    free_blocks: int
    is_update: bool

    def observed(self) -> Observed:
        """The event that the step, or its update, was."""
        names = self.outcome["scheduled"]
        standing = {
            "running": self.outcome["running"],
            "waiting": self.outcome["waiting"],
            "free_blocks": self.free_blocks,
        }
        if self.is_update:
            told = {"sampled": dict.fromkeys(names, 1), "finished": [], **standing}
            return Observed(Update(), StepRecord(told, [], None, None))
        moved = {
            "computed": {
                name: computed + self.steps for name, computed in self.outcome["computed"].items()
            },
            "blocks": {},
            "finished": [],
        }
        outcome = {**self.outcome, **moved, **standing}
        return Observed(Schedule(), StepRecord(outcome, [], None, None))
