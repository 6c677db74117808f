"""What proofs conclude, and how a rule that is not proved is told."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED, UNLISTED
from cacheproof.formats.result import rule_of
from cacheproof.output.verdict_line import VerdictLine, briefly, by_code, counted, names, rules_told
from cacheproof.spec.evidence import Evidence, Outcome

EVIDENCE_PAGE = "docs/evidence/evidence.md"
_MEANS = {
    Outcome.REFUTED: "does not hold",
    Outcome.UNKNOWN: "is not decided, since the solver gave up",
    Outcome.ALONE: "is proved, and no witness reaches as far",
    Outcome.DISAGREE: "is proved, and a witness saw otherwise",
    Outcome.VACUOUS: "is proved of calls that nothing shows can happen",
}
_HOLLOW = "holds, and was not seen to fail"


def line_of(
    targets: Sequence[str],
    code: int,
    rows: Sequence[Evidence],
    listed: Mapping[Evidence, KnownFault],
    unproved: int = 0,
) -> VerdictLine:
    """The verdict line of proofs. `listed` has the known fault of a row that is refuted; `unproved`
    is how many texts an interruption has left."""
    new = [row for row in rows if row.outcome is Outcome.REFUTED and row not in listed]
    parts = [*_parts(rows, listed)]
    if new and code != UNLISTED:
        parts.append(f"not kept and not known: {_rules(new)}")
    if unproved:
        parts.append(f"{counted(unproved, 'text')} {_was(unproved)} not proved")
    step, command = _next(targets, code, new, listed)
    return VerdictLine(f"{_head(targets, code, new, listed)}: {'; '.join(parts)}.", step, command)


def _head(
    targets: Sequence[str],
    code: int,
    new: Sequence[Evidence],
    listed: Mapping[Evidence, KnownFault],
) -> str:
    who, many = names(targets), len(targets) > 1
    text = f"The texts of {who}" if many else f"The text of {who}"
    show, keep = ("show", "keep") if many else ("shows", "keeps")
    nothing_new = f"{show} nothing new" if listed else f"{keep} every rule that was proved"
    return by_code(
        code,
        holds=f"{text} {nothing_new}",
        unlisted=f"{text} {show} a new fault, which breaks {_rules(new)}",
        interrupted=f"The proofs of {who} were interrupted",
        void=f"These proofs of {who} do not suffice",
    )


def _parts(rows: Sequence[Evidence], listed: Mapping[Evidence, KnownFault]) -> Iterator[str]:
    if not rows:
        yield "nothing was proved"
        return
    held = sum(row.outcome is Outcome.HOLDS and row.counts for row in rows)
    yield (
        f"{held:,} of {counted(len(rows), 'check')} {'holds' if held == 1 else 'hold'}, each of "
        "which refutes a text with a planted fault"
    )
    if broken := [listed[row].name for row in rows if row in listed and is_refuted(row)]:
        faults = list(dict.fromkeys(broken))
        verb = "does" if len(broken) == 1 else "do"
        word = "a known fault" if len(faults) == 1 else "known faults"
        yield f"{len(broken):,} {verb} not, for {word} ({names(faults)})"
    open_ = Counter(meaning(row) for row in rows if not is_refuted(row) and not _is_held(row))
    for words, count in open_.items():
        yield f"{count:,} {words}"


def is_refuted(row: Evidence) -> bool:
    """Whether the rule does not hold of the text."""
    return row.outcome is Outcome.REFUTED


def _is_held(row: Evidence) -> bool:
    return row.outcome is Outcome.HOLDS and row.counts


def meaning(row: Evidence) -> str:
    """The outcome of a row that does not hold, or was not seen to fail, in words."""
    return _MEANS.get(row.outcome, _HOLLOW)


def told(row: Evidence, fault: KnownFault | None) -> Iterator[str]:
    """The lines on a row that does not hold: in words first, by formula last."""
    rule = rule_of(row.contract)
    title = "" if rule.title == row.contract else f": {rule.title}"
    yield f"{row.contract} {meaning(row)} of {row.target}{title}"
    known = "not listed"
    if fault is not None:
        page = f", {fault.page}" if fault.page else ""
        known = f"known as {fault.name}{page}"
    about = f"{row.subject}, by {row.method}"
    yield f"  {rule.harm}; {known}; {about}" if is_refuted(row) else f"  {about}"
    if row.note:
        yield f"  {'shown by' if is_refuted(row) else 'note'}: {row.note}"


def _rules(rows: Sequence[Evidence]) -> str:
    return rules_told([row.contract for row in rows])


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def _next(
    targets: Sequence[str],
    code: int,
    new: Sequence[Evidence],
    listed: Mapping[Evidence, KnownFault],
) -> tuple[str, str]:
    if code == INTERRUPTED:
        return "run the command again, without --fresh: it goes on with what is left", ""
    if new:
        what = f"find a trace that shows {briefly(new[0].contract)}"
        return what, f"cacheproof fuzz --target {new[0].target} --seconds 60"
    if code != HOLDS:
        return (
            "the lines above say which rule is open and why; docs/explain/proofs.md what "
            "that means",
            "",
        )
    pages = dict.fromkeys(one.page for one in listed.values() if one.page)
    if pages:
        return f"read what is known: {names(list(pages))}", ""
    return (
        f"docs/explain/proofs.md says what a proof is worth, {EVIDENCE_PAGE} has each of them",
        "",
    )
