"""The identifier of an item: one name for one item, from a front end to the stores.

`p` is two items of requests and the identifiers that they are given, `c` what came of a request. A
client may name an item by an id of its own (`uuid`); otherwise it is named by what it is.
"""

from typing import NamedTuple

from cacheproof.spec.registry import Component

COMPONENT = "media_identifier"


class NamedPair(NamedTuple):
    """Two items as requests name them, and the identifiers under which caches keep them.

    same_item: both are named by equal content, or both by one id of the user's
    same_adapter: the encoder runs with the same adapter for both, or with none
    """

    same_item: bool
    same_adapter: bool
    first_identifier: str
    second_identifier: str


class Naming(NamedTuple):
    """What came of a request: the type of the exception in the place of identifiers, empty for
    none."""

    raised: str


rules = Component(COMPONENT, applies_to=(COMPONENT,))


@rules.pair(
    "ID-1",
    "safety",
    "Items named otherwise, or encoded with another adapter, have other identifiers",
    source="the encoder cache, the KV blocks and external stores hold an item under its identifier"
    " alone, whoever named it and before whichever restart",
)
def identifiers_apart(p: NamedPair) -> bool:
    return (p.same_item and p.same_adapter) or p.first_identifier != p.second_identifier


@rules.pair(
    "ID-2",
    "efficiency",
    "One item has one identifier, whichever process names it, and when",
    source="vLLM PR #56432: an encoder instance and its consumer look for an item under what either"
    " named it",
)
def identifiers_together(p: NamedPair) -> bool:
    return not (p.same_item and p.same_adapter) or p.first_identifier == p.second_identifier


@rules.answer(
    "ID-3",
    "liveness",
    "A request whose items each have data or a client's id is named",
    source="vLLM multi_modal_uuids: an id for each item, or none for those that are hashed",
)
def names_what_is_given(c: Naming) -> bool:
    return c.raised == ""
