"""LMCache's own server, in a fork: entries in its memory, for the engines of a trace."""

import importlib
import os
import signal
import socket
import time
from typing import Any

from ..child import end_with, leave_the_host
from ..protocol import HostError, Illegal
from .store import Store

HOST = "127.0.0.1"
START_SECONDS = 20.0


class LMCacheServerStore(Store):
    """A server of the trace's own. It loses what it has when it is stopped. What it holds is not to
    be seen: it can neither list nor remove.

    Raises:
        Illegal: this version of LMCache has no such server.
    """

    def __init__(self) -> None:
        try:
            self._server = importlib.import_module("lmcache.v1.server.__main__")
        except ModuleNotFoundError:
            raise Illegal("no version of LMCache here that has a server of its own") from None
        with socket.socket() as one:
            one.bind((HOST, 0))
            self._port = one.getsockname()[1]
        self.url = f"lm://{HOST}:{self._port}"
        self._is_there = True
        self._pid = 0
        self._start()

    def _start(self) -> None:
        host = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            self._serve(host)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            with socket.socket() as one:
                if not one.connect_ex((HOST, self._port)):
                    return
            time.sleep(0.01)
        self.close()
        raise HostError(f"LMCache's server does not start within {START_SECONDS:.0f} s")

    def _serve(self, host: int) -> None:
        """Serve in the fork; never returns."""
        try:
            end_with(host)
            leave_the_host()
            self._server.__dict__["socket"].socket = _Reusing
            self._server.LMCacheServer(HOST, self._port, "cpu").run()
        finally:
            os._exit(1)

    @property
    def is_there(self) -> bool:
        return self._is_there

    def names(self) -> set[str]:
        return set()

    def read(self, name: str) -> bytes | None:
        return None

    def replace(self, name: str, data: bytes | None) -> None:
        raise HostError("nothing is replaced at a server of which nothing is seen")

    def num_bytes(self) -> int | None:
        return None

    def leave(self, *, hangs: bool) -> None:
        if hangs:
            raise Illegal("LMCache's server is stopped, and does not hang")
        self.close()
        self._is_there = False

    def come_back(self) -> None:
        self._start()
        self._is_there = True

    def close(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self._pid = 0


class _Reusing(socket.socket):
    """A server that may take the port of one that has just ended."""

    def bind(self, address: Any) -> None:
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        super().bind(address)
