"""From a review's verdict to the record that formats are written from."""

from collections.abc import Iterator

from cacheproof.differential.findings.shrinking.edits import shape
from cacheproof.differential.search.weighing import BreakTally
from cacheproof.differential.targets.base import Target
from cacheproof.differential.texts import places
from cacheproof.differential.traces.wording import program
from cacheproof.formats.result import Case, Excuse, Problem, Result, Suite, rule_of
from cacheproof.review.verdict import Review
from cacheproof.search.result import HARMLESS, way_of


def result_of(review: Review, head: Target) -> Result:
    """What a review amounts to, as results of head: a case for each contract that either side
    broke. What head brought is a problem; what it mended, and what both have, is none of its."""
    scope = f"{len(review.ran.pairs):,} traces"
    contracts = dict.fromkeys(sorted(one.contract for one in review.tallies))
    cases = tuple(
        Case(rule_of(contract), scope, tuple(_problems(review, contract, head)))
        for contract in contracts
    )
    refuted = tuple(
        Case(
            rule_of(one.contract),
            f"the text of {one.subject}",
            (
                Problem(
                    rule_of(one.contract).harm,
                    f"{one.contract} was proved of {review.base.name}"
                    f" and is refuted of {review.head.name}",
                ),
            ),
        )
        for one in review.proofs.refuted
    )
    suites = (Suite("review", cases), *((Suite("proofs", refuted),) if refuted else ()))
    return Result(
        head.name,
        suites,
        not review.head.is_release,
        tuple(review.void_because),
        is_interrupted=review.is_interrupted,
    )


def _problems(review: Review, contract: str, head: Target) -> Iterator[Problem]:
    for one in review.brought:
        if one.contract == contract:
            yield _problem(review, one, head)


def _problem(review: Review, one: BreakTally, head: Target) -> Problem:
    kind = f", {one.kind}" if one.kind else ""
    sentence = (
        f"{review.head.name} breaks {one.contract}{kind} on {one.head_alone:,} traces on which "
        f"{review.base.name} keeps it"
    )
    excuse = Excuse(HARMLESS[one.harm]) if one.harm in HARMLESS else None
    if one.small is None:
        return Problem(one.harm, sentence, "", one.kind, excuse=excuse)
    small = one.small
    way = way_of(one.contract, small.trace, small.event, "")
    place = places.find(head.tree, way[-1]) if head.tree is not None and way else None
    detail = "\n".join([small.sentence, *program(small.trace)])
    return Problem(one.harm, sentence, detail, one.kind, shape(small.trace), way, place, excuse)
