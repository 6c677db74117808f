"""Entries in a Redis or Valkey server, which engines of several hosts share.

    cacheproof:encoder:NAME     an entry, as it is in a file: set whole

An entry is set by one command, so that who is killed leaves a whole one or none. The server evicts
by itself (maxmemory), at any moment: what is read into memory of one's own can be promised, and
nothing else. What a server holds is not believed until its digest is compared.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import BinaryIO, TypeVar, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cacheproof.reference.encoder_connector.entry_file import PART_BYTES
from cacheproof.reference.encoder_connector.part import Part, whole

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

PREFIX = "cacheproof:encoder:"
KEYS_AT_ONCE = 1000


class RedisTier:
    """Entries of bytes by name; how many, the server decides.

    Every method answers as if there were no entry where the server cannot be used, and logs one
    line for each reason.

    Args:
        url: of the server, as redis-py reads it: redis://, rediss:// or unix://.
        timeout: seconds for an answer, and for all of an entry that is read.
        pause: seconds for which a server that did not answer in time is not asked: each try holds
            the engine up.

    Raises:
        ValueError: it is no such URL.
    """

    def __init__(self, url: str, timeout: float, pause: float) -> None:
        self._timeout, self._pause = timeout, pause
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        )
        known = self._client.connection_pool.connection_kwargs
        known["decode_responses"] = False  # whatever the URL asks for
        self.server = known.get("path") or f"{known.get('host')}:{known.get('port')}"
        self._asked_again_at = 0.0
        self._told: set[str] = set()

    def close(self) -> None:
        """Leave the server to others."""
        self._client.close()

    def put(self, name: str, parts: Sequence[Part]) -> bool:
        """Keep an entry, in the place of what is there. False: the server does not take it."""

        def set_whole() -> bool:
            self._client.set(PREFIX + name, whole(parts))
            return True

        return self._ask("written", set_whole) or False

    def fetch(self, name: str) -> BinaryIO | None:
        """A file in memory, which nobody else knows, with what the server has under that name;
        None: it has nothing, or it takes too long.

        It is read in parts. Between two the server may evict it: its digest tells.
        """

        def read_whole() -> BinaryIO | None:
            until = time.monotonic() + self._timeout
            part = self._part(name, 0)
            if not part:
                return None
            with ExitStack() as opened:
                descriptor = os.memfd_create("encoder output")
                file = opened.enter_context(open(descriptor, "r+b", buffering=0))
                at = 0
                while part:
                    if time.monotonic() > until:
                        raise redis.TimeoutError
                    at += _write(file, part)
                    part = self._part(name, at) if len(part) == PART_BYTES else b""
                opened.pop_all()
                return file

        return self._ask("read", read_whole)

    def remove(self, name: str) -> None:
        """Drop an entry that is damaged."""
        self._ask("removed", lambda: self._client.unlink(PREFIX + name))

    def clear(self) -> None:
        """Drop all entries, of every engine."""

        def unlink_all() -> None:
            names = self._client.scan_iter(PREFIX + "*", count=KEYS_AT_ONCE)
            while some := list(islice(names, KEYS_AT_ONCE)):
                self._client.unlink(*some)

        self._ask("cleared", unlink_all)

    def _part(self, name: str, at: int) -> bytes:
        part = self._client.getrange(PREFIX + name, at, at + PART_BYTES - 1)
        return cast(bytes, part)

    def _ask(self, what: str, call: Callable[[], Answer]) -> Answer | None:
        """What the server answers; None, and a line of log, where it does not."""
        if time.monotonic() < self._asked_again_at:
            return None
        try:
            return call()
        except redis.TimeoutError:
            self._asked_again_at = time.monotonic() + self._pause
            self._say(f"nothing is {what} at {self.server}", f"no answer in {self._timeout:g} s")
        except Exception as error:  # where a server speaks nonsense, the library raises anything
            self._say(f"nothing is {what} at {self.server}: {type(error).__name__}", str(error))
        return None

    def _say(self, what: str, more: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning("encoder cache: %s, %.200r", what, more)


def _write(file: BinaryIO, part: bytes) -> int:
    left = memoryview(part)
    while left:
        left = left[file.write(left) :]
    return len(part)
