"""The command report: what one would post upstream about a listed fault, proved by running."""

from dataclasses import asdict
from pathlib import Path

from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED, UNLISTED, VOID
from cacheproof.listed.explaining import what_happens
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.reporting.page import Reported, markdown
from cacheproof.reporting.showing import shown
from cacheproof.reporting.subject import subject_called
from cacheproof.reporting.verdict import line_of
from cacheproof.review.reviewing import reviewed
from cacheproof.review.sentence import sentence_of
from cacheproof.review.verdict import Review
from cacheproof.spec.registry import by_id
from cacheproof.work.plan import seed_range
from cacheproof.work.workplace import Workplace


def report(
    output: CommandOutput,
    name: str,
    release: str | None,
    *,
    reviews: bool,
    seeds: str,
    findings: Path,
    place: Workplace,
) -> int:
    """Print what one would post upstream about a listed fault. Returns the exit code: 0 where its
    script fails on the release, and passes with the mend where there is one; that of the review
    where the mend is worse than the fault, or the review void.

    Raises:
        InputError: no listed fault has that name, or that release has not the fault.
        Unproved: the script does not fail, or fails with the mend as well.
    """
    seed_range(seeds)
    subject, known = subject_called(name, release), load()
    showing = shown(output, subject, known, findings)
    patch = review = None
    if subject.mended is not None:
        patch = subject.patch(output.say)
        if reviews:
            review, _ = reviewed(
                output, subject.target, subject.mended, seeds=seeds, known=known, place=place
            )
    reported = Reported(subject, showing, patch, review)
    output.line(markdown(reported))
    return output.tell(Conclusion(exit_code_of(review), line_of(reported), _json(reported)))


def exit_code_of(review: Review | None) -> int:
    code = HOLDS if review is None else review.exit_code
    return code if code in (UNLISTED, VOID, INTERRUPTED) else HOLDS


def _json(reported: Reported) -> dict[str, object]:
    subject, showing, patch = reported.subject, reported.shown, reported.patch
    fault, finding = subject.fault, showing.finding
    return {
        "fault": fault.name,
        "title": fault.title,
        "target": subject.target,
        "release": subject.release,
        "is_private": reported.is_private,
        "seen": fault.seen,
        "mended_in": fault.mended_in,
        "script": reported.script or None,
        "why_no_script": showing.why_none or None,
        "command": showing.command or None,
        "source": showing.source or None,
        "runs": [asdict(one) for one in reported.runs],
        "contract": None if finding is None else finding.contract,
        "expected": None if finding is None else by_id(finding.contract).title,
        "why": what_happens(fault),
        "needs": fault.needs,
        "avoid": fault.avoid,
        "places": [] if patch is None else [asdict(one) for one in patch.places],
        "patch": None if patch is None else patch.text,
        "review": None if reported.review is None else _review_json(reported.review),
        "review_command": None if patch is None else reported.review_command,
        "threads": fault.upstream,
        "exit_code": exit_code_of(reported.review),
    }


def _review_json(review: Review) -> dict[str, object]:
    """What the page says of it, without the traces, which a review of its own has."""
    return {
        "sentence": sentence_of(review),
        "traces": len(review.ran.pairs),
        "parted": review.parted,
        "mended": [one.contract for one in review.mended],
        "brought": [one.contract for one in review.brought],
        "void_because": review.void_because,
        "not_looked_at": review.skipped,
        "exit_code": review.exit_code,
    }
