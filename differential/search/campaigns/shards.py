"""How a plan is cut: a shard is some seeds of a lane, and its number says which."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cacheproof.differential.search.campaigns.plan_file import CampaignPlan


@dataclass(frozen=True)
class Shard:
    """Seeds of a lane; `number` counts a target's shards from 0, in the order of their seeds."""

    number: int
    lane: str
    seeds: range


class Cutting:
    """The shards of one target: the lanes in turns, with a few seeds each, range by range."""

    def __init__(self, plan: CampaignPlan, lanes: Sequence[str]) -> None:
        self._lanes = lanes
        self._size = plan.shard_seeds
        self._ranges = plan.ranges
        self._rounds = [math.ceil(len(one) / self._size) for one in self._ranges]

    @property
    def total(self) -> int:
        """Number of shards of the target."""
        return sum(self._rounds) * len(self._lanes)

    def shard(self, number: int) -> Shard:
        """The shard of that number. Raises IndexError when there is none."""
        turn, which = divmod(number, len(self._lanes))
        for seeds, rounds in zip(self._ranges, self._rounds, strict=True):
            if turn < rounds:
                first = turn * self._size
                return Shard(number, self._lanes[which], seeds[first : first + self._size])
            turn -= rounds
        raise IndexError(number)

    def number_of(self, lane: str, first: int) -> int:
        """The number of the shard of that lane whose seeds begin there. Raises ValueError when
        there is none."""
        before = 0
        for seeds, rounds in zip(self._ranges, self._rounds, strict=True):
            if first in seeds:
                turn = before + (first - seeds.start) // self._size
                return turn * len(self._lanes) + self._lanes.index(lane)
            before += rounds
        raise ValueError(first)

    def shards(self, first: int, count: int) -> list[Shard]:
        """At most `count` shards from number `first` on."""
        return [self.shard(number) for number in range(first, min(first + count, self.total))]
