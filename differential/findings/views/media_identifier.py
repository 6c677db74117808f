"""Requests whose items are named on a screen: what each item is called."""

from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges.retrace import Moment
from cacheproof.differential.traces.media_identifier import NameItems


def _called(moment: Moment) -> list[tuple[str, str]]:
    """The items of a request and their identifiers, or what is raised."""
    event, outcome = moment.event, moment.record.outcome or {}
    if not isinstance(event, NameItems):
        return [("restart", "")]
    identifiers = outcome.get("identifiers", [outcome.get("raises", "")] * len(event.items))
    items = [
        f"{item.modality} {'-' if item.content is None else item.content}"
        f"{'' if item.uuid is None else f' as {item.uuid}'}"
        for item in event.items
    ]
    return list(zip(items, identifiers, strict=True))


VIEW = View(
    lanes=("request", "identifiers"),
    sides=lambda moment: (", ".join(identifier for _, identifier in _called(moment)),),
    step_titles=("item", "identifier"),
    step=lambda moments: [one for moment in moments for one in _called(moment)],
)
