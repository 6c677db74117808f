"""Described values mean what their objects hold; the judge and the search find what is planted."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cacheproof.differential.media_hash import (
    Description,
    MediaHashJudge,
    call,
    content,
    pair_of,
    spelling,
)
from cacheproof.differential.media_hash_generator import MAKERS, pair
from cacheproof.differential.media_hash_search import Search, trace_of
from cacheproof.differential.media_hash_values import (
    array,
    boolean,
    image,
    integer,
    mapping,
    media,
    sequence,
    text,
)
from cacheproof.differential.record import TraceResult
from cacheproof.differential.targets.host.media_hash import MediaHashSession
from cacheproof.differential.targets.host.media_hash_faults import MEDIA_HASH_FAULTS
from cacheproof.differential.targets.host.media_values import Builder, Unbuildable, limited
from cacheproof.differential.targets.host.session import run_events
from cacheproof.reference import media_content
from cacheproof.reference.media_hash import Indeterminate, MediaWithBytes, MultiModalHasher
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.registry import by_id

KINDS = {"image", "array"}
WRAPPER = limited(MediaWithBytes, KINDS, takes_settings=True)
SEEDS = range(300)


class InProcess:
    """A target over one hash function, without a process."""

    release = None

    def __init__(self, hash_arguments: Callable[[dict[str, Any]], str]) -> None:
        self._hash = hash_arguments

    def run(self, traces: Sequence[Any], fault: str | None = None) -> list[TraceResult]:
        return [
            TraceResult(
                run_events(  # type: ignore[arg-type]
                    MediaHashSession(self._hash, WRAPPER, (Indeterminate,), fault=fault),
                    trace["events"],
                )
            )
            for trace in traces
        ]


def reference(semantics: Semantics) -> InProcess:
    hasher = MultiModalHasher(semantics)
    return InProcess(lambda arguments: hasher.hash_kwargs("sha256", **arguments))


def search(target: InProcess, seeds: range = SEEDS, fault: str | None = None) -> Search:
    found = Search(target, fault=fault)  # type: ignore[arg-type]
    found.run(seeds)
    return found


def buildable(value: Description) -> bool:
    try:
        Builder(WRAPPER).arguments(value)
    except Unbuildable:  # torch is not among the tests' libraries
        return False
    return True


def test_a_pair_is_a_pure_function_of_its_seed() -> None:
    assert [pair(seed) for seed in SEEDS] == [pair(seed) for seed in SEEDS]
    assert pair(1) != pair(2)


def test_every_way_is_taken() -> None:
    assert {pair(seed).way for seed in SEEDS} == set(MAKERS)


def test_descriptions_and_objects_have_equal_contents_at_the_same_seeds() -> None:
    """Two workings of one policy: from the description, and from the object that it stands for."""
    compared = 0
    for seed in SEEDS:
        one = pair(seed)
        if not (buildable(one.first) and buildable(one.second)):
            continue
        try:
            trees = [
                media_content.call(Builder(WRAPPER).arguments(value))
                for value in (one.first, one.second)
            ]
        except media_content.Refused:
            continue
        compared += 1
        encoded = [media_content.encode(tree) for tree in trees]
        assert (encoded[0] == encoded[1]) == (content(one.first) == content(one.second)), one
    assert compared > len(SEEDS) * 2 // 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (integer(1), boolean(True)),
        (sequence(integer(1)), mapping(("0", integer(1)))),
        (mapping((integer(1), text("a"))), mapping(("1", text("a")))),
        (array(b"abcd"), array(b"abcd", "<i4", (1,))),
        (image("L", (1, 1), b"a"), image("L", (1, 1), b"a", transparency=0)),
        (media(array(b"a"), b"file"), media(array(b"b"), b"file")),
    ],
)
def test_these_contents_differ(one: Description, other: Description) -> None:
    assert content(one) != content(other)
    assert spelling(one) != spelling(other)


@pytest.mark.parametrize(
    ("one", "other", "spelled_alike"),
    [
        (sequence(integer(1)), sequence(integer(1), kind="tuple"), True),
        (array(b"abcd", shape=(2, 2)), array(b"abcd", shape=(2, 2), layout="F"), True),
        (
            mapping(("a", text("")), ("b", text(""))),
            mapping(("b", text("")), ("a", text(""))),
            False,
        ),
        (media(array(b"a"), b"file"), media(array(b"a"), b"other file"), False),
        (media(array(b"a"), b"file"), array(b"a"), False),
    ],
)
def test_these_contents_are_equal(
    one: Description, other: Description, spelled_alike: bool
) -> None:
    assert content(one) == content(other)
    assert (spelling(one) == spelling(other)) is spelled_alike


def test_another_order_is_told_from_another_spelling() -> None:
    one, other = call(a=text(""), b=text("")), call(b=text(""), a=text(""))
    assert pair_of(one, other, "x", "x").same_but_order
    assert not pair_of(one, one, "x", "x").same_but_order
    assert not pair_of(one, call(a=text("")), "x", "x").same_but_order


def judged(*outcomes: tuple[Description, dict[str, Any] | None]) -> dict[str, str]:
    judge = MediaHashJudge()
    for number, (value, outcome) in enumerate(outcomes):
        judge.judge(number, SimpleNamespace(value=value), (outcome, [], None, None))
    return {id: violation.sentence for id, violation in judge.violations.items()}


def test_a_collision_is_named_with_both_places() -> None:
    one, other = call(a=integer(1)), call(a=integer(2))
    found = judged((one, {"digest": "d"}), (other, {"digest": "d"}))
    assert set(found) == {"MH-3"}
    assert found["MH-3"].startswith("MH-3 at event 2 (hash): beside event 1: ")


def test_digests_that_change_break_the_contract_of_equal_values() -> None:
    assert set(judged((call(a=integer(2**64)), {"unstable": True}))) == {"MH-4"}


def test_what_raised_or_could_not_be_built_is_not_judged() -> None:
    one, other = call(a=integer(1)), call(a=integer(2))
    assert not judged((one, {"raises": "TypeError"}), (other, None), (one, {"digest": "d"}))


def test_the_ideal_hash_keeps_every_contract() -> None:
    found = search(reference(Semantics.ideal()))
    assert found.counts == {}
    assert not found.stray
    assert found.hashed > len(SEEDS)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("0.33.0", {"wrapped_integers", "zeros", "types_of_key", "framed_as_argument"}),
        ("0.28.0", {"moved_boundary", "swallowed_argument", "path_as_key", "list_as_mapping"}),
    ],
)
def test_the_ways_in_which_a_release_collides_are_found(release: str, expected: set[str]) -> None:
    found = search(reference(Semantics.of_vllm(release)))
    ways = {way for contract, way in found.counts if contract == "MH-3"}
    assert expected <= ways
    assert ("MH-4", "huge_integers") in found.counts
    assert ("MH-2", "orders") in found.counts


def test_an_array_hash_without_shape_and_dtype_breaks_the_contract_of_forms() -> None:
    def bytes_alone(arguments: dict[str, Any]) -> str:
        return repr([(name, bytes(value)) for name, value in arguments.items()])

    found = search(InProcess(bytes_alone))
    assert {"reshaped_array", "retyped_array"} <= {way for id, way in found.counts if id == "MH-3a"}
    sound = search(reference(Semantics.of_vllm("0.33.0")))
    assert not any(id == "MH-3a" for id, _ in sound.counts)
    assert min(sound.reached[way] for way in ("reshaped_array", "palettes", "image_forms")) > 0


def test_the_same_seeds_give_the_same_findings() -> None:
    first, second = (search(reference(Semantics.of_vllm("0.33.0"))) for _ in range(2))
    assert first.counts == second.counts
    assert first.found == second.found


def test_a_trace_can_be_judged_event_by_event() -> None:
    found = search(reference(Semantics.of_vllm("0.33.0")))
    seed = found.found["MH-3", "zeros"]
    (result,) = reference(Semantics.of_vllm("0.33.0")).run([trace_of(pair(seed))])
    judge = MediaHashJudge()
    for number, (event, record) in enumerate(
        zip(trace_of(pair(seed))["events"], result.records, strict=True)
    ):
        judge.judge(number, SimpleNamespace(**event), record)
    assert by_id("MH-3") in {violation.contract for violation in judge.violations.values()}


@pytest.mark.parametrize(
    ("fault", "contracts"),
    [
        ("forgets_forms", {"MH-3", "MH-3a"}),
        ("forgets_frames", {"MH-3"}),
        ("forgets_kinds_of_containers", {"MH-3"}),
        ("leans_on_order", {"MH-2"}),
        ("never_repeats", {"MH-4"}),
    ],
)
def test_a_planted_fault_breaks_its_contract(fault: str, contracts: set[str]) -> None:
    found = search(reference(Semantics.ideal()), fault=fault)
    assert contracts <= {id for id, _ in found.counts}


def test_every_fault_is_planted_here() -> None:
    assert set(MEDIA_HASH_FAULTS) == {
        "forgets_forms",
        "forgets_frames",
        "forgets_kinds_of_containers",
        "leans_on_order",
        "never_repeats",
    }
