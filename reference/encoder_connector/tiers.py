"""Tiers of one store, fastest first: what one evicts goes to the next, what is used comes back."""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from cacheproof.reference.encoder_connector.directory_tier import DirectoryTier
from cacheproof.reference.encoder_connector.entry_file import PART_BYTES
from cacheproof.reference.encoder_connector.entry_key import EntryKey

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TierConfig:
    """A folder and the bytes that it may hold, and whether an entry survives a power failure."""

    root: Path
    bytes_max: int
    syncs: bool = False


@dataclass(frozen=True)
class Promise:
    """An entry that was read, found whole, and cannot be taken away until it is given back.

    Attributes:
        file: its own name of the bytes, which others count as pinned.
        tier: where they are.
        opened: the bytes, whatever becomes of the folder.
    """

    file: Path
    tier: DirectoryTier
    opened: BinaryIO

    @property
    def paths(self) -> list[str]:
        """Where other processes of this host find the bytes; the last, where the folder is gone."""
        return [str(self.file), f"/proc/{os.getpid()}/fd/{self.opened.fileno()}"]


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
            opened = self._whole(tier, key, file)
            if opened is not None:
                any(_copy(opened, key.name, faster) for faster in self._tiers[:place])
                return Promise(file, tier, opened)
            tier.unpin(file)
            tier.remove(key.name)
        return None

    def give_back(self, promise: Promise) -> None:
        """What was promised has been loaded, or is not wanted any more."""
        promise.opened.close()
        promise.tier.unpin(promise.file)

    def clear(self) -> None:
        """Drop every entry of every tier."""
        for tier in self._tiers:
            tier.clear()

    def _whole(self, tier: DirectoryTier, key: EntryKey, file: Path) -> BinaryIO | None:
        """The file, opened, where it is the entry of that key."""
        with ExitStack() as opened:
            try:
                entry = opened.enter_context(file.open("rb", buffering=0))
                fault = self._fault_of(entry, key)
            except OSError as error:
                fault = str(error.strerror)
            if fault is None:
                opened.pop_all()
                return entry
        text = "encoder cache: no entry of %.200r in %s: %s"
        logger.warning(text, key.identifier, tier.root, fault)
        return None


def _demotes_to(slower: DirectoryTier) -> Callable[[str, Path], None]:
    def demote(name: str, file: Path) -> None:
        with suppress(OSError), file.open("rb", buffering=0) as entry:
            _copy(entry, name, slower)

    return demote


def _copy(entry: BinaryIO, name: str, tier: DirectoryTier) -> bool:
    """Keep an opened entry in another tier as well. False: it does not take it."""
    with suppress(OSError):
        entry.seek(0)
        size = os.fstat(entry.fileno()).st_size
        return tier.put(name, iter(partial(entry.read, PART_BYTES), b""), size)
    return False
