"""SARIF 2.1.0: what code scanning reads. Each target is a run, each rule that was judged a rule,
each problem a result.

Files are named from the root of the target's tree, which the base ROOT stands for; where that is,
the reader says.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec

from cacheproof import __version__
from cacheproof.differential.traces.wording import visible
from cacheproof.formats.result import Level, Problem, Report, Result, Rule

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
VERSION = "2.1.0"
RESULTS_MAX = 25_000
"""More of a run GitHub refuses."""
ROOT = "%SRCROOT%"
FINGERPRINT = "cacheproof/v1"
FINGERPRINT_OF_GITHUB = "primaryLocationLineHash"
"""The only one by which code scanning tells alerts apart."""
_GRAVITY = list(Level)


def written(report: Report) -> bytes:
    """The file."""
    document = {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [_run(report, result) for result in report.results] or [_run(report, None)],
    }
    return msgspec.json.format(msgspec.json.encode(_shown(document)), indent=1) + b"\n"


def _shown(value: object) -> object:
    """A document of which every text is one that all readers take."""
    match value:
        case str():
            return visible(value)
        case list():
            return [_shown(one) for one in value]
        case dict():
            return {name: _shown(one) for name, one in value.items()}
    return value


def _run(report: Report, result: Result | None) -> dict[str, object]:
    """One target's; of a command that ended before there was one, why it did."""
    found = sorted(
        () if result is None else result.problems(),
        key=lambda one: (one[1].excuse is not None, _GRAVITY.index(one[1].level)),
    )
    rules = {} if result is None else {case.rule.id: case.rule for case in result.cases()}
    numbers = {id: number for number, id in enumerate(rules)}
    target = report.command if result is None else result.target
    doubts = [] if result is None else result.doubts
    return {
        "tool": {
            "driver": {
                "name": "cacheproof",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in rules.values()],
            }
        },
        "automationDetails": {"id": f"cacheproof {report.command}/{target}/"},
        "invocations": [_invocation(report, doubts, len(found) - RESULTS_MAX)],
        "originalUriBaseIds": {
            ROOT: {"description": {"text": "The folder that holds the target's package vllm."}}
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(rule, one, numbers) for rule, one in found[:RESULTS_MAX]],
    }


def _invocation(report: Report, doubts: Sequence[str], left_out: int) -> dict[str, object]:
    notes = [("note", report.verdict)] if report.verdict else []
    notes += [("error", one) for one in doubts]
    if report.trouble:
        notes.append(("error", report.trouble))
    if left_out > 0:
        notes.append(
            ("warning", f"{left_out:,} results are left out: {RESULTS_MAX:,} are the most")
        )
    return {
        "executionSuccessful": not doubts and not report.trouble,
        "exitCode": report.code,
        "toolExecutionNotifications": [
            {"level": level, "message": {"text": text}} for level, text in notes
        ],
    }


def _rule(rule: Rule) -> dict[str, object]:
    help = f"{rule.id} on {rule.page} of cacheproof. From: {rule.source}."
    return {
        "id": rule.id,
        "name": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.title}. Harm: {rule.harm}."},
        "help": {"text": help},
        "defaultConfiguration": {"level": Problem(rule.harm, "").level},
        "properties": {"tags": [rule.harm], "page": rule.page},
    }


def _result(rule: Rule, one: Problem, numbers: Mapping[str, int]) -> dict[str, object]:
    identity = one.identity(rule.id)
    result: dict[str, object] = {
        "ruleId": rule.id,
        "ruleIndex": numbers[rule.id],
        "level": one.level,
        "message": {"text": one.sentence},
        "partialFingerprints": {FINGERPRINT: identity, FINGERPRINT_OF_GITHUB: identity},
        "properties": {"harm": one.harm, "kind": one.kind, "detail": one.detail},
    }
    if one.way or one.place:
        result["locations"] = [_location(one)]
    if one.excuse is not None and one.excuse.fault:
        page = f", {one.excuse.page}" if one.excuse.page else ""
        result["suppressions"] = [
            {
                "kind": "external",
                "status": "accepted",
                "justification": f"{one.excuse.reason}{page}",
            }
        ]
    return result


def _location(one: Problem) -> dict[str, object]:
    location: dict[str, object] = {}
    if one.place is not None:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": quote(one.place.path), "uriBaseId": ROOT},
            "region": {"startLine": one.place.line},
        }
    if one.way:
        location["logicalLocations"] = [
            {"fullyQualifiedName": function.name, "kind": "function"} for function in one.way[::-1]
        ]
    return location
