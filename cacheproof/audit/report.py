"""What an audit says on screen: first why an engine died, then what else it broke, and an
account."""

import textwrap
from collections.abc import Iterator, Sequence

from cacheproof.audit.answer import Answered, Lines, clock, headline, led_to, moment, names_of
from cacheproof.audit.formats import json_of, result_of
from cacheproof.audit.listing import Listing
from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.audit.ranking import RankedBreak
from cacheproof.differential.findings.short_names import ShortNames
from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED, UNLISTED, VOID
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.verdict_line import VerdictLine

LABEL = 13
"""Characters of a label, with the space after it."""


class AuditReport:
    """Prints what an audit finds: of a live engine what breaks as it breaks, and in the end the
    whole in order. `where` is the record."""

    def __init__(self, output: CommandOutput, listing: Listing, where: str) -> None:
        self._output = output
        self._listing = listing
        self._where = where
        self._shown: set[tuple[str, str, str]] = set()
        self._is_interrupted = False

    def show_new(self, audit_of: Audit) -> bool:
        """Print what was found since the last time; whether anything that counts was."""
        counts = False
        for one in self.answered(audit_of):
            for broken in one.broken:
                if (key := (one.stem, *broken.first.key)) not in self._shown:
                    self._shown.add(key)
                    self._show(one, broken, one.answer(broken, self._where))
                    counts = counts or broken.harm != "efficiency"
        return counts

    def end(self, audit_of: Audit, *, is_interrupted: bool = False) -> int:
        """Print all that was found, and the account; of an audit that was interrupted, as far as
        it came. Returns the exit code."""
        self._is_interrupted = is_interrupted
        answered = self.answered(audit_of)
        for one in answered:
            self._show_all(one)
        codes = [self._account(one) for one in answered]
        for name in audit_of.unbegun:
            self._output.line(f"{name}: the head of the record is missing: nothing was judged")
            codes.append(VOID)
        for name in audit_of.without_scheduler:
            self._output.line(f"{name}: a worker's record without its scheduler's: not judged")
        code = UNLISTED if UNLISTED in codes else max(codes, default=VOID)
        code = INTERRUPTED if is_interrupted else code
        engines = [json_of(one, self._where) for one in answered]
        results = [result_of(one, is_interrupted=is_interrupted) for one in answered]
        facts = {"engines": engines, "exit_code": code}
        return self._output.tell(Conclusion(code, self._line(answered), facts, results))

    def answered(self, audit_of: Audit) -> list[Answered]:
        """What is to be said of each engine: those that died first, then those that did harm."""
        answered = [
            Answered.of(stem, auditor, self._listing) for stem, auditor in audit_of.auditors.items()
        ]
        return sorted(answered, key=lambda one: (one.died is None, not one.does_harm))

    def _line(self, answered: Sequence[Answered]) -> VerdictLine:
        """The sentence with which the report begins and ends, and what to do next."""
        if not answered:
            return VerdictLine(
                f"Nothing was judged of {self._where}: none of its records is there from its "
                "beginning.",
                "record the engine anew, from its start; docs/how-to/recording.md says how",
            )
        first = answered[0]
        more = f" ({len(answered) - 1} more below)" if len(answered) > 1 else ""
        step, command = first.next_step(self._where)
        said = f"{headline(first)}{more}."
        if self._is_interrupted:
            said = f"The audit of {self._where} was interrupted, and until then {said}"
            step, command = (step, command) if first.does_harm else ("run the command again", "")
        return VerdictLine(said, step, command)

    def _show_all(self, one: Answered) -> None:
        """Why it died, and all else that it broke and that was not shown yet."""
        if one.cause is None and (death := one.death()):
            self._output.line(one.stem)
            self._fields(death, ShortNames([words for _, words in death]))
        for broken in one.broken:
            is_shown = (one.stem, *broken.first.key) in self._shown
            if broken.is_fatal:
                self._show(one, broken, [*one.death(), *one.answer(broken, self._where)])
            elif broken.harm == "efficiency":
                self._output.line(_briefly(one, broken))
            elif not is_shown:
                self._show(one, broken, one.answer(broken, self._where))

    def _show(self, one: Answered, broken: RankedBreak, lines: Lines) -> None:
        """A break: what is said of it, what led to it, and the command that makes it small."""
        before = led_to(broken.shown)
        formula = one.formula(broken)
        names = ShortNames([*(words for _, words in (*lines, *formula)), *before])
        self._output.line(one.stem)
        self._fields(lines, names)
        self._output.line("  what led to it")
        for words in before:
            self._output.line(f"    {names.say(words)}")
        self._fields(formula, names)
        is_next = broken.first.key == one.broken[0].first.key  # the report ends with its command
        if self._where != "-" and broken.shown.has_trace and not is_next:
            self._output.line("  make it small")
            rule, _ = broken.first.key
            self._output.command(f"    cacheproof minimise {self._where} --contract {rule}")

    def _fields(self, lines: Lines, names: ShortNames) -> None:
        report = self._output.report
        width = max(40, report.width - 1) if report.is_terminal else 0
        for label, words in lines:
            for line in _wrapped(f"  {label:{LABEL}}", names.say(words), width):
                self._output.line(line)

    def _account(self, one: Answered) -> int:
        line, account, auditor = self._output.line, one.auditor.account, one.auditor
        opened = auditor.opened
        if opened is None or account.steps == account.judged_steps == account.records == 0:
            line(f"{one.stem}: nothing is recorded yet: nothing was judged")
            return VOID
        ends = "; the record has no end"
        if self._is_interrupted:
            ends = "; what comes after that was not read"
        if account.closed or one.died:
            ends = ""
        line(
            f"{one.stem}: vllm {opened.vllm}, {opened.manager_class.rpartition(':')[2]}, from "
            f"{clock(account.started)} on for {account.seconds:,.0f} s{ends}"
        )
        if one.otherwise:
            line(f"  {one.otherwise}")
        line(
            f"  {account.judged_steps:,} of {account.steps:,} steps judged, {account.requests:,} "
            f"requests; a worker's store compared after {account.stores:,} steps"
        )
        if auditor.kv.calls:
            line(f"  {auditor.kv.judged:,} of {auditor.kv.calls:,} calls of its KV cache judged")
        if media := auditor.media.received:
            refused = auditor.media.failed
            line(
                f"  {media:,} requests followed from the front end's media on, {refused:,} refused"
            )
        for what, count in account.raised.items():
            line(f"  the engine raised in {what}, {count:,} time{'s' * (count != 1)}")
        for why in account.gaps:
            line(f"  missing: {why}")
        if account.gap_count > len(account.gaps):
            line(f"  missing: {account.gap_count - len(account.gaps):,} more gaps")
        if account.lost:
            line(f"  missing: {account.lost:,} records that the engine could not write")
        for what in sorted(account.unjudged):
            line(f"  not followed: {what}")
        return _code(one)


def _code(one: Answered) -> int:
    account, kv = one.auditor.account, one.auditor.kv
    if account.raised or one.does_harm:
        return UNLISTED
    is_whole = account.judged_steps == account.steps and not account.gap_count
    is_whole = is_whole and kv.judged == kv.calls
    return HOLDS if is_whole and not account.lost else VOID


def _briefly(one: Answered, broken: RankedBreak) -> str:
    rule = broken.first.violation.contract
    known = f"listed as {names_of(faults)}" if (faults := one.faults(broken)) else "not listed"
    times = f"{broken.times:,} time{'s' * (broken.times != 1)}"
    return (
        f"{one.stem}: {rule.id}, which costs time alone, {times}, first in "
        f"{moment(broken.first.at)}: {rule.title} ({known})"
    )


def _wrapped(label: str, words: str, width: int) -> Iterator[str]:
    """Words beside a label, in lines of that width; in one where it is 0."""
    if not width:
        yield f"{label}{words}"
        return
    yield from textwrap.wrap(
        words, width, initial_indent=label, subsequent_indent=" " * len(label)
    ) or [label]
