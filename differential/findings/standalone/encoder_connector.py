"""A pytest file that shows what a connector does; not written yet for any."""

from cacheproof.differential.findings.finding import Finding


def standalone_test(finding: Finding) -> tuple[str | None, str]:
    """None, and why there is none."""
    return None, "engines are processes of their own: its replay shows it"
