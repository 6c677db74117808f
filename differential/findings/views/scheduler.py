"""A scheduler on a screen: the ledger and the worker's store, and what it decided beside them."""

from collections.abc import Iterator, Sequence
from typing import Any

from cacheproof.differential.findings.views import ledger
from cacheproof.differential.findings.views.view import Rows, View
from cacheproof.differential.judges.retrace import Moment
from cacheproof.differential.traces.wording import value

QUEUES = {"running": "running", "waiting": "waiting", "free_blocks": "free KV blocks"}


def _changes(moments: Sequence[Moment]) -> Rows:
    """What changes of the ledger, who runs and who waits, and what the event decides of each
    request."""
    now = _said(moments[-1])
    before = _said(moments[-2]) if len(moments) > 1 else {}
    rows = [
        (title, value(before.get(name)), value(now.get(name)))
        for name, title in QUEUES.items()
        if before.get(name) != now.get(name)
    ]
    raised = moments[-1].record.raised
    if raised is not None:
        rows.append(("raised", "-", f"{raised.type}: {raised.message}"))
    return [*ledger.changes(moments), *rows, *_decided(now)]


def _decided(said: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What a step schedules of each request, or an update brings it."""
    resumed, blocks = said.get("resumed", ()), said.get("blocks", {})
    for request, count in said.get("scheduled", {}).items():
        words = [f"{count} scheduled"]
        if request in blocks:
            groups = (" ".join(map(str, group)) or "none" for group in blocks[request])
            words.append(f"{'in' if request in resumed else 'new'} blocks {', '.join(groups)}")
        if request in resumed:
            words.append("resumed")
        if request in said.get("encode", {}):
            words.append(f"encodes {' '.join(f'#{one}' for one in said['encode'][request])}")
        computed = said.get("computed", {}).get(request, 0)
        yield f"tokens of {request}", f"{computed} computed", ", ".join(words)
    for request in said.get("preempted", ()):
        yield request, "-", "preempted"
    for request, count in said.get("sampled", {}).items():
        yield f"tokens of {request}", "-", f"{count} delivered"


def _said(moment: Moment) -> dict[str, Any]:
    """What the event says, where that is more than whether it was done."""
    said = moment.record.outcome
    return said if isinstance(said, dict) else {}


VIEW = View(
    lanes=("scheduler", "ledger", "store"),
    sides=ledger.VIEW.sides,
    step_titles=("", "before", "after"),
    step=_changes,
    nothing=ledger.VIEW.nothing,
)
