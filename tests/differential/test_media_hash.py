"""Described values mean what their objects hold; the judge and the search find what is planted."""

from collections import Counter
from typing import Any

import pytest

from cacheproof.differential.generators.media_hash import (
    MAKERS,
    PAIRS,
    media_hash_trace,
    pair,
)
from cacheproof.differential.judges.examine import examine
from cacheproof.differential.judges.media_hash import MediaHashJudge, pair_of
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.media import values as media_hash_values
from cacheproof.differential.media.descriptions import Description, call
from cacheproof.differential.media.differences import kind_of
from cacheproof.differential.media.meaning import content, spelling
from cacheproof.differential.media.values import (
    array,
    boolean,
    double,
    image,
    integer,
    mapping,
    media,
    none,
    raw,
    real,
    sequence,
    spelled,
    text,
    written,
)
from cacheproof.differential.targets.host.media_hash_faults import MEDIA_HASH_FAULTS
from cacheproof.differential.targets.host.media_values import Builder, Unbuildable, limited
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.media_hash import Hash
from cacheproof.differential.traces.trace_file import dump, parse
from cacheproof.reference import media_content
from cacheproof.reference.media_hash import MediaWithBytes
from cacheproof.reference.semantics import Semantics

WRAPPER = limited(MediaWithBytes, {"image", "array"}, takes_settings=True)
SEEDS = range(300)
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
    judge = MediaHashJudge(None, Reachability())
    for number, (value, outcome) in enumerate(outcomes):
        judge.judge(number, Hash(value), (outcome, [], None, None))
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
    assert set(raised) == {"MH-6"}


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


@pytest.mark.parametrize(
    ("fault", "contract", "kind"),
    [
        ("forgets_forms", "MH-3a", "shape of an array"),
        ("forgets_forms", "MH-3", "mode of an image"),
        ("forgets_frames", "MH-3", "frames from one file"),
        ("forgets_kinds_of_containers", "MH-3", "list against map"),
        ("forgets_image_ids", "MH-7", "image or media"),
        ("leans_on_order", "MH-2", "order of arguments"),
        ("leans_on_layout", "MH-4", "layout of an array"),
        ("never_repeats", "MH-4", "image"),
        ("raises_now_and_then", "MH-6", ""),
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


SHOWN = image("L", (1, 1), b"a")
OTHER = image("L", (1, 1), b"b")
IDENTIFIED = image("L", (1, 1), b"a", image_id={"uuid": "61" * 16})


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (integer(1), real(5e-324), "types over the same bytes"),
        (integer(2**64 - 1), integer(-1), "types over the same bytes"),
        (text(""), raw(b""), "types over the same bytes"),
        (boolean(True), real(1.0), "bool against float"),
        (integer(1), integer(2), "value of an int"),
        (integer(2**64), integer(2**65), "value of a huge int"),
        (sequence(integer(1)), mapping(("0", integer(1))), "list against map"),
        (sequence(integer(1)), sequence(integer(1), none()), "length of a list"),
        (sequence(), sequence(none()), "kinds of nothing"),
        (none(), raw(b""), "kinds of nothing"),
        (mapping(), sequence(kind="tuple"), "kinds of nothing"),
        (sequence(integer(1), kind="tuple"), mapping(("0", integer(1))), "list against map"),
        (mapping(("1", none())), mapping((integer(1), none())), "type of a key"),
        (mapping(("1", none())), mapping(("2", none())), "keys of a mapping"),
        (array(b"abcd"), array(b"abcd", shape=(2, 2)), "shape of an array"),
        (array(b"ab"), array(b"ab", "|i1"), "dtype of an array"),
        (array(b"ab", [["a", "|u1"]]), array(b"ab", [["b", "|u1"]]), "fields of an array"),
        (SHOWN, OTHER, "pixels of an image"),
        (SHOWN, IDENTIFIED, "image id"),
        (IDENTIFIED, raw(b"a" * 16), "image id over the same bytes"),
        (media(IDENTIFIED, b"f"), text("a" * 16), "image id over the same bytes"),
        (media(SHOWN, b"f"), media(OTHER, b"f"), "picture from one file"),
        (media(SHOWN, b"f"), media(OTHER, b"g"), "fetched bytes + pixels of an image"),
        (media(array(b"a"), b"f"), media(array(b"b"), b"f"), "frames from one file"),
        (
            media(SHOWN, b"f", mapping(("a", none()))),
            media(OTHER, b"f"),
            "decode settings + picture from one file",
        ),
        (sequence(none()), sequence(none(), kind="tuple"), "list or tuple"),
        (array(b"ab"), array(b"ab", layout="strided"), "layout of an array"),
        (media(SHOWN, b"f"), media(SHOWN, b"g"), "origin of a media"),
        (integer(2**64), integer(2**64), "huge int"),
    ],
)
def test_what_tells_two_values_apart_has_a_name(
    one: Description, other: Description, kind: str
) -> None:
    assert kind_of(call(x=one), call(x=other)) == kind
    assert kind_of(call(x=other), call(x=one)) == kind
    nested = (call(a=none(), x=mapping(("k", sequence(value)))) for value in (one, other))
    assert kind_of(*nested) == (f"{kind} + none + str" if one == other else kind)


def test_one_confusion_does_not_hide_another_in_a_trace() -> None:
    values = (integer(0), real(0.0), mapping(("1", none())), mapping((integer(1), none())))
    judge = MediaHashJudge(None, Reachability())
    for number, value in enumerate(values):
        digest = "ab"[number // 2]
        judge.judge(number, Hash(call(x=value)), ({"digest": digest}, [], None, None))
    assert set(judge.by_kind) == {("MH-3", "types over the same bytes"), ("MH-3", "type of a key")}
    assert list(judge.violations) == ["MH-3"]


def test_every_call_is_held_against_every_other() -> None:
    first, second, third = (call(x=integer(number)) for number in range(3))
    found = judged((first, {"digest": "d"}), (second, {"digest": "e"}), (third, {"digest": "d"}))
    assert "beside event 1" in found["MH-3"]


def test_a_trace_is_a_pure_function_of_its_seed_and_can_be_read_back() -> None:
    for seed in range(30):
        trace = media_hash_trace(seed)
        assert trace == media_hash_trace(seed)
        assert len(trace.events) == 2 * PAIRS
        assert parse(dump(trace).encode().splitlines(), "trace") == trace


def test_a_release_is_asked_for_the_algorithms_that_it_has() -> None:
    def asked(release: str | None) -> set[str]:
        headers = (media_hash_trace(seed, release=release).header for seed in range(10))
        return {header.config.algorithm for header in headers}  # type: ignore[union-attr]

    assert asked("0.8.5") == asked("0.14.1") == {"blake3"}
    assert asked("0.15.0") == asked(None) == {"blake3", "sha256", "sha512"}


def test_what_is_written_makes_the_value() -> None:
    words: dict[str, Any] = {**vars(media_hash_values), "call": call}
    odd = [double(b"\1" * 7 + b"\x7f"), double(bytes(6) + b"\xf0\x7f"), real(-0.0)]
    long = [text("a\"'" + "k" * 40 + "\\"), raw(b"'\"" + bytes(99)), text("k" * 99)]
    values = [call(**{"x y": value}) for value in (*odd, *long)]
    values += [value for seed in SEEDS for value in pair(seed)[1:]]
    for value in values:
        assert eval(written(value), words) == value


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("", '""'),
        ("k" * 40, '"k" * 40'),
        ("ab" + "k" * 40 + "c", '"ab" + "k" * 40 + "c"'),
        (bytes(20) + b"a", 'b"\\x00" * 20 + b"a"'),
    ],
)
def test_long_runs_are_written_as_products(content: str | bytes, shown: str) -> None:
    assert spelled(content) == shown
