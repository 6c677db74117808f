"""Rows of evidence: what is known of which text, by which method, and how far it reaches."""

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Outcome(StrEnum):
    """What a check said. All but HOLDS, and REFUTED of what is listed, make a run fail.

    ALONE: it is proved, and a witness that should agree does not reach so far. DISAGREE: it is
    proved, and a witness saw otherwise. VACUOUS: it is proved of calls that nothing shows can
    happen as the proof assumes them.
    """

    HOLDS = "holds"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    ALONE = "proved alone"
    DISAGREE = "witnesses disagree"
    VACUOUS = "vacuous"


@dataclass(frozen=True)
class RedTwin:
    """A change that breaks the checked text on purpose, and whether the same check refuted it."""

    name: str
    refuted: bool


@dataclass(frozen=True)
class Witness:
    """Another reading of the same text, of the same contract.

    Attributes:
        name: "exploration": CPython runs the text. "validation": the proof's reading of the text
            is held against calls that CPython made.
        reach: how far it went.
        against: what it saw that speaks against the proof, in one line; or "".
        twin: a change that it must notice, and whether it did.
        vacuous: of the calls that the proof is about, those that cannot happen as it assumes them,
            in one line; or "".
        unreached: of the calls that the proof is about, those that this witness does not speak of,
            in one line; or "".
    """

    name: str
    reach: str
    against: str
    twin: RedTwin
    vacuous: str = ""
    unreached: str = ""


@dataclass(frozen=True)
class Evidence:
    """One check of one target.

    Attributes:
        contract: its id, such as EC-4; or the name of a lemma or an auxiliary invariant.
        target: "reference", or a release, such as "vllm@0.33.0".
        subject: the class, function or encoding that was checked, such as "EncoderCacheManager".
        method: "proof", "crosshair" or "exploration".
        scope: how far it reaches, such as "unbounded" or "at most 2 entries".
        outcome: what the check said of the text as it is.
        note: the counterexample of a refuted check, or a precondition, in one line; or "".
        digest: of the source text that was checked (`digest_of`).
        seconds: how long it took.
        twins: the red twins of this check; one at least.
        work_max: what the hardest of its conditions took, and of those of the rules that it rests
            on, as a share of the solver's limit; None where that is not measured.
        witnesses: of what is proved, the other readings that it was held against.
    """

    contract: str
    target: str
    subject: str
    method: str
    scope: str
    outcome: Outcome
    note: str
    digest: str
    seconds: float
    twins: tuple[RedTwin, ...]
    work_max: float | None = None
    witnesses: tuple[Witness, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether the check is known to be able to fail: it has twins and refuted all of them."""
        return bool(self.twins) and all(twin.refuted for twin in self.twins)


def witnessed(row: Evidence, witnesses: Sequence[Witness]) -> Evidence:
    """A row that holds, with the worst outcome that one of its witnesses gives it."""
    outcome, note = Outcome.HOLDS, row.note
    for one in witnesses:
        seen, why = _said_by(one)
        if _GRAVITY.index(seen) > _GRAVITY.index(outcome):
            outcome, note = seen, why
    return replace(row, outcome=outcome, note=note, witnesses=tuple(witnesses))


_GRAVITY = (Outcome.HOLDS, Outcome.ALONE, Outcome.VACUOUS, Outcome.DISAGREE)


def _said_by(one: Witness) -> tuple[Outcome, str]:
    """The outcome of a proved row beside one witness, and why."""
    if one.against:
        return Outcome.DISAGREE, f"proved; but {one.name} saw {one.against}"
    if one.vacuous:
        return Outcome.VACUOUS, f"proved of calls that cannot happen: {one.vacuous}"
    if one.unreached:
        return Outcome.ALONE, f"{one.name} ({one.reach}) does not reach {one.unreached}"
    if not one.twin.refuted:
        return Outcome.ALONE, f"{one.name} ({one.reach}) does not notice {one.twin.name}"
    return Outcome.HOLDS, ""


def digest_of(sources: Sequence[str | type | Callable[..., object]]) -> str:
    """Twelve hex digits that change with any of the texts (a string is a text itself)."""
    texts = [one if isinstance(one, str) else inspect.getsource(one) for one in sources]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
