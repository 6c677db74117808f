"""What a review amounts to: what head mends and brings, what was not looked at, an exit code."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from cacheproof.differential.search.verdict import FROM_MODEL, HOLDS, INTERRUPTED, UNLISTED, VOID
from cacheproof.differential.search.weighing import (
    BreakTally,
    PartedGroup,
    ToldFault,
    told_together,
)
from cacheproof.differential.traces.trace import Trace
from cacheproof.review.proofs import ProofReview
from cacheproof.review.run import PLANTED, RanTraces

DIFFERS = FROM_MODEL
"""Decisions differ, and nothing is worse."""
MENDED_MIN = 3
"""Least traces of a search on which head must keep what is listed for the release it is near."""
WORSE = ("safety", "liveness")
"""The harms that an exit code is for."""


@dataclass(frozen=True)
class Side:
    """A target as a review names it: by what the user wrote, whose contracts it is held to, whether
    its text is that of the release, what is to be said of it before, and the release whose text is
    nearest to its own."""

    name: str
    release: str | None
    is_release: bool
    announced: tuple[str, ...] = ()
    nearest: str = "the nearest release"


@dataclass
class Review:
    """All that a page says. `seeds` are in words; `skipped` says what was not looked at;
    `changed_once` are the definitions in which head differs from the nearest release in one place.
    """

    base: Side
    head: Side
    seeds: str
    ran: RanTraces
    groups: Sequence[PartedGroup]
    tallies: Sequence[BreakTally]
    proofs: ProofReview
    skipped: list[str] = field(default_factory=list)
    changed_once: frozenset[str] = frozenset()

    @property
    def is_interrupted(self) -> bool:
        """Whether the page has what was found until somebody wanted no more."""
        return self.ran.interrupted or self.proofs.is_interrupted

    @property
    def parted(self) -> int:
        """How many traces parted."""
        return sum(pair.parted is not None for pair in self.ran.pairs)

    @property
    def mended(self) -> list[BreakTally]:
        """What base broke and head never did."""
        return [one for one in self.tallies if self._is_mended(one)]

    def _is_mended(self, one: BreakTally) -> bool:
        """Whether head mends a break. A fault that is listed for head's release counts only if head
        is another text near it, and a kept trace or several of a search say so."""
        if not one.base_alone or one.head:
            return False
        if not one.of_head:
            return True
        return not self.head.is_release and (bool(one.names) or one.base_alone >= MENDED_MIN)

    @property
    def brought(self) -> list[BreakTally]:
        """What head broke where base kept it, and base never broke. A listed fault of the very
        release that base is was there before."""
        return [
            one
            for one in self.tallies
            if one.head_alone and not one.base and not (self.base.is_release and one.of_base)
        ]

    @property
    def told_mended(self) -> list[ToldFault]:
        """What head mended, by fault."""
        return told_together(self.mended)

    @property
    def told_brought(self) -> list[ToldFault]:
        """What head brought, by fault and cause."""
        return told_together(self.brought, self.changed_once)

    @property
    def kept(self) -> list[BreakTally]:
        """What both broke, or one did and the other is listed for; what either broke alone first"""
        apart = [*self.mended, *self.brought]
        rest = [one for one in self.tallies if one not in apart]
        return sorted(rest, key=lambda one: not (one.base_alone or one.head_alone))

    @property
    def worse(self) -> list[BreakTally]:
        """The breaks that head brought and that are worth an exit code."""
        return [one for one in self.brought if one.harm in WORSE]

    @property
    def void_because(self) -> list[str]:
        """Why the review says nothing; empty when it does."""
        planted = self.ran.planted or not self.ran.left_undone.get(PLANTED)
        missed = [name for name, found in self.ran.planted.items() if not found]
        return [
            *(f"harness error: {error}" for error in dict.fromkeys(self.ran.errors)),
            *(f"the fault planted against {name} was not found" for name in missed),
            *([] if self.ran.calls else ["no call was judged"]),
            *([] if planted else [f"within {self.ran.seconds:g} s no fault was planted"]),
            *(
                f"{one.contract} of {one.subject} was proved of {self.base.name}; of "
                f"{self.head.name} it is {one.head}"
                for one in self.proofs.undecided
            ),
        ]

    @property
    def exit_code(self) -> int:
        """1 where head breaks what base keeps, 3 when void, 4 where decisions differ, else 0; 130
        after an interruption."""
        if self.is_interrupted:
            return INTERRUPTED
        if self.worse or self.proofs.refuted:
            return UNLISTED
        if self.void_because:
            return VOID
        return DIFFERS if self.parted else HOLDS

    def to_json(self) -> dict[str, object]:
        """The review in the JSON of `review`."""
        return {
            "base": asdict(self.base),
            "head": asdict(self.head),
            "seeds": self.seeds,
            "traces": len(self.ran.pairs),
            "calls": self.ran.calls,
            "parted": self.parted,
            "decisions": [_parting(one) for one in self.groups],
            "mended": [_tally(one) for one in self.mended],
            "brought": [_tally(one) for one in self.brought],
            "causes": _causes(self.brought, self.told_brought),
            "kept": [_tally(one) for one in self.kept],
            "proofs": asdict(self.proofs),
            "planted": self.ran.planted,
            "void_because": self.void_because,
            "not_looked_at": self.skipped,
            "interrupted": self.is_interrupted,
            "exit_code": self.exit_code,
        }


def _parting(one: PartedGroup) -> dict[str, object]:
    small = one.small
    return {
        "operation": one.parted.operation,
        "field": one.parted.field,
        "change": one.change,
        "traces": one.traces,
        "lanes": one.lanes,
        "sentence": small and small.difference.sentence,
        "trace": small and _trace(small.trace),
    }


def _tally(one: BreakTally) -> dict[str, object]:
    small = one.small
    return {
        "contract": one.contract,
        "kind": one.kind,
        "harm": one.harm,
        "fault": one.fault,
        "base": one.base,
        "head": one.head,
        "base_alone": one.base_alone,
        "head_alone": one.head_alone,
        "kept_traces": one.names,
        "sentence": small and small.sentence,
        "trace": small and _trace(small.trace),
    }


def _causes(brought: Sequence[BreakTally], told: Sequence[ToldFault]) -> list[dict[str, object]]:
    """What head brought by cause, with the numbers of its breaks among `brought`."""
    number = {id(one): at for at, one in enumerate(brought)}
    found = []
    for one in told:
        small = one.head.small
        first = None if small is None else small.first_wrong
        found.append(
            {
                "functions": () if first is None else first.functions,
                "reads_otherwise": first is not None and first.changed,
                "brought": [number[id(tally)] for tally in one.tallies],
            }
        )
    return found


def _trace(trace: Trace) -> dict[str, object]:
    return {"configuration": trace.header, "events": trace.events}
