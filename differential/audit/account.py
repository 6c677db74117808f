"""What an audit has seen and found of one engine."""

from dataclasses import dataclass, field
from typing import NamedTuple

from cacheproof.differential.audit.following import Observed
from cacheproof.differential.audit.steady import Steady
from cacheproof.differential.judges.kv_cache import MANAGER as KV_CACHE
from cacheproof.differential.judges.violation import Violation
from cacheproof.differential.traces.manager import Reset
from cacheproof.spec.processed_media import FRONT_END

OF_A_STEP = frozenset({"schedule", "update_from_output", "execute_model", "sample_tokens"})
"""Calls that an engine makes in every step. It does not go on after an exception in one of them."""


OF_A_WORKER = "held by a worker"
"""Kind of a break that only a worker's store shows."""


class At(NamedTuple):
    """A moment of an engine: the number of its scheduler's record, its step, the time in seconds
    since the epoch, and the event, counted from 0 among those that were judged."""

    record: int
    step: int
    time: float
    event: int


@dataclass(frozen=True)
class FoundBreak:
    """A contract that an engine broke: how, when, and what led there: events of its scheduler or,
    of processed media, in words (`led`). `is_of_worker`: what a worker held breaks it, what the
    scheduler decided does not."""

    violation: Violation
    at: At
    window: tuple[Observed | Steady, ...]
    is_of_worker: bool = False
    led: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """The contract and the kind of break; a break by a worker alone is a kind of its own."""
        kind = self.violation.kind or OF_A_WORKER * self.is_of_worker
        return self.violation.contract.id, kind

    @property
    def events(self) -> list[Observed]:
        """The events that led there; the last of them broke it."""
        return [one.observed() if isinstance(one, Steady) else one for one in self.window]

    @property
    def is_of_kv_cache(self) -> bool:
        """Whether the KV cache manager broke it, whose calls are in no trace of a scheduler."""
        return KV_CACHE in self.violation.contract.applies_to

    @property
    def is_of_media(self) -> bool:
        """Whether the caches of processed media broke it."""
        return FRONT_END in self.violation.contract.applies_to

    @property
    def has_trace(self) -> bool:
        """Whether the trace of a scheduler alone may break it."""
        return not (self.is_of_kv_cache or self.is_of_worker or self.is_of_media)


@dataclass(frozen=True)
class Failure:
    """An exception of the engine: the call that raised it, its type and text as a log has them, the
    line of vLLM, and its step."""

    operation: str
    error: str
    text: str
    place: str
    step: int

    @property
    def words(self) -> str:
        """Type and text, as a log ends with them."""
        return f"{self.error}: {self.text}" if self.text else self.error


@dataclass(frozen=True)
class FrontEndFailure:
    """The exception with which a front end has ended: when, in seconds since the epoch, what it
    was, and why the engine had ended requests for which no tokens are made, in vLLM's word."""

    time: float
    failure: Failure
    ended: tuple[str, ...]


@dataclass
class RecordedTraffic:
    """Traffic of an encoder cache: occurrences of items that hit, entries taken in, entries
    evicted."""

    hits: int = 0
    encodes: int = 0
    evictions: int = 0

    def count(self, observed: Observed) -> None:
        """Count the calls of one event."""
        is_reset = isinstance(observed.event, Reset)
        for operation, _, _, _, _, answer, delta in observed.record.calls:
            if operation == "check":
                self.hits += answer is True
            elif operation == "allocate":
                self.encodes += 1
            if delta is not None and not is_reset and None in delta.entries.values():
                self.evictions += sum(one is None for one in delta.entries.values())


@dataclass
class Account:
    """What an audit has seen and judged so far.

    gaps: what is missing, in words, of the first of `gap_count` places; `unjudged_records` could
        not be judged for it.
    raised: exceptions of the engine, by operation and type.
    broken: how often each contract was broken, by id and kind.
    """

    records: int = 0
    steps: int = 0
    judged_steps: int = 0
    stores: int = 0
    unjudged_records: int = 0
    lost: int = 0
    started: float = 0.0
    seconds: float = 0.0
    requests: int = 0
    gaps: list[str] = field(default_factory=list)
    gap_count: int = 0
    raised: dict[str, int] = field(default_factory=dict)
    broken: dict[tuple[str, str], int] = field(default_factory=dict)
    unjudged: set[str] = field(default_factory=set)
    closed: bool = False
    traffic: RecordedTraffic = field(default_factory=RecordedTraffic)
