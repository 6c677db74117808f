"""A finding on one screen: what is broken, by which events, at which step, and how to see it again.

Plain text when the console is no terminal; no more than about 50 lines of 100 columns while the
trace is short.
"""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cacheproof.differential.depths import DEPTHS, part
from cacheproof.differential.findings.finding import LOCKSTEP, MODEL_DIFFERENCE, TIMES, Finding
from cacheproof.differential.findings.views.view import Rows, View
from cacheproof.differential.judges.lockstep import DELTA_FIELDS
from cacheproof.differential.judges.retrace import Moment, Retrace
from cacheproof.differential.traces.block_hash import Continue, Prompt
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.wording import program, told, value, visible_line

EVENTS_SHOWN = 10
KEY_DIGITS = 12
NOT_LISTED = "a new one, as far as the list says"
_HARM_STYLE = {"efficiency": "yellow", MODEL_DIFFERENCE: "yellow"}


def print_finding(
    finding: Finding, console: Console, file: str = "FILE", shown: int = EVENTS_SHOWN
) -> None:
    """Print the screen; `file` is where the finding can be replayed from, `shown` how many events
    are told, the one at which it breaks the last of them where there are more."""
    moments = list(finding.retrace.moments())
    window = _window(len(finding.events), finding.event, shown)
    style = _HARM_STYLE.get(finding.harm, "red")
    sections: list[RenderableType] = [
        Text(visible_line(f"{finding.target}: {_headline(finding)}"), style=f"bold {style}"),
        _indented(
            Text("\n".join(map(visible_line, (finding.title, f"{finding.harm}; {finding.source}"))))
        ),
        *_section("events", _events(finding.trace, window)),
        *_section(f"first wrong step: event {finding.event + 1}", _step(finding, moments)),
        *_section("both sides", Text(finding.why)),
        *_section("lanes", _lanes(_view(finding.trace), moments, window, finding.event)),
        Text(),
    ]
    console.print(Group(*sections))
    _print_command(finding, console, "replay   ", file)
    console.print(_footer(finding))
    console.print()


def print_events(trace: Trace, console: Console) -> None:
    """Print a trace as Python that can be pasted, its last events when there are many."""
    console.print(_indented(_events(trace, _window(len(trace.events), len(trace.events)))))


def print_run(retrace: Retrace, console: Console, shown: int) -> None:
    """Print a run that breaks nothing: its first events, as Python and as what became of them."""
    window = range(min(shown, len(retrace.trace.events)))
    moments = list(retrace.moments())
    sections = (
        Text("events", style="bold"),
        _indented(_events(retrace.trace, window)),
        *_section("lanes", _lanes(_view(retrace.trace), moments, window)),
    )
    console.print(Group(*sections))


def _print_command(finding: Finding, console: Console, before: str, file: str) -> None:
    """How to see it again, in one line: it is to be copied whole."""
    console.print(Text(before, style="bold"), end="")
    command = visible_line(f"cacheproof replay {file} --target {finding.target} --times {TIMES}")
    console.print(Text(command), soft_wrap=True)


def _headline(finding: Finding) -> str:
    """The sentence without its equation, which has a section of its own."""
    return finding.sentence.removesuffix(f": {finding.why}")


def _section(title: str, body: RenderableType) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, style="bold")
    yield _indented(body)


def _indented(body: RenderableType) -> RenderableType:
    return Padding(body, (0, 0, 0, 2))


def _window(events: int, last: int, shown: int = EVENTS_SHOWN) -> range:
    """The events that are told: all, or as many as may be, up to the one counted `last`."""
    end = events if events <= shown else min(max(last + 1, shown), events)
    return range(max(0, end - shown), end)


def _events(trace: Trace, window: range) -> Text:
    lines = program(trace.with_events(trace.events[window.start : window.stop]))
    first = lines.index("trace = Trace(header, (") + 1
    if later := len(trace.events) - window.stop:
        lines.insert(len(lines) - 1, f"    # {later} later events are not shown")
    if window.start:
        lines.insert(first, f"    # {window.start} earlier events are not shown")
    return Text("\n".join(lines))


def _step(finding: Finding, moments: list[Moment]) -> RenderableType:
    if finding.contract == LOCKSTEP:
        return _columns(("", "reference", finding.target), _parted(finding))
    view = _view(finding.trace)
    rows = view.step(moments[: finding.event + 1])
    if not rows and view.nothing is not None:
        return Text(view.nothing(moments[finding.event]))
    return _columns(view.step_titles, rows)


def _view(trace: Trace) -> View:
    view: View = part(DEPTHS[trace.depth].view).VIEW
    return view


def _parted(finding: Finding) -> list[tuple[str, str, str]]:
    """Parts of the field that differ between the reference and the target."""
    parting = finding.parting
    assert parting is not None
    ours, theirs = parting.reference, parting.target
    if parting.field != "delta":
        return [(parting.field, value(ours), value(theirs))]
    nothing = ["unchanged"] * len(DELTA_FIELDS)
    sides = zip(DELTA_FIELDS, ours or nothing, theirs or nothing, strict=True)
    return [(name, value(one), value(two)) for name, one, two in sides if one != two]


def _lanes(
    view: View, moments: list[Moment], window: range, broken: int | None = None
) -> RenderableType:
    rows = []
    for number in window[: len(moments) - window.start]:
        mark = ">" if number == broken else " "
        moment = moments[number]
        rows.append((f"{mark}{number + 1}", _asked(moment), *view.sides(moment)))
    return _columns(("", *view.lanes), rows)


def _asked(moment: Moment) -> str:
    event, record = moment.event, moment.record
    words = told(event, record.outcome)
    if isinstance(event, Add | Prompt | Continue):
        spans = [f"{i.identifier} [{i.offset}, {i.offset + i.length})" for i in event.items]
        words += f" with {', '.join(spans)}" if spans else ""
    encoded = [f"{one.request}#{one.input}" for one in record.calls if one.operation == "allocate"]
    if encoded:
        words += f"; encode {', '.join(encoded)}"
    if record.raised is not None:
        words += f"; raises {record.raised.type}"
    did_something = record.outcome is not None or record.calls or record.raised
    return words if did_something else f"{words} (no effect)"


def _columns(titles: tuple[str, ...], rows: Rows) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(Text(title), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _footer(finding: Finding) -> Table:
    known = finding.known or ("no thread listed" if finding.known_note else "not listed")
    listed = finding.known_note is not None or finding.harm == MODEL_DIFFERENCE
    found = f"after {finding.seconds:.1f} s" if finding.seconds else ""
    if finding.seed is not None:
        found = f"seed {finding.seed} of {finding.generator}, {found}"
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rows = (
        ("replays", f"{finding.replays} identical, digest {finding.digest[:12]}"),
        ("found", found),
        ("known", f"{known}: {finding.known_note}" if finding.known_note else known),
        ("fault", finding.fault or finding.akin or ("" if listed else NOT_LISTED)),
        ("minimised", "no, or partly: a limit was reached" if finding.stopped_early else ""),
    )
    for name, content in rows:
        if content:
            table.add_row(name, Text(visible_line(content)))
    return table
