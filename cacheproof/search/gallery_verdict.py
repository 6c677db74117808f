"""What the gallery of faulty variants concludes."""

from collections.abc import Sequence

from cacheproof.output.verdict_line import VerdictLine, counted, names


def of_gallery(
    variants: int,
    survivors: Sequence[str],
    false_alarms: Sequence[str],
    libraries: Sequence[str],
    component: str | None = None,
) -> VerdictLine:
    """Whether each faulty variant, of all or of a `component`, is caught, and nothing else is;
    `libraries` are missing, and their variants were not run."""
    out = f"; those that want {names(libraries)} were not run" if libraries else ""
    of = "" if component is None else f" of {component}"
    several = f"{counted(variants, 'faulty variant')}{of} are caught"
    if false_alarms:
        return VerdictLine(
            f"The gallery proves nothing, since {names(false_alarms)} also breaks on the reference "
            f"without a fault{out}.",
            "docs/contribute/false-alarm.md says how a false alarm is mended",
        )
    if survivors:
        return VerdictLine(
            f"{len(survivors):,} of {several} by no rule "
            f"({names(survivors)}), so that what holds proves less than it says{out}.",
            "docs/contribute/add-a-contract.md says how a rule is added",
        )
    return VerdictLine(
        f"All {several}, each by one rule at least{out}.",
        "docs/evidence/kill-matrix.md says which rule catches which",
    )
