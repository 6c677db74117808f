"""The worker's store: after each step it holds what the ledger says, and no read misses.

The step `w` is executed as a worker does it: notices, then encodes, then gathers.
"""

from cacheproof.spec.records import Step
from cacheproof.spec.registry import Component
from cacheproof.spec.vocabulary import total

COMPONENT = "worker_mirror"


rules = Component(COMPONENT, applies_to=("encoder_cache", "encoder_decoder_cache"))


@rules.mirror(
    "WM-1",
    "safety",
    "After a step the worker's store holds exactly the ledger's entries",
    source="vLLM SchedulerOutput.free_encoder_mm_hashes",
    applies_to=("encoder_cache",),
)
def store_is_ledger(w: Step) -> bool:
    return all(h in w.ledger or h in w.pending for h in w.store) and all(
        h in w.store for h in w.ledger
    )


@rules.mirror(
    "WM-2",
    "safety",
    "No gather misses: what a scheduled window reads is in the store",
    source="vLLM GPUModelRunner._gather_mm_embeddings asserts it",
)
def no_gather_misses(w: Step) -> bool:
    return all(h in w.store for h in w.gathered)


@rules.mirror(
    "WM-3",
    "safety",
    "The rows in the worker's store never exceed the capacity",
    source="the capacity is what memory profiling sets aside",
)
def store_within_capacity(w: Step) -> bool:
    return total(w.store) <= w.capacity


@rules.mirror(
    "WM-4",
    "safety",
    "A notice drops an entry of an earlier step, and none that this step still reads",
    source="vLLM PR #32789: the worker frees before it encodes",
)
def frees_before_encodes(w: Step) -> bool:
    return all(h in w.before or h not in w.encoded for h in w.notices) and all(
        h in w.encoded or h not in w.notices for h in w.gathered
    )
