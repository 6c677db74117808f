"""From the name of an item to the identifier under which the caches keep it.

A request names an item by its content, whose digest is computed, or by an id of the user's own. The
encoder's output depends on its adapter as well, where the adapter reaches the encoder.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from cacheproof.reference.semantics.media import MediaSemantics


class ItemName(NamedTuple):
    """How a request names an item: the media hash of its content, or the user's id for it."""

    text: str
    is_users: bool = False


def processor_key(name: ItemName, semantics: MediaSemantics) -> str:
    """The key of the processor's cache: apart for a digest and a user's id that looks like it."""
    if semantics.separates_user_ids and name.is_users:
        return f"id:{name.text}"
    return name.text


def identifier(name: ItemName, adapter: str | None, semantics: MediaSemantics) -> str:
    """The key of the encoder's output under an adapter that reaches the encoder, or none.

    The adapter's name stands with its length in front, so that no name runs into the key.
    """
    key = processor_key(name, semantics)
    if semantics.measures_adapter_names:
        return f"{len(adapter or '')}:{adapter or ''}:{key}"
    if adapter is None or not semantics.identifies_adapters:
        return key
    return f"{adapter}:{key}"


class ItemOfRequest(NamedTuple):
    """An item as it comes: what it is and, where its client has given it one, its id. One of them
    may be None. A modality that ends with `_embeds` has items that come as an encoder's rows."""

    modality: str
    content: int | None
    user_id: str | None


class NoData(Exception):
    """An item comes without data, and may not."""


class Server:
    """A server of an engine, which names the items of requests.

    `asks_for_digests`: a cache of the engine is on that looks items up by them. `number`: the
    server's among those of its engine. `settings`: what the engine tells its processor where a
    request has no options, 0 for nothing. `alike`: the most pictures of one request that the model
    processes as it does one alone; 0 for any number.
    """

    def __init__(
        self,
        semantics: MediaSemantics,
        *,
        asks_for_digests: bool,
        adapters_reach: bool,
        number: int,
        settings: int = 0,
        alike: int = 0,
    ) -> None:
        self._semantics = semantics
        self._has_digests = asks_for_digests or semantics.digests_uncached
        self._adapters_reach = adapters_reach
        self._number = number
        self._settings = settings if semantics.digests_settings else 0
        self._alike = alike if semantics.digests_counts else 0
        self._requests = 0

    def name(
        self, request: str, items: Sequence[ItemOfRequest], adapter: str | None, options: int
    ) -> list[str]:
        """The identifiers of a request's items; `options` are its processor's, 0 for none.

        Raises:
            NoData: a sound comes by its id alone, and the semantics take none so.
        """
        self._requests += 1
        if not self._semantics.takes_sounds_by_id and any(
            item.modality == "audio" and item.content is None for item in items
        ):
            raise NoData
        told = options or self._settings
        pictures = sum(item.modality == "image" for item in items)
        places: Counter[str] = Counter()
        named = []
        for item in items:
            modality = item.modality.removesuffix("_embeds")
            name = self._name(item, f"{modality}-{places[modality]}", request)
            places[modality] += 1
            if told:
                name = ItemName(_digest(modality, name, told))
            if self._alike and item.modality == "image":
                key = processor_key(name, self._semantics)
                name = ItemName(_digest(key, pictures > self._alike))
            under = adapter if self._adapters_reach else None
            named.append(identifier(name, under, self._semantics))
        return named

    def _name(self, item: ItemOfRequest, place: str, request: str) -> ItemName:
        is_kept = self._has_digests or self._semantics.keeps_user_ids
        if item.user_id is not None and is_kept:
            return ItemName(item.user_id, is_users=True)
        if self._has_digests:
            return ItemName(_digest(item.modality, item.content))
        if not self._semantics.numbers_requests:
            return ItemName(f"{request}-{place}", is_users=True)
        server = self._number if self._semantics.numbers_servers else ""
        # It goes where a user's id would, and is taken for one.
        return ItemName(f"renderer{server}-mm-{self._requests}-{place}", is_users=True)


def _digest(*of: object) -> str:
    """A digest of what is hashed; which bytes are, `media_hash` says."""
    return hashlib.sha256(repr(of).encode()).hexdigest()
