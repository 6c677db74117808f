"""What an operator is told of an engine: why it died, which fault that is, and what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import shorten

from cacheproof.audit.listing import (
    REPORT_AT,
    THAT_RAN,
    Listing,
    akin,
    is_told_by_symptom,
    listed,
    of_answers,
    reads_otherwise,
    remedy_of,
)
from cacheproof.differential.audit.account import At, Failure, FoundBreak, FrontEndFailure
from cacheproof.differential.audit.auditor import Auditor
from cacheproof.differential.audit.ranking import RankedBreak, ranked
from cacheproof.differential.findings.leading import steps_before
from cacheproof.differential.findings.letters import letters_of
from cacheproof.differential.findings.short_names import ShortNames
from cacheproof.differential.judges.front_end import (
    CAME,
    EMPTIED,
    EVICTED,
    FAILED,
    ONE_TOO_LARGE,
    TOGETHER_TOO_LARGE,
    UNDER_WAY,
    UNDISTURBED,
    WITHDRAWN,
)
from cacheproof.differential.search.known import KnownFault
from cacheproof.output.verdict_line import counted

HEADLINE_MAX = 250
UNRECORDED = "not known: the record ends before the step in which it died"
WHY_REFUSED = {
    UNDER_WAY: "a message was overtaken that brought an item, by one that takes it for sent",
    WITHDRAWN: "an item was taken for sent, and its message never was: its request was refused, or "
    "its client had left",
    FAILED: "an item was taken for sent, and came with a request that failed",
    EMPTIED: "an item was taken for sent, and forgotten since: the engine core's half was reset "
    "alone, or before the message came",
    EVICTED: "an item was taken for sent, and evicted since: the two halves had parted before",
    UNDISTURBED: "an item was taken for sent and is not there, though no message was lost or late",
    CAME: "an item was called lacking that came with its data",
    ONE_TOO_LARGE: "an item is larger than the cache of processed media",
    TOGETHER_TOO_LARGE: "its items do not fit the cache of processed media, together or one alone",
}
"""Why a request was refused, by the kind of the break."""
Lines = list[tuple[str, str]]
"""What is said of a break: a label and words each."""


@dataclass(frozen=True)
class Answered:
    """An engine, and what is said of it everywhere: on screen, in JSON, in the formats of pipelines
    and on its page.

    Attributes:
        stem: what the engine is called. died: the exception after which it did not go on.
        broken: what it broke, in order of what to look at first.
        listed: the listed faults that do so, by contract and kind.
    """

    stem: str
    auditor: Auditor
    died: Failure | None
    broken: tuple[RankedBreak, ...]
    listed: Mapping[tuple[str, str], tuple[KnownFault, ...]]
    listing: Listing

    @classmethod
    def of(cls, stem: str, auditor: Auditor, listing: Listing) -> "Answered":
        """What is to be said of an engine, as far as it was judged."""
        broken = tuple(ranked(auditor))
        listed_as = {
            one.first.key: tuple(listed(listing.faults, auditor, one.first)) for one in broken
        }
        return cls(stem, auditor, auditor.fatal, broken, listed_as, listing)

    @property
    def engine(self) -> str:
        """The name of what was recorded."""
        opened = self.auditor.opened
        return "an engine" if opened is None else f"vllm {opened.vllm}"

    @property
    def cause(self) -> RankedBreak | None:
        """The break in the step in which the engine died; None without one."""
        return next((one for one in self.broken if one.is_fatal), None)

    @property
    def does_harm(self) -> bool:
        """Whether it broke a contract of safety or liveness."""
        return any(one.harm != "efficiency" for one in self.broken)

    def faults(self, one: RankedBreak) -> tuple[KnownFault, ...]:
        """The listed faults that break a contract so."""
        return self.listed[one.first.key]

    def akin(self, one: RankedBreak) -> str:
        """Why a break may be new though a listed fault breaks the same; empty where none does."""
        return akin(self.listing.faults, self.auditor, one.first)

    @property
    def by_symptom(self) -> bool:
        """Whether faults are told by what they break, without a cause."""
        return is_told_by_symptom(self.auditor)

    @property
    def otherwise(self) -> str:
        """What of the engine's vLLM reads otherwise than its release, as a clause."""
        return reads_otherwise(self.auditor)

    def death(self) -> Lines:
        """When the engine died, and of which exception."""
        if self.died is None:
            return self._end_of_front_end()
        at = self.auditor.when(self.died.step)
        lines = [
            ("died", f"in {moment(at)}, {self.engine}"),
            ("exception", self.died.words),
            ("raised in", ", ".join(filter(None, (self.died.operation, self.died.place)))),
        ]
        if self.auditor.lacks_fatal_step:
            lines.append(("broken", UNRECORDED))
        elif self.cause is None:
            lines.append(("broken", "no contract that is judged was broken in that step"))
        return lines

    def _end_of_front_end(self) -> Lines:
        """How the front end has ended, and whether that is known."""
        ended = self.front_end_ended
        if ended is None:
            return []
        why = ", ".join(dict.fromkeys(ended.ended))
        lines = [
            ("ended", f"the front end, {clock(ended.time)}, {self.engine}"),
            ("exception", ended.failure.words),
            ("raised in", ", ".join(filter(None, (ended.failure.operation, ended.failure.place)))),
        ]
        if why:
            lines.append(("told that", f"the engine had ended a request without a result ({why})"))
        for fault in self.front_end_faults:
            lines += self.listing.told(fault, "what the engine had told it")
        if not self.front_end_faults:
            lines.append(("known", "no: no listed fault does so"))
        return lines

    @property
    def front_end_ended(self) -> FrontEndFailure | None:
        """How the front end has ended, where the engine has not."""
        return self.auditor.front_end_failure if self.died is None else None

    @property
    def front_end_faults(self) -> list[KnownFault]:
        """The listed faults of which it has."""
        return of_answers(self.listing.faults, self.auditor)

    def answer(self, one: RankedBreak, where: str) -> Lines:
        """What a break is, whether it is known, and what to do; `where` is the record."""
        found, times = one.shown, f", {one.times:,} times" if one.times > 1 else ""
        rule = found.violation.contract
        when = "in that step" if one.is_fatal else when_of(found)
        earlier = one.is_fatal and one.first.at.step < found.at.step
        since = f", first in step {one.first.at.step:,}" if earlier else ""
        refused = self.refused(one)
        broken = f"{name_of(found)}, {rule.harm}, {when}{times}{since}: {rule.title}"
        said = [("refused", refused)] if refused else []
        return [*said, *self.advice(one, where), ("broken", broken)]

    def refused(self, one: RankedBreak) -> str:
        """What became of requests whose processed media a break is about; empty for any other."""
        if not one.first.is_of_media or self.auditor.media.is_shared:
            return ""
        why = WHY_REFUSED[one.first.violation.kind]
        return f"{counted(one.times, 'time')}: {why}"

    def formula(self, one: RankedBreak) -> Lines:
        """What of the rule was false, with the values of that moment, and what its letters are."""
        violation = one.shown.violation
        letters = [
            f"{letter}: {meaning}"
            for letter, meaning in letters_of(violation.contract, violation.why)
        ]
        return [
            ("formula", violation.why),
            *([("letters", "; ".join(letters))] if letters else []),
        ]

    def advice(self, one: RankedBreak, where: str) -> Lines:
        """Whether a break is known, and what to do about it."""
        return list(self.listing.advice(self.faults(one), self.auditor, one.shown, where))

    def next_step(self, where: str) -> tuple[str, str]:
        """What to do next, the operator before the developer, and the command that does it; empty
        where there is nothing to do."""
        if self.died is not None and self.auditor.lacks_fatal_step:
            return "record it again; docs/how-to/recording.md says when a record ends early", ""
        if self.died is not None and self.cause is None:
            return f"look for the exception in {REPORT_AT}", ""
        if self.front_end_ended is not None:
            remedy = remedy_of(self.front_end_faults, self.auditor.release)
            return remedy or f"look for the exception in {REPORT_AT}", ""
        if not self.does_harm:
            return "", ""
        found, faults = self.broken[0].shown, self.faults(self.broken[0])
        remedy = remedy_of(faults, self.auditor.release)
        if where == "-" or not found.has_trace:
            return remedy, ""
        command = f"cacheproof minimise {where} --contract {found.key[0]}"
        if self.otherwise:
            step = f"make a small trace of it on {THAT_RAN}, whose checkout is in DIR"
            return step, f"{command} --target path:DIR"
        step = "make a small trace of it" + ("" if faults else ", and report it")
        if remedy:
            step = f"{remedy}. A developer makes a small trace of it with"
        return step, command

    @property
    def subject(self) -> RankedBreak | None:
        """What is to be looked at first; nothing where the engine died of no break."""
        first = self.broken[0] if self.broken else None
        return self.cause if self.died is not None else first


def headline(one: Answered) -> str:
    """What became of an engine, in a sentence without its full stop."""
    told = _headline(one).rstrip(".")
    return shorten(ShortNames([told]).say(told), HEADLINE_MAX, placeholder=" ...")


def _headline(one: Answered) -> str:
    first = one.broken[0] if one.broken else None
    if one.died is not None:
        at = one.auditor.when(one.died.step)
        died = f"{one.engine} died in step {at.step:,}, {clock(at.time)}"
        if one.auditor.lacks_fatal_step:
            died = f"{one.engine} died after step {at.step:,}, {clock(at.time)}"
            return f"{died}, and its record ends before that: {one.died.words}"
        if one.cause is None:
            return f"{died}, of what breaks no contract: {one.died.words}"
        if not (faults := one.faults(one.cause)):
            new = one.akin(one.cause) or "which no listed fault does so"
            return f"{died}, where it broke {one.cause.first.key[0]}, {new}: {one.died.words}"
        return f"{died}, of a known fault, {names_of(faults)}: {one.died.words}"
    if (ended := one.front_end_ended) is not None:
        known = names_of(one.front_end_faults)
        of = f"of a known fault, {known}" if known else "of what no listed fault does"
        return f"{one.engine}'s front end ended, {clock(ended.time)}, {of}: {ended.failure.words}"
    account, media = one.auditor.account, one.auditor.media
    judged = f"{account.judged_steps:,} of {account.steps:,} steps were judged"
    if account.gap_count or account.lost:
        judged += ", and something is missing"
    if first is None or first.harm == "efficiency":
        return f"{one.engine} broke no contract of safety or liveness: {judged}"
    at, faults = first.shown.at, one.faults(first)
    known = f"the known fault {names_of(faults)}" if faults else one.akin(first)
    known = known or "which no listed fault does so"
    if one.refused(one.broken[0]):
        requests, why = counted(media.received, "request"), WHY_REFUSED[first.shown.violation.kind]
        return (
            f"{one.engine} refused {media.failed:,} of {requests} with media, the first "
            f"{clock(at.time)}: {why}; {known}; {judged}"
        )
    return (
        f"{one.engine} broke {first.first.key[0]} in step {at.step:,}, {clock(at.time)}, {known}: "
        f"{judged}"
    )


def names_of(faults: Sequence[KnownFault]) -> str:
    """Which fault it is, or which of them."""
    return " or ".join(fault.name for fault in faults)


def when_of(found: FoundBreak) -> str:
    """When a contract was broken, as an adverb: processed media have no steps."""
    return clock(found.at.time) if found.is_of_media else f"in {moment(found.at)}"


def led_to(found: FoundBreak) -> list[str]:
    """The last of what led to a break, a line each."""
    return list(found.led) or steps_before(found.events, found.violation)


def moment(at: At) -> str:
    """A moment in words: step, record and time."""
    return f"step {at.step:,} (record {at.record:,}, {clock(at.time)})"


def clock(seconds: float) -> str:
    """A time, from seconds since the epoch."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OSError, OverflowError, ValueError):
        return "no time"


def name_of(found: FoundBreak) -> str:
    """The contract that is broken, and how where that is told."""
    contract, kind = found.key
    return f"{contract} ({kind})" if kind else contract
