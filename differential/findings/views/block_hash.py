"""Block keys on a screen: the first digits of each block's key."""

from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges.retrace import Moment

KEY_DIGITS = 12


def _keys(moment: Moment) -> list[tuple[str, str, str]]:
    """The request's blocks and the first digits of their keys."""
    outcome = moment.record.outcome or {"grown": [], "fresh": []}
    sides = zip(outcome["grown"], outcome["fresh"], strict=True)
    return [
        (f"block {number}", grown[:KEY_DIGITS], fresh[:KEY_DIGITS])
        for number, (grown, fresh) in enumerate(sides, start=1)
    ]


VIEW = View(
    lanes=("request", "keys"),
    sides=lambda moment: (", ".join(key for _, key, _ in _keys(moment)),),
    step_titles=("", "key as it grew", "key afresh"),
    step=lambda moments: _keys(moments[-1]),
)
