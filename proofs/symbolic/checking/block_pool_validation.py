"""Calls of a block pool for the translator to be held against: one of each kind that the
exploration made."""

from collections.abc import Iterator, Sequence
from typing import Any

import z3

from cacheproof.proofs.logic import Formula, iff
from cacheproof.proofs.symbolic.checking.validation import element, is_value
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.subject import CallEnd
from cacheproof.proofs.symbolic.reading.block_pool_readings import Places
from cacheproof.proofs.symbolic.values.values import BLOCK, BOOL, HASH, Universe, Value
from cacheproof.proofs.witness.pool import BLOCKS, Exploration, PoolAsked, PoolSetting
from cacheproof.proofs.witness.recorded import RecordedCall


def universe() -> Universe:
    """A universe of as many blocks and hashes as pools of the exploration have blocks beside the
    null block."""
    return Universe(BLOCKS - 1)


class PoolCall(RecordedCall[PoolSetting, PoolAsked]):
    """A call that CPython made of a pool."""

    def answered(self, end: CallEnd) -> Formula:
        """The condition that its answer is what a path says; True where no contract looks at it."""
        if self.made.asked.operation != "reset":
            return True
        return iff(end.names["w"].fields["done"], self.made.answer is True)

    def given(self, play: Play) -> Iterator[Formula]:
        """What it is given."""
        if play.operation.begins:
            yield z3.Int("num_gpu_blocks") == BLOCKS
            yield z3.Int("hash_block_size") == 1
            yield z3.Bool("enable_caching") == self.made.setting.caches
            yield z3.Bool("enable_kv_cache_events") == self.made.setting.tells
        for name, found in self.made.asked.given:
            yield from _is_given(play.universe, play.given[name], found)


def calls_of(explorations: Sequence[Exploration]) -> dict[str, list[PoolCall]]:
    """Operation -> the calls of it that explorations made, one of each kind."""
    unlike = {
        (one.setting.caches, one.setting.tells, kind): transition
        for one in explorations
        for kind, transition in one.unlike.items()
    }
    found: dict[str, list[PoolCall]] = {}
    for transition in unlike.values():
        found.setdefault(transition.asked.operation, []).append(PoolCall(transition))
    return found


def _is_given(
    universe: Universe, given: Value | z3.ExprRef | Places, found: Any
) -> Iterator[Formula]:
    if not isinstance(given, Places):
        yield from is_value(universe, given, found)
        return
    (leaf,) = [one for one in (BLOCK, HASH, BOOL) if given.at.range() == universe.sort(one)]
    yield given.length == len(found)
    for number, one in enumerate(found):
        yield given.at(number) == element(universe, leaf, one)
