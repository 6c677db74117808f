"""The engine: what requests are answered, when the steps that a scheduler decides are executed."""

from cacheproof.spec.records import Twins
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
