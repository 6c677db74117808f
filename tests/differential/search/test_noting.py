"""What is written down of a break, and what is said to be listed of it."""

from msgspec.structs import replace

from cacheproof.differential.findings.breaks import Attributed
from cacheproof.differential.findings.finding import Finding, found_in
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.known import Cause, KnownFault
from cacheproof.differential.search.noting import Conclusions, Noting, face_of
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


def test_of_findings_that_are_one_the_smallest_is_kept_with_its_lane() -> None:
    large = replace(finding(), shape="any")
    small = replace(large, events=large.events[:-1])
    concluded = Conclusions(face_of)
    assert concluded.take(large, "one lane", 0.0)
    assert concluded.take(small, "another", 0.0)
    assert not concluded.take(large, "a third", 0.0)
    assert concluded.findings == [small]
    assert concluded.lanes_of == {small.key: "another"}


def test_a_listed_finding_hides_no_new_one_of_its_shape() -> None:
    new = replace(finding(), stopped_early=False)
    concluded = Conclusions(face_of)
    assert concluded.take(replace(new, fault="one"), "a lane", 0.0)
    assert concluded.take(new, "a lane", 0.0)
    assert len(concluded.findings) == len(concluded.records) == 2
