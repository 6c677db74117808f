"""No test of its own yet."""

from cacheproof.differential.findings.finding import Finding


def standalone_test(finding: Finding) -> tuple[str | None, str]:
    """The file's text, or None and why there is none."""
    return None, "front ends that name items are driven by the product alone: its replay shows it"
