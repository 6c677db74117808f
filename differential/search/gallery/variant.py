"""A faulty variant of the reference, and how one is made."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from cacheproof.differential.judges.rules import SCHEDULER
from cacheproof.differential.targets.reference_manager import MANAGERS, Factory
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.reference.kv_cache_manager import KVCacheManager
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics

BLOCK_HASH = "block_hash"
MEDIA_HASH = "media_hash"
KV_CACHE = "kv_cache"
CONNECTOR = "encoder_connector"
FRONT_END = "front_end"
IDENTIFIER = "media_identifier"
HASHED_BY_NO_RELEASE = (
    "media.hashes_frames",
    "media.tags_types",
    "media.hashes_whole_values",
    "media.sorts_mappings",
    "media.hashes_nodes",
)
AS_NEWEST = f"as vLLM {NEWEST}"
"""Note on a variant without a flag that the newest release lacks too."""


@dataclass(frozen=True)
class Variant:
    """One faulty manager, hasher of blocks or media, KV cache manager, connector, pair of caches of
    processed media, or scheduler.

    `factory` makes the manager; the others are faulty by their `semantics`, or by a fault planted
    when they run. `resized` lets identifiers come back with another size, and drives
    the manager as a scheduler does that lets them pass. `shape` names the groups of a KV cache,
    `lane` the traces of a scheduler, and `seeds` those at which a rare fault shows itself.
    """

    name: str
    sentence: str
    manager: str
    factory: Factory | None
    resized: bool = False
    semantics: Semantics = field(default_factory=Semantics.ideal)
    fault: str | None = None
    shape: str | None = None
    seeds: tuple[int, ...] = ()
    lane: str = SCHEDULER


def faulty(fault: type[EncoderCacheManager], *, resized: bool = False) -> Variant:
    is_decoder = issubclass(fault, EncoderDecoderCacheManager)
    return Variant(
        name=re.sub(r"(?<!^)(?=[A-Z])", "-", fault.__name__).lower(),
        sentence=_sentence(fault),
        manager="encoder_decoder" if is_decoder else "encoder_cache",
        factory=fault,
        resized=resized,
    )


def _sentence(fault: Callable[..., object]) -> str:
    """A fault's docstring, on one line."""
    assert fault.__doc__ is not None
    return " ".join(fault.__doc__.split())


def without(
    flag: str, name: str, sentence: str, manager: str = "encoder_cache", *, resized: bool = False
) -> Variant:
    """The reference without one upstream fix."""

    lacking = Semantics.ideal().without(flag).encoder_cache

    def make(capacity: int, _: EncoderCacheSemantics) -> EncoderCacheManager:
        return MANAGERS[manager](capacity, lacking)

    return Variant(name, sentence, manager, make, resized)


def hasher_without(name: str, sentence: str, *flags: str) -> Variant:
    """The reference's block hasher without upstream fixes."""
    semantics = Semantics.ideal().without(*flags)
    return Variant(name, sentence, BLOCK_HASH, None, semantics=semantics)


def hasher_with(fault: Callable[..., object]) -> Variant:
    """The reference's block hasher with a fault planted in it."""
    name = fault.__name__.replace("_", "-")
    return Variant(name, _sentence(fault), BLOCK_HASH, None, fault=fault.__name__)


def media_hasher_without(name: str, sentence: str, *flags: str) -> Variant:
    """The reference's media hasher as in the newest release, without upstream fixes."""
    variant = hasher_without(name, sentence, *HASHED_BY_NO_RELEASE, *flags)
    return replace(variant, manager=MEDIA_HASH)


def media_hasher_with(fault: Callable[..., object]) -> Variant:
    """The reference's media hasher with a fault planted in it."""
    variant = hasher_with(fault)
    return replace(variant, manager=MEDIA_HASH, name=f"media-{variant.name}")


def kv_cache_without(
    flag: str, name: str, sentence: str, shape: str | None = None, seeds: tuple[int, ...] = ()
) -> Variant:
    """The reference's KV cache manager without one upstream fix."""
    semantics = Semantics.ideal().without(flag)
    return Variant(name, sentence, KV_CACHE, None, semantics=semantics, shape=shape, seeds=seeds)


def kv_cache_with(
    fault: Callable[..., object], shape: str | None = None, seeds: tuple[int, ...] = ()
) -> Variant:
    """The reference's KV cache manager with a fault planted in it."""

    def make(*given: Any, **named: Any) -> KVCacheManager:
        manager = KVCacheManager(*given, **named)
        fault(manager)
        return manager

    variant = replace(hasher_with(fault), fault=None, factory=make)
    return replace(variant, manager=KV_CACHE, shape=shape, seeds=seeds)


def connector_with(fault: Callable[..., object]) -> Variant:
    """The reference's connector with a fault planted in it."""
    variant = hasher_with(fault)
    return replace(variant, manager=CONNECTOR, name=f"connector-{variant.name}")


def front_end_without(
    name: str, sentence: str, *flags: str, seeds: tuple[int, ...] = ()
) -> Variant:
    """The reference's caches of processed media without upstream fixes."""
    return replace(hasher_without(name, sentence, *flags), manager=FRONT_END, seeds=seeds)


def front_end_with(fault: Callable[..., object]) -> Variant:
    """The reference's caches of processed media with a fault planted in them."""
    variant = hasher_with(fault)
    return replace(variant, manager=FRONT_END, name=f"media-{variant.name}")


def namer_without(name: str, sentence: str, *flags: str) -> Variant:
    """The reference's front ends, which name items without upstream fixes."""
    return replace(hasher_without(name, sentence, *flags), manager=IDENTIFIER)


def namer_with(fault: Callable[..., object]) -> Variant:
    """The reference's front ends, which name items with a fault planted in them."""
    variant = hasher_with(fault)
    return replace(variant, manager=IDENTIFIER, name=f"identifier-{variant.name}")


def scheduler_without(
    name: str, sentence: str, seeds: tuple[int, ...], *flags: str, lane: str = SCHEDULER
) -> Variant:
    """The reference's scheduler without upstream fixes."""
    variant = hasher_without(name, sentence, *flags)
    return replace(variant, manager=SCHEDULER, seeds=seeds, lane=lane)


def scheduler_with(fault: Callable[..., object], lane: str = SCHEDULER) -> Variant:
    """The reference's scheduler with a fault planted in it."""
    variant = hasher_with(fault)
    name = f"{lane.replace(' ', '-')}-{variant.name}"
    return replace(variant, manager=SCHEDULER, name=name, lane=lane)
