"""What a replay tells: what broke, by which events, at which step, as which fault, what to do."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.findings import finding as findings_of
from cacheproof.differential.findings import report
from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.findings.finding import LOCKSTEP, Finding, Replay
from cacheproof.differential.judges.retrace import Retrace
from cacheproof.differential.media.differences import parts
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.known import HARMS, KnownFault, called
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.trace import Trace
from cacheproof.listed import pages as fault_pages
from cacheproof.listed.explaining import ScreenPart, print_parts, rows_part
from cacheproof.listed.facts import fault_rows, listed_by_name, newest_showing
from cacheproof.listed.pages import is_brought, name_of
from cacheproof.output.console import CommandOutput
from cacheproof.output.verdict_line import VerdictLine
from cacheproof.reference.releases import within
from cacheproof.replay.verdict import BrokenContract, Replayed, of_replay

EVENTS_SHOWN = 24


@dataclass(frozen=True)
class Story:
    """Runs of what a file holds on a target, and what the first of them breaks: what does most
    harm first, then what comes first, a difference from the reference last."""

    file: Path
    what: Finding | Trace
    target: Target
    runs: Replay
    found: tuple[Finding, ...]
    fault: KnownFault | None

    @property
    def trace(self) -> Trace:
        """The trace that was run."""
        return self.what.trace if isinstance(self.what, Finding) else self.what

    @property
    def verdict(self) -> VerdictLine:
        """What the replay concludes."""
        seen = self.runs.examination
        return of_replay(
            Replayed(
                target=self.target.name,
                file=fault_pages.called(self.file),
                path=str(self.file),
                events=len(self.trace.events),
                calls=seen.calls,
                same=self.runs.same,
                times=self.runs.times,
                broken=[
                    BrokenContract(one.contract, one.title, one.event + 1, one.fault)
                    for one in self.found
                    if one.contract != LOCKSTEP
                ],
                parts_at=None if seen.difference is None else seen.difference.event + 1,
                is_compared=seen.compared,
                asked=None if self.runs.broke else self.runs.contract,
                seen_on=self._seen_on,
            )
        )

    @property
    def _seen_on(self) -> tuple[str, str] | None:
        """A target that breaks on this trace, and the listed fault that it has."""
        if self.fault is None:
            return None
        if isinstance(self.what, Finding):
            return self.what.target, self.fault.name
        seen = newest_showing(self.fault, name_of(self.file.absolute()))
        return None if seen is None else (seen, self.fault.name)

    @property
    def answer(self) -> list[tuple[str, str]]:
        """What a page begins with: what the replay concludes, and which fault that is."""
        if self.fault is None or not self.found:
            return [("in short", self.verdict.sentence)]
        known = ("known", f"yes, {self.fault.name}: {self.fault.title}")
        return [("in short", self.verdict.sentence), known, *fault_rows(self.fault)]

    def to_json(self) -> dict[str, object]:
        """The story in the JSON of `replay`, beside what that says of the runs."""
        return {
            "broken": [
                {
                    "contract": one.contract,
                    "kind": one.kind or None,
                    "harm": one.harm,
                    "title": one.title,
                    "event": one.event + 1,
                    "sentence": one.sentence,
                    "fault": one.fault,
                }
                for one in self.found
            ],
            "fault": None if self.fault is None else self.fault.name,
        }


def story_of(
    file: Path,
    what: Finding | Trace,
    target: Target,
    runs: Replay,
    known: Sequence[KnownFault],
    model: ReferenceTarget | None,
) -> Story:
    """The story of runs that were judged; the `model` is that of the target's release."""
    trace = what.trace if isinstance(what, Finding) else what
    faults = listed_by_name()
    of_file = _of_file(file, what, faults)
    is_known = of_file is not None and (called(known, of_file.name) is not None)
    shown = of_file if is_known else None
    name = file.stem if of_file is None else of_file.name
    with closing(Attribution.of_target(known, target, model)) as attribution:
        told = attribution.of(trace, runs.result, runs.examination, None, name)
        found = [
            _annotated(one, attribution, told.get((one.contract, one.kind), Attributed()), shown)
            for one in findings_of.of_run(target, trace, runs)
        ]
    found.sort(key=lambda one: (_is_not_asked(one, what, of_file), *_weight(one)))
    first = next((one.fault for one in found if one.fault), None)
    return Story(file, what, target, runs, tuple(found), faults.get(first or "", of_file))


def _of_file(file: Path, what: Finding | Trace, faults: dict[str, KnownFault]) -> KnownFault | None:
    """The listed fault that a finding says it is, or that a kept trace shows."""
    if isinstance(what, Finding):
        return faults.get(what.fault or "")
    if not is_brought(file, what):
        return None
    name, folder = name_of(file.absolute()), file.absolute().parent.name
    showing = [one for one in faults.values() if name in (*one.traces, *one.engines)]
    return min(showing, key=lambda one: one.name != folder, default=None)


def _is_not_asked(found: Finding, what: Finding | Trace, of_file: KnownFault | None) -> bool:
    """Whether it is another break than that of a finding, or of the fault that a trace shows."""
    if isinstance(what, Trace):
        return of_file is None or found.fault != of_file.name
    return found.contract != what.contract or not parts(found.kind) <= parts(what.kind)


def _weight(found: Finding) -> tuple[bool, int, int]:
    harm = HARMS.index(found.harm) if found.harm in HARMS else len(HARMS)
    return found.contract == LOCKSTEP, harm, found.event


def _annotated(
    found: Finding, attribution: Attribution, told: Attributed, shown: KnownFault | None
) -> Finding:
    """The finding with what is listed of it; where nothing is, the fault that its file shows, if
    that was seen on this release and breaks the contract in some way that no list tells."""
    if told.fault is None and not told.why and shown is not None and _shows(found, shown):
        return found.annotated(None, shown.title, shown.name)
    return attribution.annotated(found, told)


def _shows(found: Finding, fault: KnownFault) -> bool:
    """Whether a break of a trace that shows a fault is that fault: on this release it was seen."""
    return found.release in within(fault.seen) and found.contract in fault.contracts


def print_story(output: CommandOutput, story: Story) -> None:
    """The screen: of what is broken first as of any finding, then what else is, and which fault
    that is."""
    if story.found:
        first, *others = story.found
        report.print_finding(first, output.report, str(story.file), EVENTS_SHOWN)
        _print_others(output, others)
    else:
        report.print_run(_retrace(story), output.report, EVENTS_SHOWN)
        output.line("")
    print_parts(
        output,
        *([] if story.fault is None else [_part_of(story.fault)]),
        ScreenPart("see also", list(_commands(story))),
    )


def _print_others(output: CommandOutput, others: Sequence[Finding]) -> None:
    if not others:
        return
    output.report.print(Text("broken as well", style="bold"))
    for one in others:
        known = one.fault or "not listed"
        output.line(f"  {one.contract} at event {one.event + 1}: {one.title} ({one.harm}; {known})")
    output.line("")


def _part_of(fault: KnownFault) -> ScreenPart:
    """Which fault it is, what it does and where, and how to avoid it."""
    return rows_part(f"{fault.name}: {fault.title}", list(fault_rows(fault)))


def _commands(story: Story) -> Iterator[str]:
    """What to do with it next, apart from what the verdict says."""
    of_target = f"cacheproof replay {story.file} --target {story.target.name}"
    if story.found and story.found[0].contract != LOCKSTEP:
        yield f"cacheproof contracts {story.found[0].contract}"
    if DEPTHS[story.trace.depth].has_timeline and story.fault is not None:
        yield f"{of_target} --html run.html"
    if story.found and story.fault is not None and story.fault.mended_in is not None:
        yield f"cacheproof replay {story.file} --target {_like(story)}@{story.fault.mended_in}"


def _like(story: Story) -> str:
    """What kind of target runs the trace."""
    return "engine" if DEPTHS[story.trace.depth].is_executed else "vllm"


def _retrace(story: Story) -> Retrace:
    result, target = story.runs.result, story.target
    return Retrace(story.trace, result.records, target.release, target.protocol, result.capacity)
