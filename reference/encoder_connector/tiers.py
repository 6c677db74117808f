"""Tiers of one store, fastest first: what one evicts goes to the next, what is used comes back."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from cacheproof.reference.encoder_connector.directory_tier import DirectoryTier
from cacheproof.reference.encoder_connector.entry_key import EntryKey

logger = logging.getLogger(__name__)

PART_BYTES = 1 << 20
"""Of a file, read at a time."""


@dataclass(frozen=True)
class TierConfig:
    """A folder and the bytes that it may hold, and whether an entry survives a power failure."""

    root: Path
    bytes_max: int
    syncs: bool = False


@dataclass(frozen=True)
class Promise:
    """An entry that was read, found whole, and cannot be taken away until it is given back."""

    file: Path
    tier: DirectoryTier


class Tiers:
    """The store as an engine sees it: saves, promises, and nothing else.

    Args:
        tiers: of the store, fastest first; at least one.
        fault_of: why a file is not the entry of a key; None: it is.
    """

    def __init__(
        self, tiers: Sequence[TierConfig], fault_of: Callable[[BinaryIO, EntryKey], str | None]
    ) -> None:
        self._fault_of = fault_of
        self._tiers: list[DirectoryTier] = []
        for one in reversed(tiers):
            evicted = _demotes_to(self._tiers[0]) if self._tiers else None
            made = DirectoryTier(one.root, one.bytes_max, syncs=one.syncs, evicted=evicted)
            self._tiers.insert(0, made)

    def close(self) -> None:
        """Give everything back that is promised."""
        for tier in self._tiers:
            tier.close()

    def put(self, key: EntryKey, parts: Sequence[bytes | memoryview]) -> bool:
        """Keep an entry in the first tier that takes it. False: none does."""
        size = sum(map(len, parts))
        return any(tier.put(key.name, parts, size) for tier in self._tiers)

    def promise(self, key: EntryKey) -> Promise | None:
        """The entry of that key, if it is there and whole; what is not whole is dropped.

        An entry of a slower tier is copied to the fastest that takes it.
        """
        for place, tier in enumerate(self._tiers):
            file = tier.pin(key.name)
            if file is None:
                continue
            if self._is_whole(tier, key, file):
                any(_copy(file, key.name, faster) for faster in self._tiers[:place])
                return Promise(file, tier)
            tier.unpin(file)
            tier.remove(key.name)
        return None

    def give_back(self, promise: Promise) -> None:
        """What was promised has been loaded, or is not wanted any more."""
        promise.tier.unpin(promise.file)

    def clear(self) -> None:
        """Drop every entry of every tier."""
        for tier in self._tiers:
            tier.clear()

    def _is_whole(self, tier: DirectoryTier, key: EntryKey, file: Path) -> bool:
        try:
            with file.open("rb", buffering=0) as entry:
                fault = self._fault_of(entry, key)
        except OSError as error:
            fault = str(error.strerror)
        if fault is not None:
            text = "encoder cache: no entry of %.200r in %s: %s"
            logger.warning(text, key.identifier, tier.root, fault)
        return fault is None


def _demotes_to(slower: DirectoryTier) -> Callable[[str, Path], None]:
    def demote(name: str, file: Path) -> None:
        _copy(file, name, slower)

    return demote


def _copy(file: Path, name: str, tier: DirectoryTier) -> bool:
    """Keep the entry in a file in another tier as well. False: it does not take it."""
    try:
        with file.open("rb", buffering=0) as entry:
            size = os.fstat(entry.fileno()).st_size
            return tier.put(name, iter(partial(entry.read, PART_BYTES), b""), size)
    except OSError:
        return False
