"""What is written down of a break, and what is said to be listed of it."""

from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.findings.finding import Finding, found_in
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.known import Cause, KnownFault
from cacheproof.differential.search.noting import Noting
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.semantics import Semantics

OLD = "0.31.0"
FAULT = KnownFault(
    "one",
    "a title",
    "safety",
    cause=(Cause(("encoder_cache.claims_duplicates",), ("EC-6a",)),),
)


def finding() -> Finding:
    target = ReferenceTarget(Semantics.of_vllm(OLD), release=OLD)
    for seed in range(60):
        found = found_in(target, LANES["encoder cache"].trace(seed, OLD), "EC-6a", None, batches=0)
        if found is not None:
            return found
    raise AssertionError("nothing broke")


def test_what_a_small_trace_shows_by_no_cause_is_new_though_the_large_one_was_listed() -> None:
    noting, found = Noting([FAULT], shrinks_listed=True), finding()
    told = noting.annotated(found.attributed(Attributed("one")))
    assert (told.fault, told.known_note) == ("one", "a title")
    told = noting.annotated(found.attributed(Attributed(why="EC-6a breaks without one too")))
    assert (told.fault, told.known_note) == (None, None)
