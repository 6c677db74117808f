"""What GitHub Actions shows of a step: annotations, which it reads off standard output, and the
summary, a file of Markdown that its environment names."""

from collections import Counter

from cacheproof.differential.traces.wording import visible_line
from cacheproof.formats.result import Excuse, Level, Problem, Report, Result, Rule

ANNOTATIONS_MAX = 10
"""Most annotations of each kind that GitHub shows for a step."""
ROWS_MAX = 30
_KINDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}
_GRAVITY = list(_KINDS.values())
_MARKDOWN = str.maketrans({one: f"\\{one}" for one in "\\`*_[]<>#|~@$&"})


def annotations(report: Report) -> list[str]:
    """One line each: of what fails a command, and of what makes it void. What is listed gets none:
    it would be said of every pull request."""
    made = [("error", report.trouble, "")] if report.trouble else []
    for result in report.results:
        made += [("error", f"{result.target}: {one}", "") for one in result.doubts]
        made += [_of_problem(result, *one) for one in result.problems() if _is_told(one[1])]
    made.sort(key=lambda one: _GRAVITY.index(one[0]))
    shown: Counter[str] = Counter()
    lines = []
    for kind, message, where in made:
        shown[kind] += 1
        if shown[kind] <= ANNOTATIONS_MAX:
            lines.append(f"::{kind}{where}::{_data(message)}")
    return lines


def summary(report: Report) -> str:
    """Markdown: a row for each target, and the first of what is not listed."""
    said = [f"**{_text(report.verdict)}**", ""] if report.verdict else []
    rows = [
        f"### cacheproof {_text(report.command)}",
        "",
        *said,
        "| target | judged | unlisted | listed or harmless | void |",
        "|---|--:|--:|--:|---|",
        *map(_row, report.results),
    ]
    told = [
        f"- {_text(f'{result.target}: {rule.title}: {one.sentence}')}"
        for result in report.results
        for rule, one in result.problems()
        if _is_told(one)
    ]
    if report.trouble:
        told.insert(0, f"- {_text(report.trouble)}")
    if told:
        rows += ["", *told[:ROWS_MAX]]
    if len(told) > ROWS_MAX:
        rows.append(f"- and {len(told) - ROWS_MAX} more")
    return "\n".join((*rows, "", ""))


def _row(result: Result) -> str:
    problems = [one for _, one in result.problems()]
    failing = sum(one.excuse is None for one in problems)
    cells = (
        _text(result.target),
        str(sum(not case.vacuous for case in result.cases())),
        str(failing),
        str(len(problems) - failing),
        _text("; ".join(result.doubts)),
    )
    return f"| {' | '.join(cells)} |"


def _is_told(one: Problem) -> bool:
    """Whether it fails the command, or is a difference from the model: neither listed nor small."""
    match one.excuse:
        case None | Excuse(fails=True):
            return True
        case Excuse(fault=fault):
            return not fault and one.level is not Level.NOTE


def _of_problem(result: Result, rule: Rule, one: Problem) -> tuple[str, str, str]:
    """A file is named only where it is one of the repository that is looked at."""
    properties = [("title", f"{rule.id}: {rule.title}")]
    if result.is_own and one.place is not None:
        file, line = one.place
        properties = [("file", file), ("line", str(line)), *properties]
    where = ",".join(f"{name}={_property(value)}" for name, value in properties)
    return _KINDS[one.level], f"{result.target}: {one.sentence}", f" {where}"


def _data(text: str) -> str:
    """A message as GitHub reads it back: of all that is not printable the end of a line alone."""
    lines = map(visible_line, text.split("\n"))
    return "%0A".join(line.replace("%", "%25") for line in lines)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _text(text: str) -> str:
    """A text that Markdown takes as it stands, in a cell of a table too."""
    return visible_line(text).translate(_MARKDOWN)
