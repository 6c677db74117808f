"""How findings that no list covers are told: those of one cause as one, with its other faces."""

from pathlib import Path

from cacheproof.differential.findings import finding_file, report
from cacheproof.differential.findings.faces import FindingCause
from cacheproof.differential.findings.finding import LOCKSTEP, Finding
from cacheproof.differential.search.verdict import Verdict
from cacheproof.output.console import CommandOutput
from cacheproof.output.verdict_line import counted, names


def print_causes(output: CommandOutput, verdict: Verdict, folder: Path) -> None:
    """Each cause: the finding that shows it whole, and its other faces in a line each; with
    `--verbose` these whole as well."""
    causes = verdict.causes
    for number, cause in enumerate(causes):
        report.print_finding(cause.head, output.report, str(_file(cause.head, folder)))
        print_faces(output, verdict, cause, folder)
        for line in _of_one_function(cause, causes[:number]):
            output.line(line)
        if output.verbose:
            for face in cause.faces:
                report.print_finding(face, output.report, str(_file(face, folder)))
        if cause.faces and not output.verbose:
            output.line("")


def print_faces(output: CommandOutput, verdict: Verdict, cause: FindingCause, folder: Path) -> None:
    """What decided a cause's first wrong step, where its text says, and its other faces."""
    if told := decided(cause.head, _nearest(verdict)):
        output.line(told)
    if not cause.faces:
        return
    output.line(f"other faces of it, each a file in {folder}:")
    for face in cause.faces:
        lane = verdict.lanes_of.get(face.key, "")
        output.command(f"  {in_words(face)}; {lane}; {_file(face, folder).name}")


def decided(finding: Finding, nearest: str) -> str:
    """Which changed function decided the first wrong step; nothing where no text says."""
    first = finding.first_wrong
    if first is None or not first.changed:
        return ""
    told = f"decided by {first.place}, which reads otherwise than in {nearest}"
    if others := first.functions[1:]:
        told += f"; the trace calls {names(others)} by then, changed too: either may be the cause"
    return told


def _nearest(verdict: Verdict) -> str:
    match verdict.told.get("reading"):
        case {"nearest": str(release)}:
            return release
    return "the nearest release"


def in_words(face: Finding) -> str:
    """What goes wrong, and where: the contract's own words."""
    place = face.sentence.removesuffix(f": {face.why}")
    if face.contract == LOCKSTEP and face.parting is not None:
        asked = f" ({face.parting.operation})" if face.parting.operation else ""
        return f"and decides otherwise than the reference at event {face.event + 1}{asked}"
    return f"{place}: {face.title}"


def _file(finding: Finding, folder: Path) -> Path:
    return finding_file.path_of(finding, folder)


def _of_one_function(cause: FindingCause, before: list[FindingCause]) -> list[str]:
    """A line that says that an earlier finding was decided by the same function, if one was."""
    first = cause.head.first_wrong
    for one in before:
        other = one.head.first_wrong
        if first is not None and other is not None and first.functions == other.functions:
            return [
                f"maybe one fault with {one.head.contract} above: the same function decided, and "
                "another part of what it decides is wrong"
            ]
    return []


def told_count(verdict: Verdict) -> str:
    """How many findings there are, listed ones among them, with their other faces in brackets."""
    faces = sum(len(one.faces) for one in verdict.causes)
    more = f" ({counted(faces, 'other face')})" if faces else ""
    return f"{counted(len(verdict.findings) - faces, 'finding')}{more}"


def causes_json(verdict: Verdict) -> list[dict[str, object]]:
    """The causes, with the numbers of their findings among `findings`, the one that shows it
    first."""
    number = {id(finding): at for at, finding in enumerate(verdict.findings)}
    return [
        {
            "functions": () if (first := one.head.first_wrong) is None else first.functions,
            "reads_otherwise": first is not None and first.changed,
            "findings": [number[id(finding)] for finding in one.findings],
        }
        for one in verdict.causes
    ]
