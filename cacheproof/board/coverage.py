"""What each lane of a target has met over time, and what it has not."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from cacheproof.board.clock import CampaignClock
from cacheproof.board.unseen import AT_MOST_95, Estimate, estimate
from cacheproof.differential.judges.rare_states import RARE_STATES
from cacheproof.differential.search.campaigns.series import Pair, ShardSeen
from cacheproof.differential.search.seeded import LaneReport

TRACE, SHARD = "trace", "shard"

Step = tuple[float, int]
"""A time on the campaign's clock, and how many there are from then on."""


class FirstMet(msgspec.Struct, frozen=True):
    """A state, when the first shard that met it ended, after how many traces of its lane, and how
    many traces or shards met it."""

    state: str
    meaning: str
    at: float
    moment: float
    traces: int
    met_in: int


class NeverMet(msgspec.Struct, frozen=True):
    """A state that the lane is there to meet, and has not."""

    state: str
    meaning: str


class LaneBoard(msgspec.Struct, frozen=True):
    """A lane. `unit` is what the estimates count. Of pairs there is nothing where traces were not
    counted. `quiet_for` is the share of its traces that came after the last new state or pair.
    `rate_at_most` bounds the rate by trace of each state that was never met, at 95 %."""

    name: str
    depth: str
    traces: int
    events: int
    unit: str
    required: int
    states: tuple[Step, ...]
    pairs: tuple[Step, ...] | None
    firsts: tuple[FirstMet, ...]
    never: tuple[NeverMet, ...]
    last_new: float | None
    last_new_traces: int
    quiet_for: float
    of_states: Estimate | None
    of_pairs: Estimate | None
    rate_at_most: float | None


class _Growth:
    """Things that are met for the first time one after the other, shard by shard."""

    def __init__(self) -> None:
        self.first: dict[object, tuple[float, float, int]] = {}
        self.met_in: Counter[object] = Counter()
        self.steps: list[Step] = []

    def take(
        self, met: Iterable[tuple[object, int]], at: float, moment: float, traces: int
    ) -> None:
        before = len(self.first)
        for what, units in met:
            self.first.setdefault(what, (at, moment, traces))
            self.met_in[what] += units
        if len(self.first) > before:
            self.steps.append((at, len(self.first)))

    @property
    def last(self) -> tuple[float, int] | None:
        """When it last grew, and after how many traces."""
        if not self.first:
            return None
        at, _, traces = max(self.first.values())
        return at, traces


def lane_board(report: LaneReport, shards: Sequence[ShardSeen], clock: CampaignClock) -> LaneBoard:
    """The board of a lane from its shards, in the order of time."""
    counted = bool(shards) and all(one.together is not None for one in shards)
    states, pairs = _Growth(), _Growth()
    traces = 0
    for one in shards:
        traces += one.traces
        place = clock.at(one.ended), one.ended, traces
        together = one.together or {}
        states.take(((name, together.get((name, name), 1)) for name in one.met), *place)
        pairs.take(_apart(together), *place)
    units = traces if counted else len(shards)
    grown = [one.last for one in (states, pairs) if one.last is not None]
    last_new, last_traces = max(grown, default=(None, 0), key=lambda one: one[1])
    never = [s for s in RARE_STATES if s in report.lane.rare and s not in states.first]
    return LaneBoard(
        report.lane.name,
        report.lane.depth,
        traces,
        sum(one.events for one in shards),
        TRACE if counted else SHARD,
        len(report.lane.rare),
        tuple(states.steps),
        tuple(pairs.steps) if counted else None,
        tuple(_firsts(states)),
        tuple(NeverMet(name, RARE_STATES[name]) for name in never) if traces else (),
        last_new,
        last_traces,
        1 - last_traces / traces if traces else 0.0,
        estimate(states.met_in.values(), units),
        estimate(pairs.met_in.values(), units) if counted else None,
        min(1.0, AT_MOST_95 / traces) if traces else None,
    )


def _apart(together: dict[Pair, int]) -> Iterable[tuple[object, int]]:
    return ((pair, traces) for pair, traces in together.items() if pair[0] != pair[1])


def _firsts(states: _Growth) -> Iterable[FirstMet]:
    for name, (at, moment, traces) in states.first.items():
        meaning = RARE_STATES.get(str(name), "")
        yield FirstMet(str(name), meaning, at, moment, traces, states.met_in[name])
