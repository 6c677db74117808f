"""Standalone tests as the files that a user would run."""

from pathlib import Path

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.standalone.writing import standalone_test


def written(finding: Finding | None, path: Path) -> Path:
    """The path, with the standalone test of a finding that has one."""
    assert finding is not None
    source = standalone_test(finding)
    assert source is not None
    assert "cacheproof" not in source
    assert all(len(line) <= 100 for line in source.splitlines())
    path.write_text(source)
    return path
