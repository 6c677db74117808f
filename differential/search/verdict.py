"""What a search amounts to: findings against the known list, evidence, an exit code."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.faces import FindingCause, causes_of
from cacheproof.differential.findings.finding import MODEL_DIFFERENCE, Finding
from cacheproof.differential.judges.examination import LOCKSTEP
from cacheproof.differential.judges.rules import rules_for
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.seeded import LaneReport, SearchOutcome
from cacheproof.spec.registry import by_id

HOLDS, UNLISTED, VOID, FROM_MODEL = 0, 1, 3, 4
INTERRUPTED = 130
NOTHING_JUDGED = "no trace was judged"


@dataclass(frozen=True)
class EvidenceRow:
    """One line of the evidence table."""

    contract: str
    target: str
    verdict: str
    scope: str
    seconds: float
    known: str | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "contract": self.contract,
            "target": self.target,
            "verdict": self.verdict,
            "scope": self.scope,
            "seconds": round(self.seconds, 1),
            "known": self.known,
        }


def is_unlisted(finding: Finding) -> bool:
    """Whether a finding is none of the listed faults, and worth an exit code."""
    return finding.known_note is None and finding.harm not in ("efficiency", MODEL_DIFFERENCE)


def is_from_model(finding: Finding) -> bool:
    """Whether a finding breaks no contract, but shows where a target whose text is no release's
    parts from the model."""
    return finding.harm == MODEL_DIFFERENCE


@dataclass
class Verdict:
    """The outcome of a search with its minimised findings and its canaries.

    `canaries` maps a contract whose fault was planted to whether it was found. `not_found_again`
    are listed faults that a search over fixed seeds should have met. `told` is what was said of the
    target's text before the search, as JSON has it. `not_written` are breaks, with the listed fault
    that each is, of which there is no finding: where the search was `interrupted`, or for a
    harness error. `unfinished` says what was to be run and was not. `left_undone` is what a search
    by the clock had no time for, and how much of it: no reason to doubt the rest. `lanes_of` has
    the lane in which a finding was first met, by its key. `left_out` has the lanes that this
    machine cannot run, with the program that each lacks. `changed_once` are the definitions in
    which the target differs from the nearest release in one place.
    """

    outcome: SearchOutcome
    findings: list[Finding]
    canaries: dict[str, bool] = field(default_factory=dict)
    not_found_again: list[KnownFault] = field(default_factory=list)
    told: dict[str, object] = field(default_factory=dict)
    interrupted: bool = False
    not_written: list[tuple[KnownFault | None, Break]] = field(default_factory=list)
    unfinished: str = ""
    left_undone: dict[str, int] = field(default_factory=dict)
    lanes_of: dict[tuple[str, str], str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    changed_once: frozenset[str] = frozenset()

    @property
    def causes(self) -> list[FindingCause]:
        """The findings that the known list does not cover, those of one cause together."""
        new = [finding for finding in self.findings if finding.known_note is None]
        return causes_of(new, is_unlisted, self.changed_once)

    @property
    def unlisted(self) -> list[Finding]:
        """Findings that the known list does not cover and that are worth an exit code."""
        return [finding for finding in self.findings if is_unlisted(finding)]

    @property
    def from_model(self) -> list[Finding]:
        """Differences from the model."""
        return [finding for finding in self.findings if is_from_model(finding)]

    @property
    def unsmall(self) -> list[str]:
        """The contracts that broke on traces that were not minimised: only then is it known whether
        the break is listed. Those that cost only wasted work are left out."""
        new = {broken.contract: None for fault, broken in self.not_written if fault is None}
        return [one for one in new if one == LOCKSTEP or by_id(one).harm != "efficiency"]

    @property
    def exit_code(self) -> int:
        """0 when all holds but for listed faults, 1 with an unlisted one, 4 with a difference from
        the model, 3 when void; 130 when it was interrupted."""
        if self.interrupted:
            return INTERRUPTED
        if self.unlisted:
            return UNLISTED
        if self.from_model:
            return FROM_MODEL
        return VOID if self.void_because else HOLDS

    @property
    def void_because(self) -> list[str]:
        """Why the search proves nothing; empty when it does."""
        reasons = [self.unfinished] if self.unfinished else []
        reasons += [f"harness error: {error}" for error in self.outcome.harness_errors]
        reasons += [
            f"the fault planted against {contract} was not found"
            for contract, met in self.canaries.items()
            if not met
        ]
        reasons += [
            f"listed fault not found again: {fault.name} ({fault.title})"
            for fault in self.not_found_again
        ]
        if not any(report.calls for report in self.outcome.lanes):
            reasons.append(NOTHING_JUDGED)
        return reasons

    def evidence(self) -> list[EvidenceRow]:
        """One line per contract that this search judged, then one for the lockstep."""
        outcome = self.outcome
        lines = []
        for contract, calls, lanes in judged(outcome.lanes, outcome.release):
            listed = [f.known for f in self.findings if f.contract == contract and f.known_note]
            count = sum(f.contract == contract for f in self.findings)
            broken = sum(count for (id, _), count in outcome.broken.items() if id == contract)
            verdict, known = "tested", None
            scope = f"{calls:,} calls in {', '.join(lanes)}"
            if broken:
                verdict = "refuted"
                scope = f"{broken:,} traces break it; {scope}"
                known = (
                    (listed[0] or "no thread listed") if 0 < count == len(listed) else "not listed"
                )
                if contract == LOCKSTEP and 0 < count == len(self.from_model):
                    verdict, known = "differs", "from the model"
            elif not calls:
                verdict = "vacuous"
                scope = "nothing was judged"
            lines.append(
                EvidenceRow(contract, outcome.target, verdict, scope, outcome.seconds, known)
            )
        return lines


def exit_code_of(verdicts: Sequence[Verdict]) -> int:
    """The most important exit code: an interruption, an unlisted finding, a difference from the
    model, void, all holds."""
    codes = {verdict.exit_code for verdict in verdicts}
    first = (code for code in (INTERRUPTED, UNLISTED) if code in codes)
    return next(first, max(codes, default=VOID))


def judged(reports: Sequence[LaneReport], release: str | None) -> list[tuple[str, int, list[str]]]:
    """(contract, calls judged, lanes) in the order of the register, the lockstep last."""
    calls: dict[str, int] = {}
    lanes: dict[str, list[str]] = {}
    for report in reports:
        lane = report.lane
        rules = rules_for(lane.manager, release, lane.depth).all
        of_lane = {rule.id: report.calls for rule in rules if rule.id not in lane.silent_on}
        if report.compared is not None:
            of_lane[LOCKSTEP] = report.compared.calls
        for name, count in of_lane.items():
            calls[name] = calls.get(name, 0) + count
            if count:
                lanes.setdefault(name, []).append(lane.name)
    ordered = sorted(calls, key=_register_order)
    return [(name, calls[name], lanes.get(name, [])) for name in ordered]


def _register_order(contract: str) -> tuple[int, str, int, str]:
    """Contracts by component and number, the lockstep last."""
    prefix, _, number = contract.partition("-")
    digits = "".join(character for character in number if character.isdigit())
    return (contract == LOCKSTEP, prefix, int(digits or 0), number)


def listed_but_missing(outcome: SearchOutcome, known: Sequence[KnownFault]) -> list[KnownFault]:
    """Listed faults that a lane of the search should have met, and did not."""
    met = {one.attributed.fault for one in outcome.breaks}
    searched = [report.lane.name for report in outcome.lanes if report.traces]
    return [
        fault
        for fault in known
        if fault.name not in met
        and any(fault.must_be_met(outcome.release, lane) for lane in searched)
    ]
