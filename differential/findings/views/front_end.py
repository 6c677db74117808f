"""A front end on a screen: what either half keeps."""

from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges.retrace import Moment


def _halves(moment: Moment) -> list[tuple[str, str, str]]:
    """The names that sender and receiver keep."""
    outcome = moment.record.outcome or {"sender": [], "receiver": []}
    return [("kept", " ".join(outcome["sender"]), " ".join(outcome["receiver"]))]


VIEW = View(
    lanes=("request", "front end and engine core"),
    sides=lambda moment: (" | ".join(_halves(moment)[0][1:]),),
    step_titles=("", "front end", "engine core"),
    step=lambda moments: _halves(moments[-1]),
)
