"""What there is to see of a run: its events, lanes of what holds over them, and what is broken.

`timeline` makes it of moments: those of a finding, of a replay, or of a window of a live engine's
records. No text in it has a character that does anything to a reader.
"""

from collections.abc import Iterable, Sequence, Sized
from typing import NamedTuple

import msgspec

from cacheproof.differential.depths import DEPTHS, part
from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.finding import LOCKSTEP, LOCKSTEP_TITLE
from cacheproof.differential.findings.leading import names_in
from cacheproof.differential.findings.letters import letters_of
from cacheproof.differential.findings.timeline.lanes import LaneGroup, follow
from cacheproof.differential.findings.timeline.opening import Opening, opening
from cacheproof.differential.findings.timeline.wording import Calls, SaidCall, cut, noticed
from cacheproof.differential.findings.views.view import View
from cacheproof.differential.judges.lockstep import Difference
from cacheproof.differential.judges.retrace import Moment
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.traces.trace import Header, depth_of
from cacheproof.differential.traces.wording import told, visible_line


class BrokenEvent(msgspec.Struct, frozen=True):
    """What is broken at an event, counted from 0 in the whole run, and how it is explained.
    `source` is where the rule is from, `letters` are those of `why`, each with what it stands for,
    and `about` is what the break names."""

    event: int
    contract: str
    title: str
    sentence: str
    why: str
    source: str = ""
    letters: tuple[tuple[str, str], ...] = ()
    about: tuple[str, ...] = ()


class ShownEvent(msgspec.Struct, frozen=True):
    """An event: its number, what the engine did, the calls in it, and what they changed."""

    number: int
    words: str
    calls: tuple[SaidCall, ...]
    changes: tuple[tuple[str, ...], ...]


class Timeline(msgspec.Struct, frozen=True):
    """All that a page shows.

    Attributes:
        title: one line.
        answer: what a reader is to know of it first, each with a label.
        about: names and what they stand for: the target, the configuration.
        unit: what an event's number counts, events or records.
        first: the first event, counted from 0 in the whole run.
        change_titles: titles of the columns of an event's changes.
        groups: the lanes; their events are counted from 0 in the window.
        broken: what is broken, the subject of the page first.
        opening: what is in view at first.
    """

    title: str
    answer: tuple[tuple[str, str], ...]
    about: tuple[tuple[str, str], ...]
    unit: str
    first: int
    change_titles: tuple[str, ...]
    events: tuple[ShownEvent, ...]
    groups: tuple[LaneGroup, ...]
    broken: tuple[BrokenEvent, ...]
    opening: Opening


class Numbering(NamedTuple):
    """What events are called: what is counted, and the number of each."""

    unit: str
    numbers: Sequence[int]


def require_timeline(header: Header, events: Sized, where: str) -> None:
    """See whether such a trace can be drawn.

    Raises:
        InputError: what happens at its depth has no lanes, or nothing happens.
    """
    depth = depth_of(header)
    if not DEPTHS[depth].has_timeline:
        drawn = ", ".join(name for name, one in DEPTHS.items() if one.has_timeline)
        raise InputError(f"{where}: a {depth}-depth trace has no timeline; expected one of {drawn}")
    if not events:
        raise InputError(f"{where}: has no events; expected some that can be drawn")


def timeline(
    header: Header,
    moments: Iterable[Moment],
    broken: Iterable[BrokenEvent],
    *,
    target: str,
    first: int = 0,
    title: str = "",
    answer: Iterable[tuple[str, str]] = (),
    numbering: Numbering | None = None,
) -> Timeline:
    """What there is to see of a target's run, or of a window of one that begins with event number
    `first`. What is `broken` outside the window is left out; the first of it is the subject, and
    the title unless one is given. Events are numbered from 1 unless they have another `numbering`.

    Raises:
        InputError: what happens at this depth has no lanes, or nothing happens.
    """
    seen = list(moments)
    require_timeline(header, seen, target)
    view: View = part(DEPTHS[depth_of(header)].view).VIEW
    calls = Calls()
    inside = tuple(one for one in broken if first <= one.event < first + len(seen))
    unit, numbers = numbering or Numbering("event", range(first + 1, first + len(seen) + 1))
    subject = inside[0] if inside else None
    return Timeline(
        title=visible_line(title) or _title(target, inside),
        answer=tuple((label, cut(words)) for label, words in answer),
        about=_about(header, target, f"{unit}s", numbers),
        unit=unit,
        first=first,
        change_titles=view.step_titles,
        events=tuple(
            _shown(number, seen[max(0, at - 1) : at + 1], view, calls)
            for at, number in enumerate(numbers)
        ),
        groups=tuple(follow(header, seen)),
        broken=inside,
        opening=opening(
            [(one.event, one.record) for one in seen],
            None if subject is None else subject.event - first,
            () if subject is None else subject.about,
        ),
    )


def broken_by(
    violations: Iterable[Violation], difference: Difference | None = None, subject: str = ""
) -> list[BrokenEvent]:
    """What violations break, and a difference from the reference; the contract that is the
    `subject` first, then in order."""
    found = [
        BrokenEvent(
            one.event,
            one.contract.id,
            visible_line(f"{one.contract.title} ({one.contract.harm})"),
            visible_line(one.sentence),
            visible_line(one.why),
            visible_line(one.contract.source),
            tuple(letters_of(one.contract, one.why)),
            tuple(sorted(map(cut, names_in(one)))),
        )
        for one in violations
    ]
    if difference is not None:
        sides = f"reference {difference.left!r}, target {difference.right!r}"
        found.append(
            BrokenEvent(
                difference.event,
                LOCKSTEP,
                LOCKSTEP_TITLE,
                cut(f"{LOCKSTEP} at {difference.sentence}"),
                cut(f"{difference.field}: {sides}"),
            )
        )
    return sorted(found, key=lambda one: (one.contract != subject, one.event, one.contract))


def _title(target: str, broken: Sequence[BrokenEvent]) -> str:
    if not broken:
        return visible_line(f"{target}: nothing is broken")
    subject = broken[0]
    return visible_line(f"{target}: {subject.sentence.removesuffix(f': {subject.why}')}")


def _about(
    header: Header, target: str, what: str, numbers: Sequence[int]
) -> tuple[tuple[str, str], ...]:
    config = {
        field.name: getattr(header.config, field.name)
        for field in msgspec.structs.fields(header.config)
        if getattr(header.config, field.name) != field.default
    }
    settings = ", ".join(f"{name}={msgspec.to_builtins(value)}" for name, value in config.items())
    return (
        ("target", visible_line(target)),
        ("depth", f"{depth_of(header)}, {header.manager}"),
        ("configuration", cut(settings)),
        (what, f"{numbers[0]:,} to {numbers[-1]:,}"),
    )


def _shown(number: int, moments: Sequence[Moment], view: View, calls: Calls) -> ShownEvent:
    """The last of the moments; the one before it says what has changed."""
    moment = moments[-1]
    event, record = moment.event, moment.record
    did_something = record.outcome is not None or record.calls or record.raised
    words = noticed(event, told(event, record.outcome))
    if record.raised is not None:
        words += f"; raises {record.raised.type}: {record.raised.message}"
    return ShownEvent(
        number,
        cut(words if did_something else f"{words} (no effect)"),
        tuple(calls.said(event, record)),
        tuple(tuple(map(cut, row)) for row in view.step(moments)),
    )
