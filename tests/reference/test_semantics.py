"""Each flag alone changes a decision, says what it is about, and is true of its releases."""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.releases import FIRST_MODELLED, MODELLED, model_of
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, Request
from cacheproof.reference.semantics import CHANGES, NotModelled, Semantics, UnknownRelease
from cacheproof.reference.semantics.change import Change
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics
from cacheproof.spec.versions import release_key


def request(name: str, *sizes: tuple[str, int]) -> Request:
    """A request that shows items of the given identifiers and sizes one after the other."""
    features, offset = [], 0
    for identifier, size in sizes:
        features.append(MultiModalFeature.of(identifier, PlaceholderRange(offset, size)))
        offset += size
    return Request(name, offset, features)


def encode(manager: EncoderCacheManager, shows: Request, input_id: int = 0) -> bool:
    admitted = manager.can_allocate(shows, input_id, 100, 0)
    if admitted:
        manager.allocate(shows, input_id)
    return admitted


def reported_in_the_step_of_its_encode(semantics: EncoderCacheSemantics) -> Any:
    manager = EncoderDecoderCacheManager(10, semantics)
    encode(manager, request("r1", ("a", 4)))
    return manager.get_freed_mm_hashes(), manager.get_freed_mm_hashes()


def releasable_inputs_of_who_claimed_nothing(semantics: EncoderCacheSemantics) -> Any:
    manager = EncoderCacheManager(10, semantics)
    encode(manager, request("r1", ("a", 4)))
    return manager.get_cached_input_ids(request("r2", ("a", 4)))


def notices_of_an_entry_that_came_back(semantics: EncoderCacheSemantics) -> Any:
    manager = EncoderCacheManager(4, semantics)
    first = request("r1", ("a", 4))
    encode(manager, first)
    manager.free(first)
    encode(manager, request("r2", ("b", 1)))
    manager.free(request("r2", ("b", 1)))
    encode(manager, request("r3", ("a", 4)))
    return manager.get_freed_mm_hashes()


def holders_after_the_first_occurrence(semantics: EncoderCacheSemantics) -> Any:
    manager = EncoderCacheManager(10, semantics)
    twice = request("r1", ("a", 4), ("a", 4))
    encode(manager, twice)
    manager.check_and_update_cache(twice, 1)
    manager.free_encoder_input(twice, 0)
    return manager.cached["a"], manager.num_freeable_slots


def credit_for_a_smaller_release(semantics: EncoderCacheSemantics) -> Any:
    manager = EncoderCacheManager(10, semantics)
    large, small = request("r1", ("a", 4)), request("r2", ("a", 1))
    encode(manager, large)
    manager.check_and_update_cache(small, 0)
    manager.free(large)
    manager.free(small)
    return manager.num_freeable_slots


def slots_after_a_second_release(semantics: EncoderCacheSemantics) -> Any:
    manager = EncoderDecoderCacheManager(10, semantics)
    shows = request("r1", ("a", 4))
    encode(manager, shows)
    manager.free_encoder_input(shows, 0)
    manager.free_encoder_input(shows, 0)
    return manager.num_free_slots


DECISIONS: dict[str, tuple[Callable[[EncoderCacheSemantics], Any], Any, Any]] = {
    "delays_decoder_notices": (
        reported_in_the_step_of_its_encode,
        ([], ["a"]),
        (["a"], []),
    ),
    "remembers_claims": (releasable_inputs_of_who_claimed_nothing, set(), {0}),
    "drops_stale_notices": (notices_of_an_entry_that_came_back, ["b"], ["a", "b"]),
    "holds_until_last_occurrence": (
        holders_after_the_first_occurrence,
        ({"r1"}, 6),
        (set(), 10),
    ),
    "remembers_sizes": (credit_for_a_smaller_release, 10, 7),
    "releases_decoder_once": (slots_after_a_second_release, 10, 14),
}


@pytest.mark.parametrize("flag", DECISIONS)
def test_a_flag_alone_changes_a_decision(flag: str) -> None:
    decide, ideal, without = DECISIONS[flag]
    assert decide(EncoderCacheSemantics()) == ideal
    assert decide(replace(EncoderCacheSemantics(), **{flag: False})) == without


@pytest.mark.parametrize(
    ("flag", "lane"),
    [
        ("encoder_cache.counts_embeds", "encoder cache"),
        ("encoder_cache.frees_stalled", "encoder cache"),
        ("encoder_cache.resets", "encoder cache"),
        ("encoder_cache.refuses_resized", "encoder cache"),
        ("encoder_cache.claims_duplicates", "encoder cache"),
        ("encoder_cache.releases_on_update", "scheduler"),
    ],
)
def test_a_flag_alone_changes_how_the_scheduler_calls_its_manager(flag: str, lane: str) -> None:
    trace = LANES[lane].trace(0, None)
    ideal, without = (
        ReferenceTarget(semantics).run([trace])[0]
        for semantics in (Semantics.ideal(), Semantics.ideal().without(flag))
    )
    assert not without.illegal
    assert compare(ideal, without) is not None


def test_every_flag_is_named_by_a_test_that_shows_it() -> None:
    """Or by a story that does without it. Those of block keys are not: their test goes over all of
    them."""
    tests = Path(__file__).parents[1]
    named = {
        node.value.rpartition(".")[2]
        for path in tests.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    stories = "\n".join(path.read_text() for path in tests.rglob("stories/*.txt"))
    told = re.findall(r"^\S+ with(?:out)? .*", stories, re.MULTILINE)
    named |= {word for line in told for word in re.findall(r"\w+\.(\w+)", line)}
    flags = {flag for flag in CHANGES if not flag.startswith("block_keys.")}
    assert {flag for flag in flags if flag.rpartition(".")[2] not in named} == set()


def test_the_ideal_has_every_change() -> None:
    assert Semantics.ideal().flags == dict.fromkeys(CHANGES, True)


def test_every_component_has_flags_and_no_two_have_one_of_the_same_name() -> None:
    parts = Counter(flag.partition(".")[0] for flag in CHANGES)
    assert list(parts) == [part.name for part in fields(Semantics)]
    assert len({flag.partition(".")[2] for flag in CHANGES}) == len(CHANGES)


def test_flags_are_changed_by_their_dotted_names() -> None:
    changed = Semantics.ideal().changed({"kv_cache.caches_aligned": False})
    assert not changed.kv_cache.caches_aligned
    assert changed == Semantics.ideal().without("kv_cache.caches_aligned")
    assert changed.changed({"kv_cache.caches_aligned": True}) == Semantics.ideal()
    assert Semantics.ideal().changed(changed.flags) == changed


@pytest.mark.parametrize("flag", ["caches_aligned", "scheduler.caches_aligned", "kv_cache.absent"])
def test_a_flag_that_there_is_not_is_refused_by_name(flag: str) -> None:
    with pytest.raises(ValueError, match=f"no flag of the semantics: {flag}"):
        Semantics.ideal().without(flag)


@pytest.mark.sample(3)
@pytest.mark.parametrize("flag", CHANGES)
def test_a_change_comes_with_its_release_and_stays_until_another(flag: str) -> None:
    change = CHANGES[flag]
    is_true = False
    for release in MODELLED:
        is_true = (is_true or release == change.first) or release == change.again
        assert Semantics.of_vllm(release).flags[flag] is is_true
        is_true = is_true and release != change.last


def complaints(change: Change) -> list[str]:
    """What a flag does not say as it should."""
    named = [one for one in (change.first, change.last, change.again) if one is not None]
    said = {
        "a release that is not modelled": not {*named} <= {*MODELLED},
        "releases that are not in order": named != sorted(named, key=release_key),
        "a last release without a first": change.first is None and len(named) > 0,
        "a return without an end": change.last is None and change.again is not None,
        "no function": not re.fullmatch(r"\w+(\.\w+)?", change.function),
        "a sentence that leans on its neighbour": bool(
            re.match(r"(so|the same|and|but|nor|its|it|they|those)\b", change.sentence)
        ),
        "no sentence of its own": not re.fullmatch(r"\S.{10,}[^.\s]", change.sentence),
        "an empty thread": change.thread == "",
    }
    return [complaint for complaint, holds in said.items() if holds]


@pytest.mark.sample(3)
@pytest.mark.parametrize("flag", CHANGES)
def test_a_change_says_where_it_is_since_when_and_what_in_a_sentence_of_its_own(flag: str) -> None:
    assert complaints(CHANGES[flag]) == []
    assert [one.sentence for one in CHANGES.values()].count(CHANGES[flag].sentence) == 1


GOOD = Change("0.11.0", None, None, "Scheduler.schedule", "requests are scheduled in order", None)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"first": "0.11.5"}, "a release that is not modelled"),
        ({"last": "0.10.2"}, "releases that are not in order"),
        ({"first": None, "last": "0.12.0"}, "a last release without a first"),
        ({"again": "0.12.0"}, "a return without an end"),
        ({"function": ""}, "no function"),
        ({"function": "the scheduler"}, "no function"),
        ({"sentence": "so does every freed block"}, "a sentence that leans on its neighbour"),
        ({"sentence": "the same for frames"}, "a sentence that leans on its neighbour"),
        ({"sentence": "and the blocks of drafts"}, "a sentence that leans on its neighbour"),
        ({"sentence": ""}, "no sentence of its own"),
        ({"thread": ""}, "an empty thread"),
    ],
)
def test_a_change_that_does_not_is_complained_of(
    change: dict[str, str | None], complaint: str
) -> None:
    assert complaints(GOOD) == []
    assert complaints(replace(GOOD, **change)) == [complaint]  # type: ignore[arg-type]


def test_a_change_is_told_of_in_its_thread_or_else_in_the_function() -> None:
    assert GOOD.source == "release source: Scheduler.schedule"
    assert replace(GOOD, thread="vLLM #1").source == "vLLM #1"


def test_what_a_release_lost_its_predecessor_has() -> None:
    assert Semantics.of_vllm("0.28.0").scheduler.sends_all_items
    assert not Semantics.of_vllm("0.29.0").scheduler.sends_all_items


def test_what_a_release_lost_a_later_one_can_have_again() -> None:
    stacks = [
        Semantics.of_vllm(release).kv_cache.stacks_without_caching
        for release in ("0.23.0", "0.24.0", "0.26.0", "0.27.0", "0.27.1", "0.28.0")
    ]
    assert stacks == [False, True, True, False, False, True]


def test_a_release_before_sharing_is_not_modelled_and_says_what_to_do() -> None:
    with pytest.raises(NotModelled, match=r"vLLM 0\.10\.1\.1 .* run it with contracts only"):
        Semantics.of_vllm("0.10.1.1")
    assert Semantics.of_vllm(FIRST_MODELLED)


def test_what_is_no_release_is_refused() -> None:
    with pytest.raises(ValueError, match="not a release number"):
        Semantics.of_vllm("newest")


def test_a_release_that_is_not_modelled_is_warned_of_and_has_the_one_before_it() -> None:
    with pytest.warns(UnknownRelease, match=r"0\.99\.0 .* those of 0\.33\.0"):
        assert Semantics.of_vllm("0.99.0") == Semantics.of_vllm("0.33.0")
    assert model_of("0.20.7") == "0.20.2"


def test_a_modelled_release_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for release in MODELLED:
            Semantics.of_vllm.cache_clear()
            assert Semantics.of_vllm(release)
