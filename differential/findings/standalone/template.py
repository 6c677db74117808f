"""What all of these files have in common."""

import re
from collections.abc import Iterable
from importlib import resources

import jinja2

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.traces.wording import visible_line

PLUG_IN = re.compile(r"(?!path:)([\w.]+):(\w+)(@.*)?")
"""A target that is a class of the user's: module and name."""
OF_A_DIFFERENCE = "a difference from the reference is shown by its replay"
"""Why a difference of digests or keys has no such file."""


def render(name: str, finding: Finding, body: Iterable[str] = (), **values: object) -> str:
    """A template of this folder about a finding, with lines for the body of its test."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["quoted"] = lambda text: (
        visible_line(text).replace("\\", "/").replace('"', "'")
    )
    text = (resources.files("cacheproof.differential.findings.standalone") / name).read_text()
    return environment.from_string(text).render(
        finding=finding,
        story=_story(finding),
        name=re.sub(r"\W+", "_", finding.contract).lower(),
        body=[_one_line(line) for line in body],
        **values,
    )


def _story(finding: Finding) -> str:
    known = finding.known_note and f" Known: {finding.known or 'yes'}, {finding.known_note}."
    return (
        f"{finding.sentence}. Found on {finding.target}, where this test fails. "
        f"The rule: {finding.source}.{known or ''}"
    )


def _one_line(line: str) -> str:
    """A line of the body, whatever is in the names that it shows."""
    return visible_line(" ".join(line.splitlines()))


def variables(requests: Iterable[str]) -> dict[str, str]:
    """A variable for each request: its name where that can be one."""
    return {
        request: request if _is_plain(request) else f"request_{number}"
        for number, request in enumerate(requests)
    }


def _is_plain(name: str) -> bool:
    """Whether a request's name can be the name of its variable."""
    return name.isascii() and name.isidentifier() and len(name) == 1
