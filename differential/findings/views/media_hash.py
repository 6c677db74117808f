"""Calls of the media hasher on a screen: what is hashed, and the first digits of its digest."""

from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges.retrace import Moment
from cacheproof.differential.media.values import written
from cacheproof.differential.traces.media_hash import Hash

DIGEST_DIGITS = 12


def _digest_of(moment: Moment) -> tuple[str, str]:
    """A call of the media hasher and the first digits of what it gave."""
    assert isinstance(moment.event, Hash)
    outcome = moment.record.outcome or {}
    raised = f"raises {outcome['raises']}" if "raises" in outcome else "no such value"
    unstable = "another each time" if "unstable" in outcome else raised
    return written(moment.event.value), outcome.get("digest", "")[:DIGEST_DIGITS] or unstable


VIEW = View(
    lanes=("hasher", "digest"),
    sides=lambda moment: (_digest_of(moment)[1],),
    step_titles=("call", "digest"),
    step=lambda moments: [_digest_of(moment) for moment in moments],
)
