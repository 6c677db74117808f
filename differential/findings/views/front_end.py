"""A front end on a screen: what either half keeps."""

from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges.retrace import Moment


def _halves(moment: Moment) -> list[tuple[str, str, str]]:
    """The names that sender and receiver keep, and each further API server."""
    outcome = moment.record.outcome or {"sender": [], "receiver": []}
    further = [
        (f"kept by server {number}", " ".join(names), "")
        for number, names in enumerate(outcome.get("others", ()), 1)
    ]
    return [("kept", " ".join(outcome["sender"]), " ".join(outcome["receiver"])), *further]


def _of_each(moment: Moment) -> list[str]:
    """The same in one line: the first server, the engine core, and the further servers."""
    (_, sender, receiver), *further = _halves(moment)
    return [sender, receiver, *(kept for _, kept, _ in further)]


VIEW = View(
    lanes=("request", "front end and engine core"),
    sides=lambda moment: (" | ".join(_of_each(moment)),),
    step_titles=("", "front end", "engine core"),
    step=lambda moments: _halves(moments[-1]),
)
