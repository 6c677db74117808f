"""The judge of media hashes tells collisions apart and finds what is planted."""

from collections import Counter
from typing import Any

import pytest

from cacheproof.differential.generators.media_hash import media_hash_trace
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.media_hash import MediaHashJudge, pair_of
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.media.descriptions import Description, call
from cacheproof.differential.media.differences import refused_part
from cacheproof.differential.media.values import (
    integer,
    mapping,
    none,
    real,
    tensor,
    text,
)
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.targets.host.faults.media_hash import MEDIA_HASH_FAULTS
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.media_hash import Hash
from cacheproof.differential.traces.records import StepRecord
from cacheproof.reference.semantics import Semantics

TRACES = range(100)
NEEDS_TORCH = {"array against tensor"}
Kinds = Counter[tuple[str, str]]


def kinds_broken(
    semantics: Semantics, fault: str | None = None, reach: Reachability | None = None
) -> Kinds:
    """In how many traces the reference breaks each contract, kind by kind."""
    target, found = ReferenceTarget(semantics), Kinds()
    for seed in TRACES:
        trace = media_hash_trace(seed, release="0.10.2")
        result = target.run([trace], fault)[0]
        found.update(examine(trace, result, target, None, reach).by_kind.keys())
    return found


def test_another_order_is_told_from_another_spelling() -> None:
    one, other = call(a=text(""), b=text("")), call(b=text(""), a=text(""))
    assert pair_of(one, other, "x", "x").same_but_order
    assert not pair_of(one, one, "x", "x").same_but_order
    assert not pair_of(one, call(a=text("")), "x", "x").same_but_order


def judged(*outcomes: tuple[Description, dict[str, Any] | None]) -> dict[str, str]:
    judge = MediaHashJudge(None, Reachability())
    for number, (value, outcome) in enumerate(outcomes):
        judge.judge(number, Hash(value), StepRecord(outcome, [], None, None))
    return {id: violation.sentence for id, violation in judge.violations.items()}


def test_a_collision_is_named_with_both_places() -> None:
    one, other = call(a=integer(1)), call(a=integer(2))
    found = judged((one, {"digest": "d"}), (other, {"digest": "d"}))
    assert set(found) == {"MH-3"}
    assert found["MH-3"].startswith("MH-3 at event 2 (hash): beside event 1, value of an int: ")


def test_digests_that_change_break_the_contract_of_equal_values() -> None:
    assert set(judged((call(a=integer(2**64)), {"unstable": True}))) == {"MH-4"}


def test_what_could_not_be_built_is_not_judged_and_what_raised_breaks_one_contract() -> None:
    one, other = call(a=integer(1)), call(a=integer(2))
    assert not judged((other, None), (one, {"digest": "d"}))
    raised = judged((one, {"raises": "TypeError"}), (other, None), (one, {"digest": "d"}))
    assert set(raised) == {"MH-5"}


def test_the_ideal_hash_keeps_every_contract_and_meets_every_rare_state() -> None:
    reach = Reachability()
    assert not kinds_broken(Semantics.ideal(), reach=reach)
    assert set(reach.never(LANES["media hash"].rare)) <= NEEDS_TORCH


@pytest.mark.parametrize(
    ("release", "kinds"),
    [
        (
            "0.33.0",
            {
                "types over the same bytes",
                "type of a key",
                "array against str + names of arguments",
                "frames from one file",
            },
        ),
        (
            "0.28.0",
            {"names of arguments", "names of arguments + value of a str", "list against map"},
        ),
    ],
)
def test_the_ways_in_which_a_release_collides_are_told_apart(release: str, kinds: set[str]) -> None:
    found = kinds_broken(Semantics.of_vllm(release))
    assert kinds <= {kind for contract, kind in found if contract == "MH-3"}
    assert ("MH-4", "huge int") in found
    assert ("MH-2", "order of a mapping") in found
    assert "MH-3a" not in {contract for contract, _ in found}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("fault", "contract", "kind"),
    [
        ("forgets_forms", "MH-3a", "shape of an array"),
        ("forgets_forms", "MH-3", "mode of an image"),
        ("forgets_frames", "MH-3", "frames from one file"),
        ("forgets_kinds_of_containers", "MH-3", "list against map"),
        ("forgets_image_ids", "MH-6", "image or media"),
        ("leans_on_order", "MH-2", "order of arguments"),
        ("leans_on_layout", "MH-4", "layout of an array"),
        ("never_repeats", "MH-4", "image"),
        ("raises_now_and_then", "MH-5", ""),
    ],
)
def test_a_planted_fault_breaks_its_contract(fault: str, contract: str, kind: str) -> None:
    assert (contract, kind) in kinds_broken(Semantics.ideal(), fault)


def test_every_fault_is_planted_here() -> None:
    assert set(MEDIA_HASH_FAULTS) == {
        "nothing",
        "forgets_forms",
        "forgets_frames",
        "forgets_kinds_of_containers",
        "forgets_image_ids",
        "leans_on_order",
        "leans_on_layout",
        "never_repeats",
        "raises_now_and_then",
    }


def test_one_confusion_does_not_hide_another_in_a_trace() -> None:
    values = (integer(0), real(0.0), mapping(("1", none())), mapping((integer(1), none())))
    judge = MediaHashJudge(None, Reachability())
    for number, value in enumerate(values):
        digest = "ab"[number // 2]
        judge.judge(number, Hash(call(x=value)), StepRecord({"digest": digest}, [], None, None))
    assert set(judge.by_kind) == {("MH-3", "types over the same bytes"), ("MH-3", "type of a key")}
    assert list(judge.violations) == ["MH-3"]


def test_every_call_is_held_against_every_other() -> None:
    first, second, third = (call(x=integer(number)) for number in range(3))
    found = judged((first, {"digest": "d"}), (second, {"digest": "e"}), (third, {"digest": "d"}))
    assert "beside event 1" in found["MH-3"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (call(x=tensor(b"\x00\x00", "bfloat16", (1,))), "tensor of bfloat16"),
        (call(x=tensor(b"\x00\x00\x00\x00", "float32", ())), "array without an axis"),
        (call(x=tensor(b"\x00\x00\x00\x00", "float32", (1,))), ""),
    ],
)
def test_a_refusal_is_told_by_what_is_refused(value: Description, kind: str) -> None:
    """What is listed of one says nothing of another."""
    assert refused_part(value) == kind
    listed = [
        symptom
        for fault in load()
        for symptom in fault.symptom
        if symptom.covers("MH-5", kind, "0.8.5", None, None)
    ]
    assert bool(listed) == (kind == "tensor of bfloat16")
