"""The media hash: one key for one content, in every process, whichever way it is put.

`p` is a pair of hashed calls, or one call hashed twice, or (MH-1) a stream and what a decoder makes
of it; `c` is what came of one call. What a content is, `reference/media_content.py` says; for a
pair it is worked out from how the values are described, never from what a release answered.
"""

from typing import NamedTuple

from cacheproof.spec.registry import Component

COMPONENT = "media_hash"


class HashedPair(NamedTuple):
    """Two calls of one hasher on described values, or the same call twice.

    same_content: no processor can tell the two apart
    same_form: images alike in mode and stored pixels, or arrays alike in their bytes, also have one
        size and palette, or one shape and dtype; True where the two differ in anything else
    same_spelling: built alike but for where the values lie in memory, the layout of arrays, and
        lists for tuples
    same_but_order: spelled alike but for the order of keywords or of a mapping, which differs
    same_but_pixels: spelled alike but for images, each of which has its counterpart's own id, and
        for the files that these come from; one of these differs
    """

    same_content: bool
    same_form: bool
    same_spelling: bool
    same_but_order: bool
    same_but_pixels: bool
    first_digest: str
    second_digest: str


class HashAnswer(NamedTuple):
    """What came of a call: the type of the exception in the place of a digest, empty for none."""

    raised: str


class DecodedStream(NamedTuple):
    """The tree that was hashed, and what decoding the hashed bytes gives."""

    hashed: object
    decoded: object


rules = Component(COMPONENT)


@rules.pair(
    "MH-1",
    "safety",
    "What is fed to the digest can be decoded again, so no two contents have one stream",
    source="injectivity; the digest itself is taken as collision-free",
    applies_to=("media_stream",),
)
def uniquely_decodable(p: DecodedStream) -> bool:
    return p.decoded == p.hashed


@rules.pair(
    "MH-2",
    "efficiency",
    "The order of keyword arguments and of mappings does not matter",
    source="keyword arguments and mappings have no order",
)
def order_irrelevant(p: HashedPair) -> bool:
    return not p.same_but_order or p.first_digest == p.second_digest


@rules.pair(
    "MH-3",
    "safety",
    "Different contents never have one digest",
    source="the digest is the key of the processor's cache, the encoder cache and the KV blocks",
)
def different_content_apart(p: HashedPair) -> bool:
    return p.same_content or p.first_digest != p.second_digest


@rules.pair(
    "MH-3a",
    "safety",
    "Images of another size or palette and arrays of another shape or dtype have other digests",
    source="vLLM PR #17378",
)
def different_form_apart(p: HashedPair) -> bool:
    return p.same_form or p.first_digest != p.second_digest


@rules.pair(
    "MH-4",
    "efficiency",
    "Equal values have one digest, in every process and wherever they lie in memory",
    source="an item is looked up by a digest that another process may have made",
)
def equal_values_together(p: HashedPair) -> bool:
    return not p.same_spelling or p.first_digest == p.second_digest


@rules.answer(
    "MH-5",
    "safety",
    "A call that can be described has a digest",
    source="vLLM MultiModalHasher.hash_kwargs: a request whose item has no key is refused",
)
def has_a_digest(c: HashAnswer) -> bool:
    return c.raised == ""


@rules.pair(
    "MH-6",
    "efficiency",
    "An image that carries an id of its own is known by it",
    source="vLLM MultiModalHasher.serialize_item: a UUID in EXIF ImageID is the key, pixels need "
    "not be hashed, and another process finds what is cached; of fetched images since 0.13.0",
    versions=">=0.13.0",
)
def own_id_is_the_key(p: HashedPair) -> bool:
    return not p.same_but_pixels or p.first_digest == p.second_digest
