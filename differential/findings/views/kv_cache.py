"""A KV cache manager on a screen: what each event changes of the block pool."""

from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges.retrace import Moment
from cacheproof.differential.traces.wording import value


def _changed(moment: Moment) -> list[tuple[str, str]]:
    """What an event changed of the block pool."""
    outcome = moment.record.outcome or {"changed": {}}
    return [(name.replace("_", " "), value(what)) for name, what in outcome["changed"].items()]


VIEW = View(
    lanes=("engine", "block pool"),
    sides=lambda moment: (", ".join(f"{name} {what}" for name, what in _changed(moment)),),
    step_titles=("", "after"),
    step=lambda moments: _changed(moments[-1]),
)
