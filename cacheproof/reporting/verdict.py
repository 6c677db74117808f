"""What a report of a known fault concludes."""

from cacheproof.differential.search.verdict import UNLISTED, VOID
from cacheproof.output.verdict_line import VerdictLine, counted
from cacheproof.reporting.page import Reported
from cacheproof.reporting.showing import FaultShown
from cacheproof.reporting.subject import ReportSubject


def line_of(reported: Reported) -> VerdictLine:
    """The verdict line."""
    return VerdictLine(
        f"{reported.subject.fault.name}: {_proof(reported.subject, reported.shown)}; "
        f"{_of_review(reported)}."
    )


def _proof(subject: ReportSubject, showing: FaultShown) -> str:
    """What was seen by running, in a clause."""
    what = "its script" if showing.script else "its trace"
    verb, holds = ("fails", "passes") if showing.script else ("breaks", "breaks nothing of it")
    if not showing.runs:
        return "nothing was run, since nothing that a report can run shows it"
    first, *mended = showing.runs
    told = f"{what} {verb} on {first.target}"
    if mended:
        return f"{told} and {holds} on {mended[0].target}"
    return f"{told}; no mend is known there"


def _of_review(reported: Reported) -> str:
    review = reported.review
    if reported.patch is None:
        return "nothing was reviewed"
    if review is None:
        return f"the mend was not reviewed: {reported.review_command}"
    brought = dict.fromkeys(one.head.contract for one in review.told_brought)
    what = f"brings {', '.join(brought)}" if brought else "brings nothing"
    worse = ", and is worse" if review.exit_code == UNLISTED else ""
    void = ", but the review is void" if review.exit_code == VOID else ""
    traces = counted(len(review.ran.pairs), "trace")
    return f"decisions differ on {review.parted:,} of {traces}; the mend {what}{worse}{void}"
