"""A report as Markdown, to be read by somebody who knows vLLM and nothing of this project."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cacheproof import __version__
from cacheproof.differential.search.weighing import ToldFault
from cacheproof.differential.texts import mends
from cacheproof.listed.explaining import what_happens
from cacheproof.listed.facts import lifetime
from cacheproof.reporting.disclosure import shows_contents, wants_disclosure
from cacheproof.reporting.patch import Patch
from cacheproof.reporting.showing import FaultShown, Seen, script_name
from cacheproof.reporting.subject import ReportSubject
from cacheproof.review.page import code, summary
from cacheproof.review.verdict import Review
from cacheproof.spec.registry import by_id

DISCLOSURE = (
    "**For private disclosure.** This fault crosses a border between users, models or folders, and "
    "no release mends it. Send it as vLLM's "
    "[SECURITY.md](https://github.com/vllm-project/vllm/blob/main/SECURITY.md) says, and post it "
    "nowhere."
)
NO_RECIPE = "What it was shown by is made from seeds when it is run, and is not part of this report"


@dataclass(frozen=True)
class Reported:
    """All that a report says. `patch` and `review` are None without a mend, the review also where
    nobody asked for it."""

    subject: ReportSubject
    shown: FaultShown
    patch: Patch | None
    review: Review | None

    @property
    def is_private(self) -> bool:
        """Whether it is for private disclosure."""
        return wants_disclosure(self.subject.fault)

    @property
    def has_recipe(self) -> bool:
        """Whether what shows it is what a client would send, or is not kept for what it holds: that
        is told to nobody."""
        finding = self.shown.finding
        if not self.is_private or finding is None:
            return False
        return self.subject.trace is None or shows_contents(finding.trace)

    @property
    def script(self) -> str:
        """The script, unless that would be a recipe."""
        return "" if self.has_recipe else self.shown.script

    @property
    def runs(self) -> list[Seen]:
        """What was seen, without the words where these would be a recipe."""
        finding = self.shown.finding
        if finding is None or not self.has_recipe:
            return list(self.shown.runs)
        return [
            replace(one, broke=finding.contract if one.broke else "", line="", refuses="")
            for one in self.shown.runs
        ]

    @property
    def review_command(self) -> str:
        """What says of the mend all that a review does."""
        return f"cacheproof review --base {self.subject.target} --head {self.subject.mended}"


def markdown(reported: Reported) -> str:
    """The page."""
    sections = (
        _head(reported),
        _shown(reported),
        _expected(reported),
        _why(reported),
        _reach(reported),
        _mend(reported),
        _review(reported),
        _threads(reported),
        _made_by(reported),
    )
    return "\n\n".join("\n".join(section) for section in map(list, sections) if section)


def _head(reported: Reported) -> Iterator[str]:
    subject = reported.subject
    fault = subject.fault
    if reported.is_private:
        yield f"> {DISCLOSURE}"
        yield ""
    yield f"# {fault.title}"
    yield ""
    yield f"- Reported on: {_product(subject)}"
    yield f"- Releases: {lifetime(fault)}"
    if fault.runner:
        yield f"- Model runner: {fault.runner}"
    yield f"- Harm: {fault.harm}"


def _product(subject: ReportSubject) -> str:
    kind, _, version = subject.target.partition("@")
    return f"{'LMCache' if kind == 'lmcache' else 'vLLM'} {version}"


def _shown(reported: Reported) -> Iterator[str]:
    subject, shown = reported.subject, reported.shown
    yield "## How it shows"
    yield ""
    if reported.has_recipe:
        yield f"{NO_RECIPE}. With cacheproof:"
    elif reported.script:
        yield (
            f"`{script_name(subject)}` below needs pytest and {_product(subject)} alone: no "
            f"weights, no GPU. It was made from {shown.source}. Run it with "
            f"`pytest {script_name(subject)}`."
        )
    elif shown.command:
        yield f"No script that needs vLLM alone shows it: {shown.why_none}. With cacheproof:"
    else:
        yield f"No script shows it: {shown.why_none}. See the page of the fault."
    if not reported.script and shown.command:
        yield ""
        yield from fenced(shown.command, "")
    yield ""
    yield from _seen(reported)
    if not shown.runs:
        yield "Nothing was run for this report: neither the fault nor what a change does was seen."
    elif len(shown.runs) == 1:
        yield "- With the fault mended: not run, since there is no mend for this release."
    if reported.script:
        yield ""
        yield "<details>"
        yield f"<summary>{script_name(subject)}</summary>"
        yield ""
        yield from fenced(reported.script, "python")
        yield ""
        yield "</details>"


def _seen(reported: Reported) -> Iterator[str]:
    """The outcome on the release, and with the mend."""
    product = _product(reported.subject)
    verb, holds = (
        ("fails", "passes") if reported.shown.script else ("breaks", "breaks nothing of it")
    )
    for name, seen in zip(
        (product, f"{product} with the change below"), reported.runs, strict=False
    ):
        at = f", at {code(seen.line)}" if seen.line else ""
        told = f"{verb}: {code(seen.broke)}{at}" if seen.broke else holds
        told = f"refuses the request: {code(seen.refuses)}" if seen.refuses else told
        yield f"- {name}: {told} ({seen.seconds:.0f} s)"


def _expected(reported: Reported) -> Iterator[str]:
    shown, fault = reported.shown, reported.subject.fault
    finding = shown.finding
    if finding is None and not fault.contracts:
        return
    yield "## Expected, and seen"
    yield ""
    rule = by_id(fault.contracts[0] if finding is None else finding.contract)
    yield f"Expected: {_rule(rule.id)}."
    yield ""
    if finding is not None:
        told = "" if reported.has_recipe else f": {code(finding.why)}"
        yield f"Seen: after event {finding.event + 1} that does not hold{told}."
    if shown.others:
        yield ""
        yield "The same trace breaks as well:"
        yield ""
        yield from (f"- {_rule(one)}" for one in shown.others)


def _rule(id: str) -> str:
    rule = by_id(id)
    return f"{rule.title} ({id}, from {rule.source})"


def _why(reported: Reported) -> Iterator[str]:
    yield "## Why"
    yield ""
    yield "\n\n".join(what_happens(reported.subject.fault))
    if reported.patch is None:
        return
    yield ""
    yield "Where the change below goes in, by the lines of the release:"
    yield ""
    for place in reported.patch.places:
        yield f"- `{place.path}:{place.line}`, in `{place.function}`"


def _reach(reported: Reported) -> Iterator[str]:
    fault = reported.subject.fault
    yield "## Who meets it"
    yield ""
    yield f"- Needs: {fault.needs or 'nothing beside the defaults is known to be needed'}"
    yield f"- Avoid by: {fault.avoid or 'nothing is known that avoids it'}"


def _mend(reported: Reported) -> Iterator[str]:
    yield "## A change that mends it"
    yield ""
    if reported.patch is None:
        yield f"None is known here for {_product(reported.subject)}."
        return
    yield f"With it, {mends.mends()[reported.subject.fault.name].does}."
    yield f"For `git apply` or `patch -p1` in {_product(reported.subject)}:"
    yield ""
    yield from fenced(reported.patch.text, "diff")


def _review(reported: Reported) -> Iterator[str]:
    if reported.patch is None:
        return
    review = reported.review
    yield "## What the change does beside that"
    yield ""
    if review is None:
        yield "Not looked at for this report. It is said by"
    else:
        yield from summary(review)
        yield from _contracts("kept again", review.told_mended)
        yield from _contracts("broken with the change alone", review.told_brought)
        yield from (f"- not looked at: {one}" for one in review.skipped)
        yield ""
        yield "Each decision that differs, with a trace:"
    yield ""
    yield from fenced(reported.review_command, "")


def _contracts(what: str, several: list[ToldFault]) -> Iterator[str]:
    rules = dict.fromkeys(one.contract for told in several for one in told.tallies)
    if rules:
        yield f"- {what}: {'; '.join(_rule(one) for one in rules)}"


def _threads(reported: Reported) -> Iterator[str]:
    yield "## Threads that are public"
    yield ""
    told = reported.subject.fault.upstream or "none known"
    yield f"{told[:1].upper()}{told[1:]}."


def _made_by(reported: Reported) -> Iterator[str]:
    yield "---"
    yield ""
    subject = reported.subject
    told = f"cacheproof report {subject.fault.name} --release {subject.release}"
    yield f"Made by cacheproof {__version__}: `{told}`"


def fenced(text: str, kind: str) -> Iterator[str]:
    """A block of code, behind a fence that is longer than any in it."""
    runs = [len(one) for one in re.findall("`+", text)]
    fence = "`" * max(3, 1 + max(runs, default=0))
    yield f"{fence}{kind}"
    yield text.rstrip("\n")
    yield fence
