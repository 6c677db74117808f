"""The engine: what requests are answered, and what memory that takes, when steps are executed."""

from cacheproof.spec.records import RowsRead, SlotsRead, StoreMemory, Twins
from cacheproof.spec.registry import contract

COMPONENT = "engine"


@contract(
    "EQ-1",
    "What a request is answered does not depend on caching, chunking, eviction or preemption",
    kind="pair",
    harm="safety",
    component=COMPONENT,
    source="greedy decoding of a causal model in float32 on one thread: a prompt has one answer",
)
def equal_prompts_equal_outputs(p: Twins) -> bool:
    return p.one == p.other


@contract(
    "WM-3a",
    "The memory that the worker's store keeps alive never exceeds that of the capacity",
    kind="mirror",
    harm="safety",
    component=COMPONENT,
    source="the capacity is what memory profiling sets aside; rows are counted, and bytes are used",
)
def memory_within_capacity(w: StoreMemory) -> bool:
    return w.held <= w.capacity


@contract(
    "WM-5",
    "Each gathered row is the row of that item, at that place in it, of its last encode",
    kind="mirror",
    harm="safety",
    component=COMPONENT,
    source="a row that is another's puts one item's content where another's belongs",
)
def rows_are_their_own(w: RowsRead) -> bool:
    return w.found == w.expected


@contract(
    "WM-6",
    "Each KV slot that a request attends to holds the KV of the request's own prefix",
    kind="mirror",
    harm="safety",
    component=COMPONENT,
    source="BK-2 of what is in the blocks: tokens and items of the whole prefix decide KV",
)
def slots_are_their_own(w: SlotsRead) -> bool:
    return w.found == w.expected
