"""The worker's store: after each step it holds what the ledger says, and no read misses.

The step `w` is executed as a worker does it: notices, then encodes, then gathers.
"""

from cacheproof.spec.records import Step
from cacheproof.spec.registry import contract
from cacheproof.spec.vocabulary import total

COMPONENT = "worker_mirror"


@contract(
    "WM-1",
    "After a step the worker's store holds exactly the ledger's entries",
    kind="mirror",
    harm="safety",
    component=COMPONENT,
    source="vLLM SchedulerOutput.free_encoder_mm_hashes",
    applies_to=("encoder_cache",),
)
def store_is_ledger(w: Step) -> bool:
    return all(h in w.ledger or h in w.pending for h in w.store) and all(
        h in w.store for h in w.ledger
    )


@contract(
    "WM-2",
    "No gather misses: what a scheduled window reads is in the store",
    kind="mirror",
    harm="safety",
    component=COMPONENT,
    source="vLLM GPUModelRunner._gather_mm_embeddings asserts it",
    applies_to=("encoder_cache", "encoder_decoder_cache"),
)
def no_gather_misses(w: Step) -> bool:
    return all(h in w.store for h in w.gathered)


@contract(
    "WM-3",
    "The rows in the worker's store never exceed the capacity",
    kind="mirror",
    harm="safety",
    component=COMPONENT,
    source="the capacity is what memory profiling sets aside",
    applies_to=("encoder_cache", "encoder_decoder_cache"),
)
def store_within_capacity(w: Step) -> bool:
    return total(w.store) <= w.capacity


@contract(
    "WM-4",
    "A notice drops an entry of an earlier step, and none that this step still reads",
    kind="mirror",
    harm="safety",
    component=COMPONENT,
    source="vLLM PR #32789: the worker frees before it encodes",
    applies_to=("encoder_cache", "encoder_decoder_cache"),
)
def frees_before_encodes(w: Step) -> bool:
    return all(h in w.before or h not in w.encoded for h in w.notices) and all(
        h in w.encoded or h not in w.notices for h in w.gathered
    )
