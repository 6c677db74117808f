"""What a command found of a target: the record from which every format is written.

A command builds a `Result` for each target and hands it to `CommandOutput` with what it concludes;
it knows of no format.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cacheproof.differential.findings.finding import (
    DIFFERENCE,
    LOCKSTEP,
    LOCKSTEP_SOURCE,
    LOCKSTEP_TITLE,
    MODEL_DIFFERENCE,
)
from cacheproof.differential.texts.places import SourceFunction, SourcePlace
from cacheproof.spec.registry import by_id

PAGE_OF_CONTRACTS = "docs/reference/contracts.md"
PAGE_OF_LOCKSTEP = "docs/explain/design.md"


class Level(StrEnum):
    """How much a problem weighs, by its harm."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_LEVELS = {"efficiency": Level.NOTE, MODEL_DIFFERENCE: Level.WARNING}
"""Levels by harm; any other harm is an error."""


@dataclass(frozen=True)
class Rule:
    """What was judged: a contract, the lockstep, or a lemma. `page` is where it is described, from
    the root of cacheproof's repository."""

    id: str
    title: str
    harm: str
    source: str
    page: str = PAGE_OF_CONTRACTS


@dataclass(frozen=True)
class Excuse:
    """Why a problem is no news, and fails no command: it is listed as `fault`, described on `page`,
    or its harm is of a kind that never does. `fails`: the command fails by it all the same, since
    an engine that served did it."""

    reason: str
    fault: str = ""
    page: str = ""
    fails: bool = False


@dataclass(frozen=True)
class Problem:
    """A rule that does not hold.

    Attributes:
        harm: the rule's, or of a difference what it is.
        sentence: one line.
        detail: both sides and how to see it again, in several lines.
        kind: in which way the rule is broken, where several are told apart.
        shape: what tells it from others of that kind, without numbers: that of its smallest trace.
        way: the functions of the target that lead to it, the last of them the one it is about.
        place: where that stands, if the target's files say so.
        excuse: None where it is news.
    """

    harm: str
    sentence: str
    detail: str = ""
    kind: str = ""
    shape: str = ""
    way: tuple[SourceFunction, ...] = ()
    place: SourcePlace | None = None
    excuse: Excuse | None = None

    @property
    def fails(self) -> bool:
        """Whether the command fails by it."""
        return self.excuse is None or self.excuse.fails

    @property
    def level(self) -> Level:
        return _LEVELS.get(self.harm, Level.ERROR)

    def identity(self, rule: str) -> str:
        """32 hex digits that stay the same while the fault does. A listed fault is known by its
        name, any other by the shape of its trace and the functions on its way. Neither a line nor a
        path, a seed or the target's name is part of it."""
        names = [one.name for one in self.way]
        about = [self.excuse.fault] if self.excuse and self.excuse.fault else [self.shape, *names]
        text = json.dumps([rule, self.kind, *about])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Case:
    """One rule judged of one target. `scope` says how far that reaches; `vacuous` why nothing was
    judged, `void` why what was judged proves nothing."""

    rule: Rule
    scope: str
    problems: tuple[Problem, ...] = ()
    vacuous: str = ""
    void: str = ""

    @property
    def failures(self) -> list[Problem]:
        """The problems that fail a command."""
        return [one for one in self.problems if one.fails]


@dataclass(frozen=True)
class Suite:
    """The cases of one part of the work: of a depth, or of a method of proof."""

    part: str
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Result:
    """What was found of a target. `is_own` says that its files are the user's, in the folder that
    the pipeline checked out; `void` why the whole proves nothing; `seconds` how long it took."""

    target: str
    suites: tuple[Suite, ...]
    is_own: bool = False
    void: tuple[str, ...] = ()
    is_interrupted: bool = False
    seconds: float = 0.0

    def cases(self) -> Iterator[Case]:
        for suite in self.suites:
            yield from suite.cases

    def problems(self) -> Iterator[tuple[Rule, Problem]]:
        """Each with its rule."""
        for case in self.cases():
            yield from ((case.rule, one) for one in case.problems)

    @property
    def doubts(self) -> list[str]:
        """Everything that keeps it from being a proof."""
        void = [f"void: {one}" for one in self.void]
        void += [f"{one.rule.id}: {one.void}" for one in self.cases() if one.void]
        return void + ["interrupted: this is what was found until then"] * self.is_interrupted


@dataclass(frozen=True)
class Report:
    """All that a command found. `trouble` is the error that ended it, `code` its exit code,
    `verdict` the sentence that says what it concludes, `step` what to do next, `facts` what its
    JSON says beside that, by key."""

    command: str
    results: tuple[Result, ...] = ()
    trouble: str = ""
    code: int = 0
    verdict: str = ""
    step: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


def rule_of(id: str) -> Rule:
    """What the register says of a contract; a lemma or an auxiliary invariant is not in it."""
    if id == LOCKSTEP:
        return Rule(id, LOCKSTEP_TITLE, DIFFERENCE, LOCKSTEP_SOURCE, PAGE_OF_LOCKSTEP)
    try:
        rule = by_id(id)
    except KeyError:
        return Rule(id, id, "safety", "what proofs rest on", "docs/explain/proofs.md")
    return Rule(id, rule.title, rule.harm, rule.source)
