"""JUnit XML: what every CI reads. Each suite of each target is a test suite, each rule a test case.

The file keeps to the strictest schema that is in use, that of Ant's report task.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from cacheproof.differential.traces.wording import visible, visible_line
from cacheproof.formats.result import Case, Problem, Report, Result, Suite

WHOLE = "whole"
"""The suite whose one case says whether a target's other suites are worth anything."""
_SKIPPED, _ERROR, _FAILURE = "skipped", "error", "failure"
_COUNTED = {_FAILURE: "failures", _ERROR: "errors", _SKIPPED: "skipped"}


def written(report: Report, now: datetime) -> bytes:
    """The file. `now` is when the command ended."""
    root = ET.Element("testsuites")
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    for result in report.results:
        for suite in result.suites:
            cases = [_case(result, suite, one) for one in suite.cases]
            _add(root, stamp, result.target, suite.part, cases)
        worth = [_worth(result)]
        _add(root, stamp, result.target, WHOLE, worth, result.seconds, report.verdict)
    if report.trouble:
        case = _named(("cacheproof", report.command), report.command)
        _say(case, _ERROR, "the command", report.trouble)
        _add(root, stamp, "cacheproof", report.command, [case])
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _add(
    root: ET.Element,
    stamp: str,
    target: str,
    part: str,
    cases: Sequence[ET.Element],
    seconds: float = 0.0,
    said: str = "",
) -> None:
    counts = {kind: sum(case.find(kind) is not None for case in cases) for kind in _COUNTED}
    element = ET.SubElement(
        root,
        "testsuite",
        {
            "name": visible_line(f"{target} {part}"),
            "package": visible_line(target),
            "id": str(len(root)),
            "timestamp": stamp,
            "hostname": "localhost",
            "tests": str(len(cases)),
            **{name: str(counts[kind]) for kind, name in _COUNTED.items()},
            "time": f"{seconds:.3f}",
        },
    )
    ET.SubElement(element, "properties")
    element.extend(cases)
    ET.SubElement(element, "system-out").text = visible_line(said)
    ET.SubElement(element, "system-err")


def _case(result: Result, suite: Suite, case: Case) -> ET.Element:
    """What fails a command is a failure. What is listed, or of a harm that fails none, is skipped:
    the contract does not hold, and the command does not fail by it."""
    element = _named((result.target, suite.part), case.rule.id)
    if case.failures:
        _say(element, _FAILURE, case.rule.harm, _first(case.failures), _body(case, case.failures))
    elif case.void:
        _say(element, _ERROR, "void", case.void)
    elif case.problems:
        reasons = "; ".join(dict.fromkeys(one.excuse.reason for one in case.problems if one.excuse))
        _say(element, _SKIPPED, "", reasons, _body(case, case.problems))
    elif case.vacuous:
        _say(element, _SKIPPED, "", case.vacuous)
    return element


def _worth(result: Result) -> ET.Element:
    case = _named((result.target, WHOLE), "is not void")
    if doubts := result.doubts:
        _say(case, _ERROR, "void", doubts[0], "\n".join(doubts))
    return case


def _named(place: tuple[str, str], name: str) -> ET.Element:
    """A case of a part of a target. The one dot parts these as package and class, which those in
    the number of a release would do too."""
    package, name_of_part = (re.sub(r"[.\s]+", "_", visible_line(one)) for one in place)
    classname = f"{package}.{name_of_part}"
    return ET.Element("testcase", classname=classname, name=visible_line(name), time="0")


def _say(case: ET.Element, how: str, kind: str, message: str, body: str = "") -> None:
    said = {"message": visible_line(message)}
    if kind:
        said = {"type": visible_line(kind), **said}
    ET.SubElement(case, how, said).text = visible(body or message)


def _first(problems: Sequence[Problem]) -> str:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0].sentence}{more}"


def _body(case: Case, problems: Sequence[Problem]) -> str:
    return "\n".join(_lines(case, problems))


def _lines(case: Case, problems: Sequence[Problem]) -> Iterator[str]:
    yield f"{case.rule.id}: {case.rule.title} ({case.scope})"
    for one in problems:
        yield ""
        yield one.detail or one.sentence
