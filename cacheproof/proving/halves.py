"""What the runs of both halves say of PM-5, and of PM-2 where nothing was lost."""

from cacheproof.differential.targets.host.managers.halves import Found
from cacheproof.spec.evidence import Outcome


def outcome_of(found: Found) -> tuple[Outcome, str]:
    """What came of all scripts, and why, in one line; or ""."""
    if found.parted:
        return Outcome.REFUTED, found.parted
    if found.unknown:
        return Outcome.UNKNOWN, found.unknown
    seen = {
        "is asked": found.asked,
        "is sent": found.sent,
        "is sent without data": found.alone,
        "is kept": found.kept,
    }
    if missing := [what for what, count in seen.items() if not count]:
        return Outcome.VACUOUS, f"nothing {missing[0]}"
    if found.uneven:
        return Outcome.UNKNOWN, f"not item by item: {found.uneven}"
    return Outcome.HOLDS, ""
