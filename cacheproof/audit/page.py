"""What an audit found as a timeline: the events that led to what is to be looked at first."""

from collections import deque
from collections.abc import Sequence

from msgspec import structs

from cacheproof.audit.answer import Answered, headline, name_of, when_of
from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.ranking import RankedBreak
from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.timeline import model
from cacheproof.differential.findings.timeline.model import Numbering, Timeline, timeline
from cacheproof.differential.traces.wording import visible_line

AHEAD = 2
"""So many times the events that are drawn are kept before the last of them: one part may have
several, and until then steps that say nothing new are passed over."""


def drawn(answered: Sequence[Answered], where: str, window: int, *, ends: str = "") -> Timeline:
    """The last events before what is to be looked at first, or where nothing is broken the last
    that were judged; they have the numbers of their records. With `ends` the title ends.

    Raises:
        InputError: nothing was judged.
    """
    one = answered[0]
    broken = one.subject
    if broken is not None and broken.shown.is_of_media:
        broken = None  # none of the events that are drawn led to it
    end = one.auditor.events - 1 if broken is None else broken.shown.at.event
    again = Auditor()
    for part in Audit(where).parts(one.stem):
        if again.moments is None and again.events > end - AHEAD * window:
            again.moments = deque(maxlen=window)
        again.feed(part)
        if again.events > end:
            break
    if one.auditor.trace is None or not again.moments:
        raise InputError(f"{where}: nothing was judged; expected a record with steps to draw")
    records, moments = zip(*again.moments, strict=True)
    return timeline(
        one.auditor.trace.header,
        moments,
        [] if broken is None else _shown(broken, again.events - 1),
        target=one.stem,
        first=again.events - len(moments),
        title=f"{headline(one)}{ends}",
        answer=[*one.death(), *([] if broken is None else one.advice(broken, where))],
        numbering=Numbering("record", records),
    )


def _shown(broken: RankedBreak, last: int) -> list[model.BrokenEvent]:
    """What is broken, at its event, or at the last that was judged."""
    at, violation = broken.shown.at, broken.shown.violation
    sentence = f"{name_of(broken.shown)} {when_of(broken.shown)}: {violation.contract.title}"
    return [
        structs.replace(one, event=min(at.event, last), sentence=visible_line(sentence))
        for one in model.broken_by([violation])
    ]
