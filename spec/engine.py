"""The engine: what requests are answered, and what memory that takes, when steps are executed."""

from cacheproof.spec.records import RowsRead, SlotsRead, StoreMemory, Twins
from cacheproof.spec.registry import Component

COMPONENT = "engine"


rules = Component(COMPONENT)


@rules.pair(
    "EQ-1",
    "safety",
    "What a request is answered does not depend on caching, chunking, eviction or preemption",
    source="greedy decoding of a causal model in float32 on one thread: a prompt has one answer",
)
def equal_prompts_equal_outputs(p: Twins) -> bool:
    return p.one == p.other


@rules.mirror(
    "WM-3a",
    "safety",
    "The memory that the worker's store keeps alive never exceeds that of the capacity",
    source="the capacity is what memory profiling sets aside; rows are counted, and bytes are used",
)
def memory_within_capacity(w: StoreMemory) -> bool:
    return w.held <= w.capacity


@rules.mirror(
    "WM-5",
    "safety",
    "Each gathered row is the row of that item, at that place in it, of its last encode",
    source="a row that is another's puts one item's content where another's belongs",
)
def rows_are_their_own(w: RowsRead) -> bool:
    return w.found == w.expected


@rules.mirror(
    "WM-6",
    "safety",
    "Each KV slot that a request attends to holds the KV of the request's own prefix",
    source="BK-2 of what is in the blocks: tokens and items of the whole prefix decide KV",
)
def slots_are_their_own(w: SlotsRead) -> bool:
    return w.found == w.expected
