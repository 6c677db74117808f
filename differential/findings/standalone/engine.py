"""Why no finding of an engine has a pytest file of its own."""

from cacheproof.differential.findings.finding import Finding


def standalone_test(finding: Finding) -> tuple[str | None, str]:
    """None, and why."""
    return None, "an engine is made of more than a script can hold"
