"""The engine: what requests are answered, and what memory that takes, when steps are executed."""

from cacheproof.spec.records import StoreMemory, Twins
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
