"""Which release brought a fault, and which mended it: its trace, run on one release after another.

A release that lacks a setting of the trace is asked without it, and the answer says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.findings.question import Question
from cacheproof.differential.findings.shrinking.fields import extras_of
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.trace import Trace

TIMES = 2
"""Runs of a trace on a release, which must all have the same result."""

OF_EVERY_RELEASE = frozenset(
    {
        "prefix_caching", "chunked_prefill", "disable_chunked_mm_input", "policy",
        "long_prefill_token_threshold", "async_scheduling", "enable_caching", "use_eagle",
        "kv_events", "groups", "model", "one_text", "as_released", "store", "ranks",
    }
)  # fmt: skip
"""Settings that every release has, or without which a trace asks another question."""


@dataclass(frozen=True)
class ReleaseAnswer:
    """What a release made of the trace: the contracts that `broken`; None where it refused the
    trace, and `refusal` says why. It was run `without` these settings, which the release lacks."""

    release: str
    broken: frozenset[str] | None
    without: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True)
class Bisection:
    """Where a contract breaks, over releases from old to new that take the trace."""

    contract: str
    answers: tuple[ReleaseAnswer, ...]

    @property
    def spans(self) -> list[tuple[str, str]]:
        """First and last release of each run of releases that break it."""
        runs = groupby(self.answers, lambda one: self.contract in (one.broken or ()))
        spans = [list(answers) for breaks, answers in runs if breaks]
        return [(span[0].release, span[-1].release) for span in spans]

    @property
    def is_monotone(self) -> bool:
        """Whether one release brought the fault and at most one mended it."""
        return len(self.spans) == 1

    @property
    def brought(self) -> str | None:
        """The release that brought the fault first; None where the oldest one breaks it."""
        first = self.spans[0][0]
        return None if first == self.answers[0].release else first

    @property
    def mended(self) -> str | None:
        """The release that mended the fault last; None where the newest one breaks it."""
        return self._after(self.spans[-1][1])

    def _after(self, release: str) -> str | None:
        releases = [one.release for one in self.answers]
        behind = releases[releases.index(release) + 1 :]
        return behind[0] if behind else None

    def lines(self) -> Iterator[str]:
        """The bisection in words, line by line."""
        spans = ", ".join(span(first, last) for first, last in self.spans)
        yield f"{self.contract} breaks in {spans}"
        if not self.is_monotone:
            yield "  the order is not monotone: it came more than once"
            for first, last in self.spans:
                mended = self._after(last)
                yield f"  came with {first}, " + (
                    f"was mended by {mended}" if mended else "and is there still"
                )
            return
        oldest, newest = self.answers[0].release, self.answers[-1].release
        yield (
            f"  brought by {self.brought}; {self._before(self.brought)} holds"
            if self.brought
            else f"  brought by {oldest} or before: no older release was asked"
        )
        yield (
            f"  mended by {self.mended}; {self.spans[-1][1]} is the last that breaks it"
            if self.mended
            else f"  not mended: {newest} is the newest that was asked"
        )

    def _before(self, release: str | None) -> str:
        releases = [one.release for one in self.answers]
        return releases[releases.index(release or "") - 1]

    def to_json(self) -> dict[str, object]:
        """The bisection as the command's JSON has it."""
        return {
            "contract": self.contract,
            "spans": self.spans,
            "is_monotone": self.is_monotone,
            "brought": self.brought if self.is_monotone else None,
            "mended": self.mended if self.is_monotone else None,
        }


def ask(
    target: Target, release: str, question: Question, reference: ReferenceTarget | None
) -> ReleaseAnswer:
    """Run the trace on a release; `reference` judges the lockstep alone.

    Raises:
        HarnessError: the target broke, or its runs differ.
    """
    refusal = ""
    for without, trace in tellings(question.trace):
        results = target.run([trace] * TIMES)
        seen = [examine(trace, result, target, reference) for result in results]
        outcomes = {(one.illegal, question.broken(one)) for one in seen}
        if len(outcomes) > 1:
            raise HarnessError(f"{TIMES} runs of the trace on {target.name} differ")
        ((illegal, broken),) = outcomes
        if illegal is None:
            return ReleaseAnswer(release, broken, without)
        refusal = refusal or illegal
    return ReleaseAnswer(release, None, refusal=refusal)


def bisections(question: Question, answers: Sequence[ReleaseAnswer]) -> list[Bisection]:
    """A bisection for each contract asked for that broke on any release."""
    ran = tuple(one for one in answers if one.broken is not None)
    contracts: dict[str, None] = {}
    for one in ran:
        contracts |= dict.fromkeys(sorted(one.broken or ()))
    return [Bisection(contract, ran) for contract in contracts]


def remarks(answers: Sequence[ReleaseAnswer]) -> Iterator[str]:
    """Which releases were asked without a setting, and which refused the trace, and why."""
    for (without, refusal), group in groupby(answers, lambda one: (one.without, one.refusal)):
        releases = [one.release for one in group]
        where = span(releases[0], releases[-1])
        if without:
            yield f"{where}: run without {', '.join(without)}, which the release lacks"
        if refusal:
            yield f"{where}: not run: {refusal}"


def span(first: str, last: str) -> str:
    """Releases that follow each other, by their first and last."""
    return first if first == last else f"{first} to {last}"


def tellings(trace: Trace) -> Iterator[tuple[tuple[str, ...], Trace]]:
    """The trace as it is, then without each setting that not every release has, then without all
    of them; with the names of the settings left out."""
    config = trace.header.config
    extras = extras_of(config)
    optional = [name for name in extras if name not in OF_EVERY_RELEASE]
    lacking = [(), *((name,) for name in optional), *([tuple(optional)] if optional[1:] else [])]
    for names in lacking:
        changed = msgspec.structs.replace(config, **{name: extras[name] for name in names})
        header = msgspec.structs.replace(trace.header, config=changed)
        yield tuple(names), Trace(header, trace.events)
