"""What a timeline opens on: the broken step, and what leads to it."""

from collections.abc import Collection, Sequence

import msgspec

from cacheproof.differential.findings.leading import what_led
from cacheproof.differential.traces.records import StepRecord
from cacheproof.differential.traces.trace import AnyEvent

COLUMNS_MAX = 24
"""Most events that stand side by side and can each be read."""


class Opening(msgspec.Struct, frozen=True):
    """What is in view at first.

    first, last: events, counted from 0 in the window; story: those that have to do with what is
    broken, where they do not all fit between these. subject: the requests and identifiers that the
    break names, whose lanes come first.
    """

    first: int
    last: int
    story: tuple[int, ...]
    subject: tuple[str, ...]


def opening(
    events: Sequence[tuple[AnyEvent, StepRecord]], broken: int | None, names: Collection[str]
) -> Opening:
    """What a window of events opens on; `broken` is the event of the break, None where nothing is
    broken, and `names` what that is about."""
    last = len(events) - 1 if broken is None else broken
    first = max(0, last - COLUMNS_MAX + 1)
    if broken is None:
        return Opening(0, min(last, COLUMNS_MAX - 1), (), ())
    led = what_led(events[: broken + 1], names)
    # of events that are alike the first and the last say all
    ends = sorted({number for one in led for number in (one.first, one.last)})
    story = tuple(ends[-COLUMNS_MAX:])
    return Opening(first, last, story if story[0] < first else (), tuple(sorted(names)))
