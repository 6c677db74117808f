"""A review as one page of Markdown, fit for a comment on a pull request.

Nothing that a target or a trace says is markup there: in a sentence it stands as code, with all
that Markdown, HTML or a forge could read written as entities; in a block of code behind a fence
that is longer than any in it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from cacheproof.differential.search.weighing import (
    BreakTally,
    PartedGroup,
    ToldFault,
    told_together,
)
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.wording import constructor, visible_line
from cacheproof.reference.semantics import CHANGES
from cacheproof.review.proofs import ProofChange
from cacheproof.review.sentence import sentence_of
from cacheproof.review.verdict import Review
from cacheproof.search.told_findings import decided, in_words

NONE_COMPARED = "none was compared"
SHOWN_MAX = 6
"""Most traces that a section shows."""
EVENTS_SHOWN = 10
LINE_MAX = 400
WORDS_MAX = 300
ROWS_MAX = 12
COUNTED = "The counts of a row are those of its first contract."
_LOADED = re.compile(r"[^A-Za-z0-9 .,;()=+/-]|(?<=www)\.", re.IGNORECASE)
"""What Markdown, HTML or a forge may read as more than a character; a `.` may begin a link."""


def code(text: str) -> str:
    """A name or a sentence that is not ours, as code in a sentence, a heading or a table."""
    shown = visible_line(text)
    if len(shown) > WORDS_MAX:
        shown = f"{shown[:WORDS_MAX]} [...]"
    words = _LOADED.sub(lambda found: f"&#{ord(found[0])};", shown)
    return f"<code>{words}</code>"


def block(lines: Iterable[str]) -> list[str]:
    """Lines of code. A line that is too long is cut."""
    shown = [
        one if len(one) <= LINE_MAX else f"{one[:LINE_MAX]} [...]"
        for one in map(visible_line, lines)
    ]
    runs = [len(found) for one in shown for found in re.findall("`+", one)]
    fence = "`" * max(3, 1 + max(runs, default=0))
    return [f"{fence}python", *shown, fence]


def trace_lines(trace: Trace) -> list[str]:
    """A trace in a few lines of Python, its last events where there are many."""
    hidden = max(0, len(trace.events) - EVENTS_SHOWN)
    return [
        f"config = {constructor(trace.header.config)}",
        *([f"# {hidden} earlier events are not shown"] if hidden else []),
        *map(constructor, trace.events[hidden:]),
    ]


def markdown(review: Review) -> str:
    """The page."""
    sections = (
        _head(review),
        _decisions(review),
        _faults(review),
        _proofs(review),
        _not_looked_at(review),
    )
    return "\n\n".join("\n".join(section) for section in sections)


def _head(review: Review) -> Iterator[str]:
    yield f"## {code(review.base.name)} to {code(review.head.name)}, reviewed by cacheproof"
    yield ""
    yield from summary(review)


def summary(review: Review) -> Iterator[str]:
    """What a page begins with, below its title: the verdict, and a line for each of its parts."""
    yield f"**{sentence_of(review, code)}**"
    yield ""
    reasons = review.void_because
    yield from (f"- void: {code(reason)}" for reason in reasons[:SHOWN_MAX])
    if (more := len(reasons) - SHOWN_MAX) > 0:
        yield f"- void for {_counted(more, 'more reason')}"
    yield from (f"- {code(one)}" for side in (review.base, review.head) for one in side.announced)
    yield f"- decisions: {_parted(review)}"
    yield f"- mends: {_named(review.told_mended)}"
    yield f"- brings: {_named(review.told_brought)}"
    proofs = review.proofs
    if proofs.unread and not proofs.classes:
        yield f"- proofs: {NONE_COMPARED}"
    else:
        yield f"- proofs: {len(proofs.gained)} gained, {len(proofs.lost)} lost"


def _parted(review: Review) -> str:
    traces = len(review.ran.pairs)
    if not review.parted:
        return f"none differs on {traces:,} traces"
    ways = _counted(len(review.groups), "way")
    return f"{review.parted:,} of {traces:,} traces part, in {ways}"


def _named(told: Sequence[ToldFault]) -> str:
    """Listed faults by their names, what is not listed by the contract that shows it best."""
    names = dict.fromkeys(one.head.fault or _unlisted(one) for one in told)
    return ", ".join(names) or "nothing"


def _unlisted(told: ToldFault) -> str:
    more = f" and {_counted(len(told.faces), 'other face')}" if told.faces else ""
    return f"{told.head.contract}{more} (not listed)"


# decisions


def _decisions(review: Review) -> Iterator[str]:
    yield "### Decisions that changed"
    yield ""
    if not review.groups:
        yield "None was seen."
        return
    for group in review.groups[:SHOWN_MAX]:
        yield from _decision(group)
    if more := review.groups[SHOWN_MAX:]:
        yield f"Not shown: {'; '.join(map(_told, more[:ROWS_MAX]))}."


def _decision(group: PartedGroup) -> Iterator[str]:
    where = ", ".join(group.lanes[:3]) + (", ..." if len(group.lanes) > 3 else "")
    summary = f"{_told(group)}; {_counted(group.traces, 'trace')} in {where}"
    if group.small is None:
        yield from _details(summary, ["No smaller trace came out."])
    else:
        sentence = f"{code(group.small.difference.sentence)} (base against head)"
        yield from _details(summary, _shown(sentence, group.small.trace))
    yield ""


def _told(group: PartedGroup) -> str:
    """What parts, and the known change that explains it."""
    operation, field = group.parted.place
    place = f"{code(field)} of {code(operation)}" if operation else code(field)
    if group.change is None:
        return f"{place}, by no change that is known"
    known = CHANGES[group.change]
    return f"{place}: {code(known.sentence)} ({code(known.source)})"


# faults


def _faults(review: Review) -> Iterator[str]:
    yield "### Contracts that break on one side alone"
    yield ""
    mended, brought = review.told_mended, review.told_brought
    if not mended and not brought:
        yield "None."
    if mended:
        yield "| mended | contracts | breaks on base | on head | kept traces that show it |"
        yield "|---|---|--:|--:|---|"
        yield from _rows(mended)
        yield from ("", COUNTED, "")
    for one in brought[:SHOWN_MAX]:
        yield from _brought(one, review.head.nearest)
    if more := brought[SHOWN_MAX:]:
        yield f"Not shown: {_counted(len(more), 'more fault')}."
        yield ""
    yield from _kept(review)


def _rows(several: Sequence[ToldFault]) -> Iterator[str]:
    for told in several[:ROWS_MAX]:
        kept = list(dict.fromkeys(name for one in told.tallies for name in one.names))
        names = ", ".join(map(code, kept[:3])) + (" ..." if len(kept) > 3 else "")
        counts = f"{told.head.base:,} | {told.head.head:,}"
        yield f"| {told.head.fault or 'not listed'} | {_whats(told)} | {counts} | {names} |"
    if (more := len(several) - ROWS_MAX) > 0:
        yield f"| {more} more | | | | |"


def _whats(told: ToldFault) -> str:
    """The contracts of a fault; the counts in its row are those of the first."""
    return ", ".join(map(_what, told.tallies))


def _what(one: BreakTally) -> str:
    return one.contract + (f" {code(one.kind)}" if one.kind else "")


def _brought(told: ToldFault, nearest: str) -> Iterator[str]:
    """A fault: its best trace, which changed function decided there, and its other faces."""
    one, small = told.head, told.head.small
    listed = f"listed as {one.fault}" if one.fault else "not listed"
    faces = f"; {_counted(len(told.faces), 'other face')}" if told.faces else ""
    summary = (
        f"Brought: {_what(one)} ({one.harm}; {listed}), on "
        f"{_counted(one.head_alone, 'trace')} that base keeps{faces}"
    )
    shown: list[str] = []
    if small is not None:
        sentence = f"{code(in_words(small))} ({small.replays} runs identical; base keeps it)"
        shown += [*_shown(sentence, small.trace), "", f"Its formula there: {code(small.why)}"]
        if by := decided(small, nearest):
            shown += ["", f"{code(by)}"]
    if told.faces:
        shown += ["", "Other faces of it:", "", *map(_face, told.faces)]
    yield from _details(summary, shown, is_open=True)
    yield ""


def _face(one: BreakTally) -> str:
    where = f", on {_counted(one.head_alone, 'trace')} that base keeps"
    said = one.contract if one.small is None else in_words(one.small)
    return f"- {code(said)}{where}"


def _kept(review: Review) -> Iterator[str]:
    if not review.kept:
        return
    kept = told_together(review.kept)
    summary = (
        f"Broken by both, or listed for the one that did not: "
        f"{_counted(len(kept), 'fault')}, {_named_briefly(review.kept)}"
    )
    yield from _details(summary, _kept_rows(kept))


def _kept_rows(kept: Sequence[ToldFault]) -> Iterator[str]:
    yield "| fault | contracts | breaks on base | on head | on base alone | on head alone |"
    yield "|---|---|--:|--:|--:|--:|"
    for told in kept[:ROWS_MAX]:
        one = told.head
        yield (
            f"| {one.fault or 'not listed'} | {_whats(told)} | {one.base:,} | {one.head:,} | "
            f"{one.base_alone:,} | {one.head_alone:,} |"
        )
    if (more := len(kept) - ROWS_MAX) > 0:
        yield f"| {more} more | | | | | |"
    yield from ("", COUNTED)


def _details(summary: str, lines: Iterable[str], *, is_open: bool = False) -> Iterator[str]:
    """What a reader unfolds."""
    yield f"<details{' open' if is_open else ''}>"
    yield f"<summary>{summary}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def _shown(sentence: str, trace: Trace) -> Iterator[str]:
    """What a trace shows, and the trace."""
    yield sentence
    yield ""
    yield from block(trace_lines(trace))


def _named_briefly(tallies: Sequence[BreakTally]) -> str:
    names = list(dict.fromkeys(one.fault or one.contract for one in tallies))
    return ", ".join(names[:SHOWN_MAX]) + (", ..." if len(names) > SHOWN_MAX else "")


# proofs


def _proofs(review: Review) -> Iterator[str]:
    proofs = review.proofs
    yield "### Proofs"
    yield ""
    if not proofs.classes:
        none = f"{NONE_COMPARED.capitalize()}."
        yield none if proofs.unread else "The classes that are proved read alike."
        return
    classes = ", ".join(map(code, proofs.classes))
    yield (
        f"Read otherwise: {classes}. Proved on both sides: "
        f"{_counted(proofs.proved_on_both, 'contract')}."
    )
    if proofs.changes:
        yield ""
        yield "| contract | of | base | head | |"
        yield "|---|---|---|---|---|"
        yield from map(_proof_row, proofs.changes[:ROWS_MAX])
        if (more := len(proofs.changes) - ROWS_MAX) > 0:
            yield f"| {more} more | | | | |"


def _proof_row(one: ProofChange) -> str:
    note = code(one.note) if one.note else ""
    return f"| {one.contract} | {code(one.subject)} | {one.base} | {one.head} | {note} |"


# what was not looked at


def _not_looked_at(review: Review) -> Iterator[str]:
    yield "### Not looked at"
    yield ""
    yield from (f"- {one}" for one in review.skipped)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
