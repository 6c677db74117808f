"""The table of a store of encoder outputs: what is there, what is in use, and what may go.

`s` is a table between two calls, `pre` and `post` the tables around one call `c`, `g` what its
callers have done. An entry's life: being written, finished and idle, pinned, evicted. Room is in
bytes, or in blocks.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from cacheproof.spec.entry_table_ghost import TableGhost
from cacheproof.spec.registry import BEGIN, Component
from cacheproof.spec.vocabulary import distinct, total, within

COMPONENT = "entry_table"
TABLE = "vLLM ECCPUConnector, EmbeddingCache"


class TableState(NamedTuple):
    """A table between two calls: the room that it has, that is free, and that it could make by
    evicting; entry -> its size, how often it is pinned once it is finished, and the size of those
    that it would evict."""

    capacity: int
    free: int
    evictable: int
    size: Mapping[str, int]
    pins: Mapping[str, int]
    idle: Mapping[str, int]


class TableCall(NamedTuple):
    """A call of a table: the entry, the room that it needs, what is answered, and the type of the
    exception that is raised; empty for none."""

    operation: str
    identifier: str
    need: int
    granted: bool
    raised: str


class TableBlocks(NamedTuple):
    """A table of blocks: how many there are, and the ids of the free ones and of all entries."""

    capacity: int
    blocks: tuple[int, ...]


class TableAtWork(NamedTuple):
    """Whether a table says that an entry is in use, and the entries that are, by its callers."""

    told: bool
    writing: AbstractSet[str]
    pinned: Mapping[str, int]


rules = Component(COMPONENT)


@rules.state(
    "TB-1",
    "safety",
    "Free room is never negative, and with the sizes of all entries makes up the capacity",
    source=f"conservation; {TABLE}; EX-6 follows from it",
)
def room_conserved(s: TableState) -> bool:
    return s.free >= 0 and s.free + total(s.size) == s.capacity


@rules.state(
    "TB-2",
    "safety",
    "What may be evicted is what is finished and not pinned, all of it, and is counted so",
    source=f"{TABLE}: entries are not ready, ready or pinned; eviction takes ready ones",
)
def idle_is_unpinned(s: TableState) -> bool:
    return (
        all((h in s.idle) == (h in s.pins and s.pins[h] == 0) for h in s.size)
        and all(h in s.size and s.pins[h] >= 0 for h in s.pins)
        and within(s.idle, s.size)
        and s.evictable == total(s.idle)
    )


@rules.state(
    "TB-3",
    "safety",
    "What somebody writes or has pinned is there, pinned as often, and nothing else is in use",
    source="vLLM ECCPUScheduler: its worker copies from and to the blocks of these entries; EX-2",
)
def keeps_what_is_in_use(s: TableState, g: TableGhost) -> bool:
    return (
        all(h in s.size and h not in s.pins for h in g.writing)
        and all(h in s.pins and s.pins[h] == g.pins[h] for h in g.pins)
        and all(h in s.pins or h in g.writing for h in s.size)
        and all(s.pins[h] == 0 or h in g.pins for h in s.pins)
    )


@rules.transition(
    "TB-4",
    "safety",
    "An entry is refused exactly where free and idle room are too little, and then nothing changes",
    source=f"{TABLE}.alloc: None if there is not enough space after evicting all it may",
    calls=BEGIN,
    also_unchanged=True,
)
def refuses_for_want_of_room(pre: TableState, post: TableState, c: TableCall) -> bool:
    return c.granted == (c.need <= pre.free + total(pre.idle)) and (
        c.granted or (post.free == pre.free and within(pre.size, post.size))
    )


@rules.transition(
    "TB-5",
    "efficiency",
    "Idle entries go in the order of their last use, and no more of them than it takes",
    source=f"{TABLE}: FIFO by the time at which an entry became ready or was given back",
    calls=BEGIN,
    also_unchanged=True,
)
def evicts_what_was_used_first(pre: TableState, post: TableState, g: TableGhost) -> bool:
    return all(
        all(g.used[e] < g.used[k] for k in post.idle)
        and (
            post.free < pre.idle[e]
            or not all(g.used[k] <= g.used[e] for k in pre.idle if k not in post.size)
        )
        for e in pre.idle
        if e not in post.size
    )


@rules.state(
    "TB-6",
    "safety",
    "Every block of a region is free or one entry's, and nowhere twice",
    source=f"{TABLE}: two entries in one block are one item's rows served for another's; EX-4",
)
def blocks_are_apart(s: TableBlocks) -> bool:
    return distinct(s.blocks) and len(s.blocks) == s.capacity


@rules.answer(
    "TB-7",
    "liveness",
    "A table says that it is in use exactly while somebody writes or has pinned an entry",
    source=f"{TABLE}.has_held_entries: an engine steps on while it is true; EX-3",
    versions=">=0.29.0",
)
def tells_what_is_in_use(c: TableAtWork) -> bool:
    return c.told == (len(c.writing) > 0 or len(c.pinned) > 0)


@rules.answer(
    "TB-8",
    "safety",
    "No call of a table that a correct caller makes raises",
    source="an exception in the scheduler or the worker ends the engine; EX-5",
)
def table_raises_nothing(c: TableCall) -> bool:
    return c.raised == ""
