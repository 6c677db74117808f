"""Where the engines of a trace have their store: a folder, or a Redis server."""

import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from ..protocol import HostError, Illegal
from .redis_server import NoServer, RedisServer

SERVER, LMCACHE_SERVER = "server", "lmcache server"
"""Kinds of stores that are a server: Redis, and LMCache's own."""
ANSWER_SECONDS = PAUSE_SECONDS = 2.0
"""How long engines wait for a server, and leave one alone that did not answer. Long enough for a
machine that is busy with other things: a server that is only slow must not look like one that
hangs."""


class Store(ABC):
    """Everything stored, by name, as seen from outside the engines. Another process that gets it
    can look at it; what serves it stays here."""

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_server"}

    @property
    @abstractmethod
    def is_there(self) -> bool:
        """Whether the store can be reached."""

    @abstractmethod
    def names(self) -> set[str]:
        """Names of all that is stored."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The bytes stored under a name; None where there are none."""

    @abstractmethod
    def replace(self, name: str, data: bytes | None) -> None:
        """Put other bytes under that name, or remove it."""

    @abstractmethod
    def num_bytes(self) -> int | None:
        """Bytes of all that is stored, each counted once; None where that cannot be seen."""

    @abstractmethod
    def leave(self, *, hangs: bool) -> None:
        """Make the store unreachable; or, where it `hangs`, reachable without answering."""

    @abstractmethod
    def come_back(self) -> None:
        """Make the store reachable again, with what it had."""

    @abstractmethod
    def close(self) -> None:
        """End what the store needs to run."""


class FolderStore(Store):
    """A store in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._away = root.with_name("moved away")

    @property
    def is_there(self) -> bool:
        return not self._away.exists()

    def names(self) -> set[str]:
        return {str(path.relative_to(self._root)) for path in files_below(self._root)}

    def read(self, name: str) -> bytes | None:
        path = self._root / name
        return path.read_bytes() if path.is_file() else None

    def replace(self, name: str, data: bytes | None) -> None:
        path = self._root / name
        path.unlink()  # a pin is another name of the same bytes
        if data is not None:
            path.write_bytes(data)

    def num_bytes(self) -> int | None:
        if not self._root.exists():
            return None
        files = [path.lstat() for path in files_below(self._root)]
        return sum({one.st_ino: one.st_size for one in files}.values())

    def leave(self, *, hangs: bool) -> None:
        """Move the folder away; it does not hang."""
        self._root.rename(self._away)

    def come_back(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        self._away.rename(self._root)

    def close(self) -> None:
        pass


class ServerStore(Store):
    """A Redis server of the trace's own.

    Raises:
        Illegal: connectors have no client of such a server here.
        HostError: there is no such server here.
    """

    def __init__(self) -> None:
        try:
            import redis
        except ModuleNotFoundError:
            raise Illegal("no connector has a client of Redis here") from None
        self._folder = Path(tempfile.mkdtemp(prefix="redis-"))
        try:
            self._server = RedisServer(self._folder)
        except NoServer as reason:
            shutil.rmtree(self._folder)
            raise HostError(str(reason)) from None
        self.url = self._server.url
        self._away = self._folder / "out of reach"
        self._hangs = False
        self._connect = redis.Redis.from_url

    @property
    def is_there(self) -> bool:
        return not self._away.exists()

    def names(self) -> set[str]:
        return {name.decode() for name in self._ask("keys", "*")} if self.is_there else set()

    def read(self, name: str) -> bytes | None:
        data: bytes | None = self._ask("get", name) if self.is_there else None
        return data

    def replace(self, name: str, data: bytes | None) -> None:
        if data is None:
            self._ask("delete", name)
        else:
            self._ask("set", name, data)

    def num_bytes(self) -> int | None:
        if not self.is_there:
            return None
        return sum(self._ask("strlen", name) for name in self.names())

    def leave(self, *, hangs: bool) -> None:
        self._hangs = hangs
        if hangs:
            self._server.hang()
        else:
            self._server.stop()
        self._away.touch()

    def come_back(self) -> None:
        if self._hangs:
            self._server.go_on()
            time.sleep(PAUSE_SECONDS)
        else:
            self._server.start()
        self._away.unlink()

    def close(self) -> None:
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, command: str, *arguments: Any) -> Any:
        with self._connect(self.url) as client:
            return getattr(client, command)(*arguments)


def files_below(root: Path) -> set[Path]:
    """Every file of a folder, at any depth."""
    return {path for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
