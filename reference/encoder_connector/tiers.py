"""Tiers of one store, fastest first: what one evicts goes to the next, what is used comes back.

Behind the folders of a host there may be a server, for the engines of all hosts: it gets everything
that is saved, at once.
"""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cacheproof.reference.encoder_connector.directory_tier import DirectoryTier
from cacheproof.reference.encoder_connector.entry_file import PART_BYTES
from cacheproof.reference.encoder_connector.entry_key import EntryKey
from cacheproof.reference.encoder_connector.part import Part

if TYPE_CHECKING:
    from cacheproof.reference.encoder_connector.redis_tier import RedisTier

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TierConfig:
    """A folder and the bytes that it may hold, and whether an entry survives a power failure."""

    root: Path
    bytes_max: int
    syncs: bool = False


@dataclass(frozen=True)
class RemoteConfig:
    """A Redis or Valkey server, the seconds that an entry may take from it, and those for which it
    is left alone when it takes longer."""

    url: str
    timeout: float
    pause: float


@dataclass(frozen=True)
class Promise:
    """An entry that was read, found whole, and cannot be taken away until it is given back.

    Attributes:
        opened: the bytes, whatever becomes of the tier.
        file: its own name of them in a folder, which others count as pinned; None: they came from
            a server, and are in memory.
        tier: that folder.
    """

    opened: BinaryIO
    file: Path | None = None
    tier: DirectoryTier | None = None

    @property
    def paths(self) -> list[str]:
        """Where other processes of this host find the bytes; the last, where no folder has them."""
        opened = f"/proc/{os.getpid()}/fd/{self.opened.fileno()}"
        return [opened] if self.file is None else [str(self.file), opened]


class Tiers:
    """The store as an engine sees it: saves, promises, and nothing else.

    Args:
        tiers: folders of this host, fastest first.
        fault_of: why a file is not the entry of a key; None: it is.
        remote: a server behind them; None: there is none.

    Raises:
        ValueError: the server's URL is none.
    """

    def __init__(
        self,
        tiers: Sequence[TierConfig],
        fault_of: Callable[[BinaryIO, EntryKey], str | None],
        remote: RemoteConfig | None = None,
    ) -> None:
        self._fault_of = fault_of
        self._server = None if remote is None else _server(remote)
        self._tiers: list[DirectoryTier] = []
        for one in reversed(tiers):
            evicted = _demotes_to(self._tiers[0]) if self._tiers else None
            made = DirectoryTier(one.root, one.bytes_max, syncs=one.syncs, evicted=evicted)
            self._tiers.insert(0, made)

    def close(self) -> None:
        """Give everything back that is promised."""
        for tier in self._tiers:
            tier.close()
        if self._server is not None:
            self._server.close()

    def put(self, key: EntryKey, parts: Sequence[Part]) -> bool:
        """Keep an entry in the first folder that takes it, and at the server. False: none does.

        Where there is a whole one, that one stays; what is not whole makes room for it.
        """
        there = next((one for tier in self._tiers if (one := self._found(tier, key))), None)
        if there is not None:
            self.give_back(there)
        size = sum(map(len, parts))
        is_kept = there is not None or any(tier.put(key.name, parts, size) for tier in self._tiers)
        return (self._server is not None and self._server.put(key.name, parts)) or is_kept

    def promise(self, key: EntryKey) -> Promise | None:
        """The entry of that key, if it is there and whole; what is not whole is dropped.

        An entry of a slower tier is copied to the fastest that takes it.
        """
        for place, tier in enumerate(self._tiers):
            promise = self._found(tier, key)
            if promise is not None:
                any(_copy(promise.opened, key.name, faster) for faster in self._tiers[:place])
                return promise
        return self._promise_remote(key)

    def give_back(self, promise: Promise) -> None:
        """What was promised has been loaded, or is not wanted any more."""
        promise.opened.close()
        if promise.tier is not None and promise.file is not None:
            promise.tier.unpin(promise.file)

    def clear(self) -> None:
        """Drop every entry of every tier."""
        for tier in self._tiers:
            tier.clear()
        if self._server is not None:
            self._server.clear()

    def _promise_remote(self, key: EntryKey) -> Promise | None:
        fetched = None if self._server is None else self._server.fetch(key.name)
        if self._server is None or fetched is None:
            return None
        fetched.seek(0)
        fault = self._fault_of(fetched, key)
        if fault is not None:
            fetched.close()
            self._server.remove(key.name)
            _say_no_entry(key, self._server.server, fault)
            return None
        any(_copy(fetched, key.name, tier) for tier in self._tiers)
        return Promise(fetched)

    def _found(self, tier: DirectoryTier, key: EntryKey) -> Promise | None:
        """The entry in a folder, pinned, where it is whole; dropped, where it is not."""
        file = tier.pin(key.name)
        if file is None:
            return None
        with ExitStack() as opened:
            try:
                entry = opened.enter_context(file.open("rb", buffering=0))
                fault = self._fault_of(entry, key)
            except OSError as error:
                fault = str(error.strerror)
            if fault is None:
                opened.pop_all()
                return Promise(entry, file, tier)
        _say_no_entry(key, tier.root, fault)
        tier.unpin(file)
        tier.remove(key.name)
        return None


def _server(remote: RemoteConfig) -> "RedisTier":
    from cacheproof.reference.encoder_connector.redis_tier import RedisTier

    return RedisTier(remote.url, remote.timeout, remote.pause)


def _say_no_entry(key: EntryKey, place: object, fault: str) -> None:
    text = "encoder cache: no entry of %.200r in %s: %s"
    logger.warning(text, key.identifier, place, fault)


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
