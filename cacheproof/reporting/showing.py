"""What shows a fault: a script that needs vLLM alone, else a replay; run with the fault and without
it."""

import shlex
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cacheproof.differential.errors import CacheproofError, InputError
from cacheproof.differential.findings import finding as findings_of
from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.finding import LOCKSTEP, Finding
from cacheproof.differential.findings.shrinking.shrink import BATCHES_MAX
from cacheproof.differential.findings.standalone.running import outcomes
from cacheproof.differential.findings.standalone.writing import standalone_test, why_none
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES, PROJECTS
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import VOID
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.host.protocol import REFUSED
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for, resolve
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.listed.facts import showing
from cacheproof.listed.pages import kept_traces, name_of, told
from cacheproof.output.console import CommandOutput
from cacheproof.replay.story import story_of
from cacheproof.reporting.subject import ReportSubject
from cacheproof.work.plan import seed_range

SMALL = 12
"""Most events of a trace that is reported without being minimised first."""
NOTHING = "nothing is reported"


class Unproved(CacheproofError):
    """What a report would say was not seen: nothing is reported."""

    exit_code = VOID


@dataclass(frozen=True)
class Seen:
    """What came of a run: what was broken or raised, in one line, empty where nothing was; the line
    of the script that raised; seconds, with the start of the interpreter; why the release refuses a
    request of a trace, where it does."""

    target: str
    broke: str
    line: str
    seconds: float
    refuses: str = ""


@dataclass(frozen=True)
class FaultShown:
    """What shows a fault.

    `finding` is the break of the trace that was run, None where nothing could be run; `others` are
    the contracts that it breaks as well, for the fault. `script` is a test that needs vLLM alone,
    and `why_none` why there is none. `command` shows it with cacheproof. `source` says where the
    trace is from. `runs` are what was seen, on the release and then on the mended one.
    """

    command: str
    finding: Finding | None = None
    others: tuple[str, ...] = ()
    script: str = ""
    why_none: str = ""
    source: str = ""
    runs: tuple[Seen, ...] = ()


def shown(
    output: CommandOutput, subject: ReportSubject, known: Sequence[KnownFault], folder: Path
) -> FaultShown:
    """What shows the fault on the release of the subject, and what was seen of it there and on the
    mended release.

    Raises:
        Unproved: it does not show, or still does with the mend.
    """
    first: _Break | None = None
    trouble = ""
    with closing(_breaks(output, subject, known, folder)) as breaks:
        for one in breaks:
            first = first or one
            if script := standalone_test(one.finding):
                runs = _run_script(output, subject, script)
                if not (why := trouble_of(subject, "its script", runs)):
                    return one.shown(subject, script=script, runs=runs)
                trouble = trouble or why
    if first is None and (subject.trace is not None or subject.fault.search):
        what = subject.trace or f"cacheproof fuzz {subject.fault.search}"
        trouble = f"{subject.fault.name}: {what} does not show it on {subject.target}: {NOTHING}"
    if first is None:
        if trouble:
            raise Unproved(trouble)
        return FaultShown(_command(subject), why_none="nothing that a report can run shows it")
    runs = _run_trace(output, subject, first)
    if trouble and not any(one.refuses for one in runs):
        raise Unproved(trouble)
    if another := trouble_of(subject, "its trace", runs):
        raise Unproved(another)
    why = why_none(first.finding) or "with the change the request is refused before it is scheduled"
    return first.shown(subject, why_none=why, runs=runs)


@dataclass(frozen=True)
class _Break:
    """A break that is the fault's, where its trace is from, and what else the fault breaks on it;
    `seconds` until it was seen."""

    finding: Finding
    source: str
    others: tuple[str, ...]
    seconds: float

    def shown(
        self,
        subject: ReportSubject,
        *,
        script: str = "",
        why_none: str = "",
        runs: tuple[Seen, ...],
    ) -> FaultShown:
        """The break as what shows the fault."""
        return FaultShown(
            _command(subject), self.finding, self.others, script, why_none, self.source, runs
        )


def _command(subject: ReportSubject) -> str:
    """The cacheproof command that shows the fault; empty where none does."""
    if subject.trace is not None:
        return f"cacheproof replay {told(subject.trace)} --target {subject.target}"
    return next(showing(subject.fault), "")


def trouble_of(subject: ReportSubject, what: str, runs: Sequence[Seen]) -> str:
    """Why runs do not show the fault; empty where they do."""
    of_release, *of_mended = runs
    if not of_release.broke:
        return f"{subject.fault.name}: {what} does not fail on {of_release.target}: {NOTHING}"
    for one in of_mended:
        if one.broke:
            return (
                f"{subject.fault.name}: {what} fails on {one.target} as well: {one.broke}; "
                f"expected the mend to take it away: {NOTHING}"
            )
    return ""


def _run_script(output: CommandOutput, subject: ReportSubject, script: str) -> tuple[Seen, ...]:
    """The script on the release, and where it fails there and there is a mend with that."""
    releases = [(subject.target, subject.installed)]
    if subject.mended is not None:
        releases.append((subject.mended, subject.installed_mended))
    seen: list[Seen] = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / script_name(subject)
        file.write_text(script)
        for target, installed in releases:
            with output.live(f"running {file.name} on {target}"):
                (one,) = outcomes([file], installed(output.say))
            seen.append(Seen(target, one.error, one.line, one.seconds))
            if one.passes:
                break
    return tuple(seen)


def script_name(subject: ReportSubject) -> str:
    """The file that the script is to be kept as."""
    return f"test_{subject.fault.name.replace('-', '_')}.py"


def _run_trace(output: CommandOutput, subject: ReportSubject, one: _Break) -> tuple[Seen, ...]:
    """The trace of a break, which was run on the release, on the mended release as well.

    Raises:
        Unproved: the mended release cannot run it.
    """
    found = one.finding
    seen = [Seen(subject.target, found.sentence, "", one.seconds)]
    if subject.mended is not None:
        begun = time.monotonic()
        with closing(resolve(subject.mended, report=output.say)) as target:
            with output.live(f"running its trace on {target.name}"):
                (result,) = target.run([found.trace])
            broken = examine(found.trace, result, target).by_kind.get((found.contract, found.kind))
        refuses = refusal_in(result)
        if result.illegal is not None and not refuses:
            raise Unproved(
                f"{subject.fault.name}: {subject.mended} does not run its trace: {result.illegal}: "
                f"{NOTHING}"
            )
        told = "" if broken is None else broken.sentence
        seen.append(Seen(subject.mended, told, "", time.monotonic() - begun, refuses))
    return tuple(seen)


def refusal_in(result: TraceResult) -> str:
    """Why a release refuses a request of a trace; empty where it refuses none."""
    raised = result.records[-1].raised if result.records else None
    return raised.message if raised is not None and raised.type.startswith(REFUSED) else ""


def _breaks(
    output: CommandOutput, subject: ReportSubject, known: Sequence[KnownFault], folder: Path
) -> Generator[_Break, None, None]:
    """Breaks of the release that are the fault's: of its kept trace; else of the newest finding in
    the folder, else of a search."""
    if subject.trace is None and not subject.fault.search:
        return
    begun = time.monotonic()
    target = resolve(subject.target, report=output.say)
    with closing(target):
        reference = reference_for(target)
        try:
            with output.live(f"running what shows {subject.fault.name} on {target.name}"):
                if subject.trace is not None:
                    file = kept_traces()[subject.trace]
                    trace = finding_file.load(file)
                    assert isinstance(trace, Trace)
                    yield from _of_trace(subject, target, reference, known, file, trace, begun)
                    return
                saved = finding_file.of_fault(subject.fault.name, PROJECTS, subject.release, folder)
                if saved is not None and (found := _saved(subject, target, saved)) is not None:
                    source = f"a finding of a search, {saved.name}"
                    yield _Break(found, source, (), time.monotonic() - begun)
                    return
                with closing(Attribution.of_target(known, target, reference)) as attribution:
                    yield from _searched(subject, target, reference, attribution)
        finally:
            if reference is not None:
                reference.close()


def _of_trace(
    subject: ReportSubject,
    target: Target,
    reference: ReferenceTarget | None,
    known: Sequence[KnownFault],
    file: Path,
    trace: Trace,
    begun: float,
) -> Iterator[_Break]:
    """What a kept trace breaks, as far as it is the fault's; made smaller where it is not small."""
    runs = findings_of.replay(trace, target, 1, reference)
    story = story_of(file, trace, target, runs, known, reference)
    source = f"the kept trace {told(name_of(file))}"
    name, order, unlisted = subject.fault.name, subject.fault.contracts, subject.fault.breaks
    found = [
        one
        for one in story.found
        if one.contract in order and (one.fault == name or one.contract in unlisted)
    ]
    for one in sorted(found, key=lambda one: order.index(one.contract)):
        small = one
        if len(trace.events) > SMALL:
            small = _small(target, one) or one
        others = dict.fromkeys(other.contract for other in found if other.contract != one.contract)
        yield _Break(small, source, tuple(others), time.monotonic() - begun)


def _saved(subject: ReportSubject, target: Target, file: Path) -> Finding | None:
    """A finding that was saved, as it is on the target now; None where it is none of its, or was
    written before its contract was changed."""
    try:
        found = finding_file.load(file)
    except InputError:
        return None
    if not isinstance(found, Finding) or found.target != subject.target:
        return None
    return _small(target, found)


def _small(target: Target, found: Finding) -> Finding | None:
    """What a target breaks on the trace of a finding, made smaller where it is not small."""
    batches = BATCHES_MAX if len(found.events) > SMALL else 0
    return findings_of.found_in(
        target, found.trace, found.contract, kind=found.kind, times=1, batches=batches
    )


def _searched(
    subject: ReportSubject,
    target: Target,
    reference: ReferenceTarget | None,
    attribution: Attribution,
) -> Iterator[_Break]:
    """The first break of the search that shows the fault that is the fault's, minimised."""
    words = dict(zip(*[iter(shlex.split(subject.fault.search))] * 2, strict=True))
    seeds = seed_range(words["--seeds"])
    assert seeds is not None
    lanes = [
        lane
        for lane in LANES.values()
        if lane.depth == words["--depth"]
        and lane.is_offered_by(target.release, target.projects)
        and lane.lacks is None
    ]
    for seed in seeds:
        for lane in lanes:
            begun = time.monotonic()
            trace = lane.trace(seed, target.release)
            (result,) = target.run([trace])
            seen = examine(trace, result, target, reference)
            told = attribution.of(trace, result, seen, lane.name)
            for (contract, kind), one in told.items():
                if one.fault != subject.fault.name or contract == LOCKSTEP:
                    continue
                found = findings_of.found_in(target, trace, contract, kind=kind, times=1)
                if found is not None:
                    source = f"a search, seed {seed} of the lane {lane.name}, minimised"
                    yield _Break(found, source, (), time.monotonic() - begun)
                    return
