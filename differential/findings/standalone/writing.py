"""A pytest file that needs only vLLM, for each depth that a script can hold.

Whoever reads such a file needs to know nothing of this project.
"""

from cacheproof.differential.depths import DEPTHS, part
from cacheproof.differential.findings.finding import Finding


def standalone_test(finding: Finding) -> str | None:
    """The file's text; None where `why_none` says why."""
    return _written(finding)[0]


def why_none(finding: Finding) -> str:
    """Why a finding has no standalone test; empty when it has one."""
    text, reason = _written(finding)
    return reason if text is None else ""


def _written(finding: Finding) -> tuple[str | None, str]:
    written: tuple[str | None, str]
    written = part(DEPTHS[finding.trace.depth].standalone).standalone_test(finding)
    return written
