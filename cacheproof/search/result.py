"""From a search's verdict to the record that formats are written from."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cacheproof.differential.findings import finding_file, report
from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import (
    DIFFERENCE,
    LOCKSTEP,
    MODEL_DIFFERENCE,
    Finding,
)
from cacheproof.differential.judges.retrace import violation_of
from cacheproof.differential.search.known import KnownFault, called
from cacheproof.differential.search.seeded import LaneReport
from cacheproof.differential.search.verdict import Verdict, judged
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.named import plug_in_named
from cacheproof.differential.texts import places
from cacheproof.differential.texts.places import SourceFunction, SourcePlace
from cacheproof.differential.traces.trace import Trace
from cacheproof.formats.result import Case, Excuse, Problem, Result, Suite, rule_of
from cacheproof.output.announcing import has_text_of_its_own
from cacheproof.output.console import VisibleConsole
from cacheproof.proving.targets import CHECKOUT, file_of
from cacheproof.spec.registry import by_id

WIDTH = 100
HARMLESS = {
    "efficiency": "its harm is efficiency, which fails no command",
    MODEL_DIFFERENCE: "a difference from the model that breaks no contract",
}


@dataclass(frozen=True)
class SearchSubject:
    """The target that was searched, as far as it is told of: its name, the folder that holds its
    package vllm, None where no place is to be named, and whether its text is its own."""

    name: str
    tree: Path | None
    has_own_text: bool

    @classmethod
    def of(cls, target: Target) -> "SearchSubject":
        return cls(target.name, target.tree, has_text_of_its_own(target))


def result_of(
    verdict: Verdict, subject: SearchSubject, known: Sequence[KnownFault], folder: Path
) -> Result:
    """What a search amounts to: a suite for each depth, a case for each contract. Its findings lie
    in `folder`."""
    search = _Search(verdict, subject, known, folder)
    depths = dict.fromkeys(lane.lane.depth for lane in verdict.outcome.lanes)
    return Result(
        subject.name,
        tuple(Suite(depth, tuple(search.cases(depth))) for depth in depths),
        search.is_own,
        tuple(verdict.void_because),
        verdict.interrupted,
        verdict.outcome.seconds,
    )


class _Search:
    """A verdict that is being told."""

    def __init__(
        self, verdict: Verdict, subject: SearchSubject, known: Sequence[KnownFault], folder: Path
    ) -> None:
        self._verdict = verdict
        self._outcome = verdict.outcome
        self._subject = subject
        self._known = known
        self._pages: Mapping[str, str] = {one.name: one.page or "" for one in known}
        self._folder = folder
        self._plugged = _plugged(subject.name)

    @property
    def is_own(self) -> bool:
        """Whether the files that are named are the user's."""
        return self._plugged is not None or self._subject.name.startswith(CHECKOUT)

    def cases(self, depth: str) -> Iterator[Case]:
        """The contracts that were judged at a depth, those that were broken among them."""
        lanes = [one for one in self._outcome.lanes if one.lane.depth == depth]
        found = judged(lanes, self._outcome.release)
        found += self._broken_in_silence(lanes, {contract for contract, *_ in found})
        for contract, calls, names in found:
            problems = (*self._found(contract, depth), *self._not_written(contract, lanes))
            yield Case(
                rule_of(contract),
                f"{calls:,} calls in {', '.join(names)}" if calls else "no call",
                problems,
                "" if calls or problems else "nothing was judged",
            )

    def _broken_in_silence(
        self, lanes: Sequence[LaneReport], told: set[str]
    ) -> list[tuple[str, int, list[str]]]:
        """Contracts that were broken in lanes that are not known to break them."""
        more: dict[str, list[LaneReport]] = {}
        for one in lanes:
            for contract, lane in self._outcome.broken:
                if lane == one.lane.name and contract not in told:
                    more.setdefault(contract, []).append(one)
        return [
            (contract, sum(one.calls for one in several), [one.lane.name for one in several])
            for contract, several in more.items()
        ]

    def _found(self, contract: str, depth: str) -> Iterator[Problem]:
        for one in self._verdict.findings:
            if one.contract == contract and one.trace.depth == depth:
                yield self._of_finding(one)

    def _of_finding(self, one: Finding) -> Problem:
        way = way_of(one.contract, one.trace, one.event, _operation(one))
        excuse = None
        if one.known_note is not None:
            excuse = self._listed(one.fault or "", one.known_note)
        elif one.harm in HARMLESS:
            excuse = Excuse(HARMLESS[one.harm])
        screen = io.StringIO()
        console = VisibleConsole(file=screen, width=WIDTH, highlight=False, markup=False)
        report.print_finding(one, console, str(finding_file.path_of(one, self._folder)))
        return Problem(
            one.harm,
            one.sentence,
            "\n".join(line.rstrip() for line in screen.getvalue().splitlines()).strip("\n"),
            one.kind,
            "" if one.stopped_early else one.shape,
            way,
            self._place(way),
            excuse,
        )

    def _not_written(self, contract: str, lanes: Sequence[LaneReport]) -> Iterator[Problem]:
        """Breaks of which no finding tells at this depth: the same fault told at another, or not
        minimised before the search ended. One of each kind."""
        names = {one.lane.name for one in lanes}
        told = {
            (one.kind, one.fault)
            for one in self._verdict.findings
            if one.contract == contract and one.trace.depth == lanes[0].lane.depth
        }
        for one in self._outcome.breaks:
            if one.contract != contract or one.lane not in names:
                continue
            listed = self._listed_as(one)
            if (key := (one.kind, listed.name if listed else None)) not in told:
                told.add(key)
                yield self._of_break(one, listed)

    def _listed_as(self, one: Break) -> KnownFault | None:
        return called(self._known, one.attributed.fault)

    def _of_break(self, one: Break, listed: KnownFault | None) -> Problem:
        way = way_of(one.contract, one.trace, one.event, one.operation)
        harm = self._harm(one.contract)
        excuse = Excuse(HARMLESS[harm]) if harm in HARMLESS else None
        if listed is not None:
            excuse = self._listed(listed.name, listed.title)
        return Problem(harm, one.sentence, "", one.kind, "", way, self._place(way), excuse)

    def _harm(self, contract: str) -> str:
        if contract != LOCKSTEP:
            return by_id(contract).harm
        return MODEL_DIFFERENCE if self._subject.has_own_text else DIFFERENCE

    def _listed(self, fault: str, note: str) -> Excuse:
        return Excuse(f"listed as {fault}: {note}", fault, self._pages.get(fault, ""))

    def _place(self, way: Sequence[SourceFunction]) -> SourcePlace | None:
        if self._plugged is not None:
            return places.find_plugged(*self._plugged, way[-1])
        tree = self._subject.tree
        return None if tree is None else places.find(tree, way[-1])


def _plugged(target: str) -> tuple[Path, str] | None:
    """The file and the name of a plug-in's class."""
    named = plug_in_named(target)
    if named is None or target.startswith(CHECKOUT):
        return None
    module, own_name, _ = named
    file = file_of(module, Path.cwd())
    return None if file is None else (file, own_name)


def way_of(contract: str, trace: Trace, event: int, operation: str) -> tuple[SourceFunction, ...]:
    """The functions of the target that lead to where a contract is broken."""
    rule = None if contract == LOCKSTEP else by_id(contract)
    of_caller = rule is not None and rule.kind == "promise"
    way = places.way(trace, event, operation, of_caller=of_caller)
    executed = rule is not None and rule.component == "engine"
    return (*way, places.EXECUTION) if executed else tuple(way)


def _operation(one: Finding) -> str:
    """What is asked where the finding's contract breaks."""
    if one.parting is not None:
        return one.parting.operation
    broken = one.first_break
    if broken is None:
        return ""
    violation = violation_of(broken.judge, one.contract, one.kind)
    return "" if violation is None else violation.operation
