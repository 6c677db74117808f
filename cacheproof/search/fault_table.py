"""What searches found, by fault: a line for each that is listed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.table import Table

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.search.known import HARMS, KnownFault, called
from cacheproof.differential.search.verdict import Verdict
from cacheproof.output.console import CommandOutput


@dataclass
class ShownFault:
    """A listed fault as searches met it: by which contracts, in which targets' smallest traces."""

    fault: KnownFault
    contracts: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def harm(self) -> str:
        """The kind of the fault's harm."""
        return self.fault.kind_of_harm

    @property
    def by_symptom(self) -> bool:
        """Whether no cause of it is known, so that it is told by what it breaks alone."""
        return self.fault.is_told_alone

    def events(self, target: str) -> int | None:
        """How many events the smallest trace has that was written down for a target."""
        sizes = [len(one.events) for one in self.findings if one.target == target]
        return min(sizes, default=None)

    def to_json(self) -> dict[str, object]:
        """The fault in the JSON of `check` and `fuzz`."""
        return {
            "name": self.fault.name,
            "page": self.fault.page,
            "harm": self.harm,
            "contracts": self.contracts,
            "by_symptom": self.by_symptom,
            "events": {target: self.events(target) for target in self.targets},
        }


def shown_faults(verdicts: Sequence[Verdict], known: Sequence[KnownFault]) -> list[ShownFault]:
    """The listed faults that searches met, the worst first, then in the order of the list."""
    shown: dict[str, ShownFault] = {}
    for verdict in verdicts:
        for fault, contract in _met(verdict, known):
            one = shown.setdefault(fault.name, ShownFault(fault))
            _add(one.contracts, contract)
            _add(one.targets, verdict.outcome.target)
        for finding in verdict.findings:
            if finding.fault in shown:
                shown[finding.fault].findings.append(finding)
    order = list(dict.fromkeys(fault.name for fault in known))
    return sorted(shown.values(), key=lambda s: (HARMS.index(s.harm), order.index(s.fault.name)))


def _met(verdict: Verdict, known: Sequence[KnownFault]) -> Iterator[tuple[KnownFault, str]]:
    """Listed faults and the contracts by which they showed, in the order of the breaks."""
    outcome = verdict.outcome
    for one in outcome.breaks:
        fault = called(known, one.attributed.fault)
        if fault is not None:
            yield fault, one.contract


def _add(some: list[str], one: str) -> None:
    if one not in some:
        some.append(one)


def print_faults(
    output: CommandOutput, shown: Sequence[ShownFault], targets: Sequence[str]
) -> None:
    """The table, by harm: of each target the events of a trace that shows the fault."""
    if not shown:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    names = [target.removeprefix("vllm@") for target in targets]
    if len(names) == 1:
        names = ["events"]
    taken = max(len(one.fault.name) for one in shown) + 4 + sum(len(one) + 1 for one in names)
    room = max(len("contracts"), output.report.width - taken)
    table.add_column("listed faults", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("contracts", overflow="ellipsis", no_wrap=True, max_width=room)
    for harm in HARMS:
        of_harm = [one for one in shown if one.harm == harm]
        if of_harm:
            table.add_row(f"{harm} ({len(of_harm)})", style="bold")
        for one in of_harm:
            events = (_cell(one, target) for target in targets)
            name = f"  {one.fault.name}{'*' * one.by_symptom}"
            table.add_row(name, *events, " ".join(one.contracts))
    output.report.print(table)
    if any(one.by_symptom for one in shown):
        output.line("* no cause of it is known: told by what it breaks alone")
    if any(one.findings for one in shown):
        has_pages = any(one.fault.page for one in shown)
        pages = "; to read of one: cacheproof explain NAME" * has_pages
        output.line(f"numbers are events of a trace{pages}")


def _cell(one: ShownFault, target: str) -> str:
    """How many events show the fault in a target: + where no trace was written down."""
    if target not in one.targets:
        return "-"
    events = one.events(target)
    return "+" if events is None else str(events)
