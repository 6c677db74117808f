"""From the name of an item to the identifier under which the caches keep it.

A request names an item by its content, whose digest is computed, or by an id of the user's own. The
encoder's output depends on its adapter as well, where the adapter reaches the encoder.
"""

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
