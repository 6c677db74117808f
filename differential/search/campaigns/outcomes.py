"""Outcomes of jobs, as a store keeps them: nothing in them depends on time."""

import hashlib
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.register import FaultRecord
from cacheproof.differential.search.canary import Canary
from cacheproof.differential.search.corpus import Reply
from cacheproof.differential.search.seeded import LaneReport, SearchOutcome, Work
from cacheproof.differential.search.work import WriteDown


class SearchedShard(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a shard: how much ran, rare states met, what broke, and the breaks kept.

    `together` has for two states, as positions among the sorted names of `met`, how many traces met
    both, and for a state with itself how many met it. `listed` has those of `kinds` that are a
    listed fault: contract, kind, fault and traces. Both are None in stores that did not count them
    yet.
    """

    work: Work
    compared: Work | None
    resident_sum: int
    illegal: dict[str, int]
    met: dict[str, int]
    broken: dict[str, int]
    kinds: list[tuple[str, str, int]]
    breaks: list[Break]
    errors: list[str]
    together: list[tuple[int, int, int]] | None = None
    listed: list[tuple[str, str, str, int]] | None = None

    @classmethod
    def of(cls, part: SearchOutcome) -> "SearchedShard":
        """The outcome of a search of one lane."""
        (lane,) = part.lanes
        place = {state: at for at, state in enumerate(sorted(lane.reach.met))}
        return cls(
            work=Work(lane.traces, lane.events, lane.steps, lane.calls),
            compared=lane.compared,
            resident_sum=lane.resident_sum,
            illegal=dict(lane.illegal),
            met=dict(lane.reach.met),
            broken={contract: count for (contract, _), count in part.broken.items()},
            kinds=sorted((contract, kind, n) for (contract, _, kind), n in part.kinds.items()),
            breaks=[replace(one, seconds=0.0) for one in part.breaks],
            errors=part.harness_errors,
            together=sorted(
                (place[one], place[other], traces)
                for (one, other), traces in lane.reach.together.items()
            ),
            listed=sorted(
                (contract, kind, fault, traces)
                for (contract, _, kind, fault), traces in part.listed.items()
            ),
        )

    def put_into(self, part: SearchOutcome) -> None:
        """Add the outcome to a campaign of one lane of which nothing was run yet."""
        (lane,) = part.lanes
        assert isinstance(lane, LaneReport)
        lane.sum(self.work)
        lane.resident_sum = self.resident_sum
        lane.compared = self.compared
        lane.illegal.update(self.illegal)
        lane.reach.met.update(self.met)
        name = lane.lane.name
        part.broken.update({(contract, name): count for contract, count in self.broken.items()})
        part.kinds.update({(contract, name, kind): count for contract, kind, count in self.kinds})
        part.listed.update(
            {(contract, name, kind, fault): n for contract, kind, fault, n in self.listed or ()}
        )
        part.breaks += self.breaks
        part.harness_errors += self.errors


class PlantedOutcome(msgspec.Struct, frozen=True):
    """Which planted faults were found, or why that cannot be said."""

    found: list[tuple[Canary, bool]]
    error: str | None = None


class ReplayedOutcome(msgspec.Struct, frozen=True):
    """What a target makes of a register's trace, or why that cannot be said."""

    reply: Reply
    error: str | None = None

    def put_into(self, part: SearchOutcome) -> None:
        """Add the outcome to a campaign of one lane of which nothing was run yet."""
        if (broken := self.reply.broken) is not None:
            part.add_break(broken)
        if self.error is not None:
            part.harness_errors.append(self.error)


class Written(msgspec.Struct, frozen=True):
    """A minimised break, or why there is none."""

    finding: Finding | None
    error: str | None = None


class ToWrite(msgspec.Struct, frozen=True):
    """A break to be written down, as `WriteDown` takes it, without a limit of time."""

    broken: Break
    batches: int
    times: int

    @property
    def job(self) -> WriteDown:
        return WriteDown(self.broken, self.batches, self.times)


Outcome = SearchedShard | PlantedOutcome | ReplayedOutcome | Written
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (SearchedShard, PlantedOutcome, ReplayedOutcome, Written, ToWrite, FaultRecord)
}


OutcomeT = TypeVar("OutcomeT")


def written(what: Outcome | ToWrite | FaultRecord) -> str:
    """`what` as JSON. Maps keep their order: the digest of a finding's records depends on it."""
    return msgspec.json.encode(what).decode()


def read(kind: type[OutcomeT], text: str) -> OutcomeT:
    """A value of that type, as `written` wrote it. Raises msgspec.MsgspecError where it is none."""
    value: OutcomeT = _DECODERS[kind].decode(text)
    return value


def digest_of(what: object) -> str:
    """SHA-256 of `what` as JSON, without the Python and the cacheproof that wrote a finding."""
    if isinstance(what, Written) and what.finding is not None:
        what = Written(msgspec.structs.replace(what.finding, tool={}))
    return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()
