"""Block keys of the reference: injective encodings, and equal keys for equal content alone."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheproof.differential.generators.block_hash import block_hash_trace
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.block_hash import (
    continue_request,
    get_request_block_hasher,
    none_hash,
)
from cacheproof.reference.hash_functions import Algorithm, algorithms, hash_function
from cacheproof.reference.request import (
    LoRARequest,
    MultiModalFeature,
    PlaceholderRange,
    PromptEmbeds,
    TokenRequest,
)
from cacheproof.reference.semantics import CHANGES, Semantics
from cacheproof.reference.semantics.block_keys import BlockKeySemantics

IDEAL = BlockKeySemantics()
LEAVES = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(0, 3)
    | st.text(max_size=4)
    | st.binary(max_size=4)
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)


def request(
    tokens: Sequence[int],
    items: Sequence[tuple[str, int, int]] = (),
    semantics: BlockKeySemantics = IDEAL,
    lookahead: int = 0,
    algorithm: Algorithm = "sha256",
    **more: Any,
) -> TokenRequest:
    function = hash_function(semantics, algorithm)
    hasher = get_request_block_hasher(2, function, lookahead, semantics=semantics, seed="0")
    features = [
        MultiModalFeature(name, PlaceholderRange(offset, length), name)
        for name, offset, length in items
    ]
    return TokenRequest("r", tokens, features, block_hasher=hasher, **more)


@pytest.mark.sample(3)
@pytest.mark.parametrize("algorithm", algorithms(IDEAL))
@given(VALUES, VALUES)
def test_unequal_values_are_encoded_apart_and_equal_ones_alike(
    algorithm: Algorithm, one: Any, other: Any
) -> None:
    function = hash_function(IDEAL, algorithm)
    assert (function(one) == function(other)) is (one == other)


@pytest.mark.parametrize(
    ("algorithm", "parent"),
    [
        ("sha256", "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c"),
        ("sha256_cbor", "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e"),
        ("xxhash", "6fb31cc38bba6066183f7f2104b9c051"),
        ("xxhash_cbor", "1ebe36576dcb573f26b99533a20aaeca"),
    ],
)
def test_the_first_parent_is_that_of_the_function(algorithm: Algorithm, parent: str) -> None:
    """As `kv_cache_utils.NONE_HASH` of vLLM 0.33.0 under PYTHONHASHSEED=0."""
    function = hash_function(Semantics.of_vllm("0.33.0").block_keys, algorithm)
    assert none_hash(function, "0").hex() == parent
    assert none_hash(function, "1").hex() != parent


def test_a_release_offers_the_functions_that_it_has_and_refuses_others_by_name() -> None:
    old = Semantics.of_vllm("0.12.0").block_keys
    assert algorithms(old) == ("sha256", "sha256_cbor")
    assert algorithms(Semantics.of_vllm("0.13.0").block_keys) == algorithms(IDEAL)
    with pytest.raises(ValueError, match=r"no block hash 'xxhash'; expected one of sha256, sha2"):
        hash_function(old, "xxhash")


def test_only_full_blocks_have_keys_and_each_names_its_prefix() -> None:
    one, other = request([1, 2, 3, 4, 5]), request([9, 2, 3, 4, 5])
    assert len(one.block_hashes) == 2
    assert not set(one.block_hashes) & set(other.block_hashes)
    assert one.block_hashes == request([1, 2, 3, 4]).block_hashes


@pytest.mark.parametrize(
    "changed",
    [
        {"items": [("y", 1, 2)]},
        {"items": [("x", 2, 1)]},
        {"items": []},
        {"cache_salt": "x"},
        {"lora_request": LoRARequest("x", 1, "p")},
        {"lora_request": LoRARequest("x", 1, "q")},
        {"prompt_embeds": PromptEmbeds((b"\0" * 4,) * 4, (True, False, False, False))},
        {"prompt_embeds": PromptEmbeds((b"\0" * 4,) * 4, (False, True, False, False))},
    ],
    ids=str,
)
def test_whatever_determines_the_kv_is_in_the_key(changed: dict[str, Any]) -> None:
    plain = {"tokens": [0, 3, 3, 0], "items": [("x", 1, 2)]}
    keys = request(**plain).block_hashes
    others = request(**{**plain, **changed}).block_hashes
    assert keys[1] != others[1]
    assert others == request(**{**plain, **changed}).block_hashes


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.data())
def test_growing_gives_the_keys_of_hashing_afresh(tokens: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(tokens)))
    starts = sorted(data.draw(st.sets(st.integers(0, cut - 1), max_size=3)))
    items = [("x", start, 1) for start in starts]
    lookahead = data.draw(st.integers(0, 2))
    grown = request(tokens[:cut], items, lookahead=lookahead)
    for token in tokens[cut:]:
        grown.append_output_token_ids([token])
    assert grown.block_hashes == request(tokens, items, lookahead=lookahead).block_hashes


def test_before_it_was_mended_growing_forgot_all_items_but_the_last() -> None:
    """Red twin of the property above: two requests with other images have one key."""
    old = Semantics.of_vllm("0.30.0").block_keys
    keys = []
    for image in ("x", "y"):
        grown = request([1, 1, 3, 3], [(image, 2, 1), ("z", 3, 1)], old)
        tail = request([1, 1, 3], [(image, 2, 1)], old)
        tail.mm_features = grown.mm_features
        tail.append_output_token_ids([3])
        keys.append((grown.block_hashes[1], tail.block_hashes[1]))
    (fresh_x, grown_x), (fresh_y, grown_y) = keys
    assert fresh_x != fresh_y
    assert grown_x == grown_y


def continued(
    semantics: BlockKeySemantics = IDEAL, lookahead: int = 0, discarded: int = 8
) -> TokenRequest:
    """[1, 2, 3], stopped at a token, and then [4, 5] with an item on the last of them."""
    grown = request([1, 2, 3], semantics=semantics, lookahead=lookahead)
    grown.append_output_token_ids([discarded])
    kept = grown.num_tokens - 1
    continue_request(grown, request([4, 5], [("x", 1, 1)]), 2, kept=kept, semantics=semantics)
    return grown


def test_a_continued_request_has_the_keys_of_its_tokens() -> None:
    grown = continued()
    assert grown.all_token_ids == [1, 2, 3, 4, 5]
    assert grown.num_prompt_tokens == 5
    assert grown.mm_features[0].mm_position == PlaceholderRange(4, 1)
    grown.append_output_token_ids([6])
    assert grown.block_hashes == request([1, 2, 3, 4, 5, 6], [("x", 4, 1)]).block_hashes


def test_before_it_was_mended_a_discarded_token_stayed_in_the_key() -> None:
    """Red twin: the block of [3, 4] has the key of [3, 8]."""
    old = Semantics.of_vllm("0.31.0").block_keys
    assert continued(old).block_hashes == request([1, 2, 3, 8], semantics=old).block_hashes


def test_a_block_keeps_the_look_ahead_that_its_drafter_computed_with() -> None:
    grown = request([1, 2], lookahead=1)
    grown.append_output_token_ids([8])
    continue_request(grown, request([3, 4, 5]), 2, kept=grown.num_tokens - 1, semantics=IDEAL)
    assert grown.block_hashes[:1] == request([1, 2, 8], lookahead=1).block_hashes
    assert grown.block_hashes != request([1, 2, 3, 4, 5], lookahead=1).block_hashes


def test_look_ahead_tokens_are_in_the_key_and_awaited() -> None:
    assert len(request([1, 2], lookahead=1).block_hashes) == 0
    one, other = request([1, 2, 3], lookahead=1), request([1, 2, 4], lookahead=1)
    assert one.block_hashes != other.block_hashes


def test_the_hash_of_the_ideal_does_not_depend_on_shared_objects() -> None:
    name = "".join(["ima", "ge"])
    twin = name.encode().decode()
    assert name is not twin
    shared, apart = ((name, name), (name, twin))
    release = Semantics.of_vllm("0.33.0").block_keys
    for algorithm in algorithms(release):
        of_content, of_release = hash_function(IDEAL, algorithm), hash_function(release, algorithm)
        assert of_content(shared) == of_content(apart)
        is_alike = of_release(shared) == of_release(apart)
        assert is_alike is algorithm.endswith("cbor")


SUPERSEDED_BY = {
    "block_keys.keys_item_offsets": "block_keys.tags_block_keys",
    "block_keys.passes_items_at_boundary": "block_keys.finds_items_when_grown",
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("flag", [flag for flag in CHANGES if flag.startswith("block_keys.")])
def test_each_flag_alone_changes_a_key(flag: str) -> None:
    newer = SUPERSEDED_BY.get(flag)
    base = Semantics.ideal().without(newer) if newer else Semantics.ideal()
    with_flag, without = (ReferenceTarget(semantics) for semantics in (base, base.without(flag)))
    traces = [block_hash_trace(seed) for seed in range(200)]
    assert with_flag.run(traces) != without.run(traces)
