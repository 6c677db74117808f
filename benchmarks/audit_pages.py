"""docs/how-to/audit.md, docs/evidence/fault-causes.md and the table in faults/README.md, from the
list of known faults."""

from pathlib import Path

from cacheproof.assessing import page
from cacheproof.differential.search.fault_folders import load

ROOT = Path(__file__).parent.parent
AUDIT = ROOT / "docs" / "how-to" / "audit.md"
CAUSES = ROOT / "docs" / "evidence" / "fault-causes.md"
FINDINGS = ROOT / "faults" / "README.md"


def with_table(text: str, table: list[str]) -> str:
    """A page with another table of faults in the place of its own."""
    lines = text.splitlines()
    rows = [number for number, line in enumerate(lines) if line.startswith("|")]
    return "\n".join([*lines[: rows[0]], *table, *lines[rows[-1] + 1 :]]) + "\n"


def main() -> None:
    faults = load()
    AUDIT.write_text(page.audit(faults))
    CAUSES.write_text(page.causes(faults))
    FINDINGS.write_text(with_table(FINDINGS.read_text(), page.findings(faults)))


if __name__ == "__main__":
    main()
