"""What a review of a change concludes."""

from collections.abc import Callable, Iterator, Sequence

from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED, UNLISTED, VOID
from cacheproof.differential.search.weighing import ToldFault
from cacheproof.output.verdict_line import VerdictLine, amount, briefly, counted, names, rule_told
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
    match review.exit_code:
        case code if code == INTERRUPTED:
            return f"The review of {head} against {base} was interrupted"
        case code if code == UNLISTED:
            return f"{head} is worse than {base}, since it breaks {_worse(review)}"
        case code if code == VOID:
            why = quote(briefly(review.void_because[0]))
            return f"This review of {head} against {base} proves nothing, since {why}"
        case code if code == HOLDS:
            return f"{head} decides as {base} does, as far as was looked"
        case _:
            return f"{head} decides otherwise than {base}, and breaks nothing that it keeps"


def _worse(review: Review) -> str:
    broken = [one.head.contract for one in review.told_brought if one.head in review.worse]
    rules = list(dict.fromkeys([*broken, *(one.contract for one in review.proofs.refuted)]))
    more = [counted(len(rules) - 2, "more rule")] if rules[2:] else []
    return names([*map(rule_told, rules[:2]), *more])


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
    base, head = review.base.name, review.head.name
    match review.exit_code:
        case code if code in (UNLISTED, VOID):
            return "the page shows why, with the traces", ""
        case code if code == INTERRUPTED:
            return "run the command again for the whole", ""
        case code if code == HOLDS:
            return "what was not looked at stands at the end of the page", ""
        case _:
            return "see each decision that differs", f"cacheproof diff {base} {head}"
