"""A manager on a screen: its ledger and the worker's store, before and after."""

from collections.abc import Sequence

from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges.retrace import Moment
from cacheproof.differential.traces.wording import changed_fields, value
from cacheproof.spec.records import EncoderCacheState


def changes(moments: Sequence[Moment]) -> list[tuple[str, ...]]:
    """What an event changes of the ledger and of the store."""
    moment = moments[-1]
    assert moment.before is not None
    assert moment.after is not None
    changed = changed_fields(moment.before, moment.after)
    rows: list[tuple[str, ...]] = [(name, *sides) for name, sides in changed.items()]
    if moment.store_before != moment.store_after:
        rows.append(("worker's store", value(moment.store_before), value(moment.store_after)))
    return rows


def _unchanged(moment: Moment) -> str:
    store = value(moment.store_after)
    return f"the ledger stays as it was, and the worker's store too: {store}"


def _ledger(moment: Moment) -> str:
    before, after = moment.before, moment.after
    assert before is not None
    assert after is not None
    words = [
        f"{name} {getattr(before, field)} -> {getattr(after, field)}"
        for name, field in (("free", "free_slots"), ("freeable", "freeable_slots"))
        if getattr(before, field, None) != getattr(after, field, None)
    ]
    if isinstance(before, EncoderCacheState) and isinstance(after, EncoderCacheState):
        for h, holders in after.holders.items():
            if before.holders.get(h) != holders:
                by = f"held by {' and '.join(sorted(holders))}" if holders else "idle"
                words.append(f"{h} {by}")
        words += [f"{h} gone" for h in before.holders if h not in after.holders]
    if after.notices and after.notices != before.notices:
        words.append(f"to report: {' '.join(after.notices)}")
    return ", ".join(words)


def _store(moment: Moment) -> str:
    before, after = moment.store_before, moment.store_after
    gone = [f"-{h}" for h in before if h not in after]
    return " ".join([*gone, *(f"+{h}" for h in after if h not in before)])


VIEW = View(
    lanes=("scheduler", "ledger", "store"),
    sides=lambda moment: (_ledger(moment), _store(moment)),
    step_titles=("", "before", "after"),
    step=changes,
    nothing=_unchanged,
)
