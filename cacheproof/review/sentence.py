"""What a review of a change concludes."""

from collections.abc import Callable, Iterator, Sequence

from cacheproof.differential.search.weighing import ToldFault
from cacheproof.output.verdict_line import (
    VerdictLine,
    amount,
    briefly,
    by_code,
    counted,
    rules_told,
)
from cacheproof.review.verdict import Review


def line_of(review: Review) -> VerdictLine:
    """The verdict line."""
    step, command = _next(review)
    return VerdictLine(sentence_of(review), step, command)


def sentence_of(review: Review, quote: Callable[[str], str] = str) -> str:
    """The sentence; `quote` writes what is not ours, such as a target's name."""
    return f"{_head(review, quote)}: {'; '.join(_parts(review))}."


def _head(review: Review, quote: Callable[[str], str]) -> str:
    base, head = quote(review.base.name), quote(review.head.name)
    why = quote(briefly("".join(review.void_because[:1])))
    return by_code(
        review.exit_code,
        holds=f"{head} decides as {base} does, as far as was looked",
        unlisted=f"{head} is worse than {base}, since it breaks {_worse(review)}",
        interrupted=f"The review of {head} against {base} was interrupted",
        void=f"This review of {head} against {base} proves nothing, since {why}",
        from_model=f"{head} decides otherwise than {base}, and breaks nothing that it keeps",
    )


def _worse(review: Review) -> str:
    broken = [one.head.contract for one in review.told_brought if one.head in review.worse]
    return rules_told([*broken, *(one.contract for one in review.proofs.refuted)])


def _parts(review: Review) -> Iterator[str]:
    traces = len(review.ran.pairs)
    if not traces:
        yield "no trace was run on both"
    elif review.parted:
        ways = counted(len(review.groups), "way")
        yield f"decisions differ on {review.parted:,} of {counted(traces, 'trace')}, in {ways}"
    else:
        yield f"no decision differs on {counted(traces, 'trace')}"
    if review.ran.calls:
        yield f"{amount(review.ran.calls)} calls judged"
        yield f"{_faults(review.told_mended)} mended, {_faults(review.told_brought)} brought"
    if review.is_interrupted and review.worse:
        yield f"it breaks {_worse(review)}, which was kept before"


def _faults(told: Sequence[ToldFault]) -> str:
    """How many faults, with their other faces in brackets."""
    faces = sum(len(one.faces) for one in told)
    more = f" ({counted(faces, 'other face')})" if faces else ""
    return f"{counted(len(told), 'fault')}{more}" if told else "no fault"


def _next(review: Review) -> tuple[str, str]:
    why = "the page shows why, with the traces", ""
    both = f"{review.base.name} {review.head.name}"
    return by_code(
        review.exit_code,
        holds=("what was not looked at stands at the end of the page", ""),
        unlisted=why,
        interrupted=("run the command again for the whole", ""),
        void=why,
        from_model=("see each decision that differs", f"cacheproof diff {both}"),
    )
