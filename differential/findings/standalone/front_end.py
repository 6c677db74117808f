"""A pytest file that shows what a front end's cache and its engine core's make of messages."""

from collections.abc import Iterator, Mapping, Sequence

from cacheproof.differential.findings.finding import LOCKSTEP, Finding
from cacheproof.differential.findings.standalone.template import OF_A_DIFFERENCE, render
from cacheproof.differential.judges.front_end import DOES_NOT_END
from cacheproof.differential.traces.front_end import (
    Deliver,
    FrontEndConfig,
    Process,
    Report,
    ResetMedia,
)
from cacheproof.differential.traces.outcomes import FrontEndOutcome
from cacheproof.differential.traces.wording import literal

RAISES = {
    "PM-2": "# what came without data is there: nothing is raised",
    "PM-3": "# a cache without room refuses nobody: nothing is raised",
}
AGREE = {
    "PM-5": "assert names(sender) == names(receiver)",
    "PM-6": "assert names(sender) == names(receiver) == []",
}
_WIDTH = 92


def standalone_test(finding: Finding) -> tuple[str | None, str]:
    """The file's text, or None and why there is none."""
    if finding.parting is not None or finding.contract == LOCKSTEP:
        return None, OF_A_DIFFERENCE
    if finding.kind == DOES_NOT_END:
        return None, "a test that never ends shows nothing: its replay ends"
    if finding.contract not in {"PM-1", *RAISES, *AGREE}:
        return None, f"{finding.contract} is about bytes that are counted: its replay shows it"
    config = finding.trace.header.config
    assert isinstance(config, FrontEndConfig)
    if config.store != "lru":
        return None, "it is written for the two halves of a cache: its replay has the other stores"
    body = [*_played(finding, config), *_claim(finding)]
    skips = any(isinstance(one, Process) and one.skips_cache for one in finding.events)
    text = render("front_end.py.jinja", finding, body, capacity=config.capacity, skips=skips)
    return text, ""


def _played(finding: Finding, config: FrontEndConfig) -> Iterator[str]:
    """What front end and engine core do, one after the other."""
    told = zip(finding.events[: finding.event + 1], finding.records, strict=False)
    lacking: dict[str, list[str]] = {}
    for number, (event, record) in enumerate(told):
        outcome: FrontEndOutcome | None = record.outcome
        if outcome is None:
            continue
        indent = ""
        if number == finding.event and finding.contract in RAISES:
            yield RAISES[finding.contract]
        elif "refused" in outcome or "lacking" in outcome:
            yield "with suppress(*FAILURES):"
            indent = "    "
        if isinstance(event, Deliver):
            lacking[event.request] = outcome.get("lacking", [])
        for line in _lines(event, config, lacking):
            yield indent + line


def _lines(
    event: object, config: FrontEndConfig, lacking: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """What one event does; `lacking` are the items that the engine core said it had not, by
    request."""
    match event:
        case Process(fails=True):
            yield f"# the processor of {event.request} raises an error, and nothing is kept"
        case Process():
            name = "leave_out" if event.skips_cache else "process"
            arguments = [*(["sender"] * (not event.skips_cache)), *_items(event, config)]
            line = f"messages[{literal(event.request)}] = {name}({', '.join(arguments)})"
            if len(line) <= _WIDTH:
                yield line
                return
            yield f"messages[{literal(event.request)}] = {name}("
            yield from (f"    {argument}," for argument in arguments)
            yield ")"
        case Deliver():
            yield f"handed = deliver(receiver, messages[{literal(event.request)}])"
        case Report():
            yield from (f"sender.invalidate({literal(name)})" for name in lacking[event.request])
        case ResetMedia():
            yield from (
                f"{half}.clear_cache()"
                for half in ("sender", "receiver")
                if event.half in ("both", half)
            )


def _items(event: Process, config: FrontEndConfig) -> Iterator[str]:
    """Each item: its name, which content, and bytes; and what it is, if it is no picture."""
    items = {item.name: item for item in config.items}
    for one in event.items:
        item = items[one.name]
        modality = "" if item.modality == "image" else f", {literal(item.modality)}"
        yield f"({literal(one.name)}, {one.content}, {item.sizes[one.content]}{modality})"


def _claim(finding: Finding) -> Iterator[str]:
    """What does not hold in the end, where it is not that something is raised."""
    if finding.contract in AGREE:
        yield AGREE[finding.contract]
    if finding.contract == "PM-1":
        handed = finding.records[finding.event].outcome["handed"]
        yield f"assert handed != {literal(handed)}  # {finding.kind}"
