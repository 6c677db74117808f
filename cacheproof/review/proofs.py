"""What is proved of head's text and was not of base's, and the other way."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cacheproof.differential.errors import InputError
from cacheproof.output.console import CommandOutput
from cacheproof.proving.jobs import Piece, ProofJob, jobs_for
from cacheproof.proving.kept import KeptProofs
from cacheproof.proving.proving import LOOKING, left_out, prove_now, proved_before
from cacheproof.proving.targets import REFERENCE, Beside, refuse_all_changed, wanted_trees
from cacheproof.search.memory_store import OutOfTimeError
from cacheproof.spec.evidence import Evidence, Outcome
from cacheproof.work.workplace import Workplace

SEED = 0
NOT_LOOKED = "the seconds were up before anything was proved"
UNREAD = "unread"
"""The scope of a row about a text that proofs cannot read."""
ABSENT = "not asked"


@dataclass(frozen=True)
class ProofChange:
    """A contract of a class, and what is known of it on either side; where that is the same, the
    note says how far it reaches on each."""

    contract: str
    subject: str
    base: str
    head: str
    note: str

    @property
    def is_lost(self) -> bool:
        return self.base == Outcome.HOLDS != self.head

    @property
    def is_gained(self) -> bool:
        return self.head == Outcome.HOLDS != self.base


@dataclass(frozen=True)
class ProofReview:
    """The classes whose texts differ, what changed of what is proved of them, and how many
    contracts are proved on both sides. `unread`: why nothing, or not all, was looked at."""

    classes: tuple[str, ...] = ()
    changes: tuple[ProofChange, ...] = ()
    proved_on_both: int = 0
    unread: tuple[str, ...] = field(default=())
    is_interrupted: bool = False

    @property
    def gained(self) -> list[ProofChange]:
        return [one for one in self.changes if one.is_gained]

    @property
    def lost(self) -> list[ProofChange]:
        return [one for one in self.changes if one.is_lost]

    @property
    def refuted(self) -> list[ProofChange]:
        """What was proved of base, and head's text breaks."""
        return [one for one in self.lost if one.head == Outcome.REFUTED]

    @property
    def undecided(self) -> list[ProofChange]:
        """What was proved of base, and is neither proved nor refuted of head."""
        return [one for one in self.lost if one.head != Outcome.REFUTED]


def review_proofs(
    output: CommandOutput, base: str, head: str, place: Workplace, until: float = math.inf
) -> ProofReview:
    """Prove the classes that read differently in two targets, given as the user gave them, until a
    moment of the monotonic clock. A text that is kept proved costs nothing."""
    try:
        trees = wanted_trees([base, head], output)
        looking = Beside(lambda: refuse_all_changed(trees))
        with output.live(LOOKING):
            if not looking.end(until):
                return ProofReview(unread=(NOT_LOOKED,))
        base, head = (REFERENCE if tree is None else tree.name for tree in trees)
        jobs = [_differing(job, {base, head}) for job in jobs_for(trees, SEED)]
    except InputError as reason:
        return ProofReview(unread=(str(reason).removeprefix("--target "),))
    jobs = [job for job in jobs if job.pieces]
    kept = KeptProofs.locate(output.say)
    found = proved_before(jobs, kept)
    ended = ""

    def watch() -> None:
        if time.monotonic() > until:
            raise OutOfTimeError

    try:
        prove_now(jobs, found, kept, output, place, watch)
    except KeyboardInterrupt:
        ended = "interrupted"
    except OutOfTimeError:
        ended = "the seconds were up"
    pieces = [piece for job in jobs for piece in job.pieces]
    halves = {_subject(piece) for piece in pieces if piece not in found}
    told = [
        row for piece in pieces if _subject(piece) not in halves for row in piece.told(found[piece])
    ]
    of_base = {_place(row): row for row in told if row.target == base}
    of_head = {_place(row): row for row in told if row.target == head}
    done = weighed(of_base, of_head)
    if not ended:
        return done
    unread = *done.unread, f"{ended}: {left_out(jobs, found)}"
    return replace(done, unread=unread, is_interrupted=ended == "interrupted")


def _subject(piece: Piece) -> str:
    """The class that a piece is about. What one side's text keeps says nothing of a change before
    the other's is asked."""
    assert piece.text is not None
    return piece.text.kind


def _differing(job: ProofJob, both: set[str]) -> ProofJob:
    """What of a job is about a text that one of both has and the other has not."""
    pieces = (
        one
        for one in job.pieces
        if one.text is not None and 0 < len(both.intersection(one.text.targets)) < len(both)
    )
    return replace(job, pieces=tuple(pieces))


def _place(row: Evidence) -> tuple[str, str]:
    return row.subject, row.contract


def weighed(
    of_base: Mapping[tuple[str, str], Evidence], of_head: Mapping[tuple[str, str], Evidence]
) -> ProofReview:
    """What of the rows changed."""
    changes: list[ProofChange] = []
    same = 0
    places = list(dict.fromkeys((*of_base, *of_head)))
    for subject, contract in places:
        one, other = of_base.get((subject, contract)), of_head.get((subject, contract))
        base, head = _outcome(one), _outcome(other)
        same += base == head == Outcome.HOLDS
        if one is not None and other is not None and base == head and one.scope != other.scope:
            note = f"of base: {one.scope}; of head: {other.scope}"
            changes.append(ProofChange(contract, subject, base, head, note))
        elif base != head and not _is_unread(one) and not _is_unread(other):
            note = other.note if other is not None else ""
            changes.append(ProofChange(contract, subject, base, head, note))
    unread = _unread([*of_base.values(), *of_head.values()])
    classes = tuple(dict.fromkeys(subject for subject, _ in places))
    return ProofReview(classes, tuple(changes), same, unread)


def _outcome(row: Evidence | None) -> str:
    """What a row says; one that holds beside no change that breaks it says nothing."""
    if row is None:
        return ABSENT
    return Outcome.UNKNOWN if row.outcome is Outcome.HOLDS and not row.counts else row.outcome


def _is_unread(row: Evidence | None) -> bool:
    return row is not None and row.scope == UNREAD


def _unread(rows: Sequence[Evidence]) -> tuple[str, ...]:
    """A line for each text that proofs cannot read."""
    reasons = dict.fromkeys((r.target, r.subject, r.note) for r in rows if _is_unread(r))
    return tuple(f"{target}: {subject}: {why}" for target, subject, why in reasons)
