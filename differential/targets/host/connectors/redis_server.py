"""A Redis server of one's own, which ends with the process that has started it."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from ..child import end_with

COMMAND = "redis-server"
START_SECONDS = 30.0
SOCKET = "socket"


class NoServer(Exception):
    """There is no Redis server; one line says why."""


def is_there() -> bool:
    """Whether a server can be started."""
    return shutil.which(COMMAND) is not None


class RedisServer:
    """A server with a socket, and with no port.

    Args:
        folder: of its own, where it has the socket and writes what it has to write.
        bytes_max: what it may hold; beyond it evicts what was not used for longest. None: as much
            as comes.

    Raises:
        NoServer: there is no such program, or it does not start.
    """

    def __init__(self, folder: Path, bytes_max: int | None = None) -> None:
        if not is_there():
            raise NoServer(f"no {COMMAND} on PATH; install Debian's package of that name")
        self._folder = folder
        self._opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        # a socket's path is short, and a folder's need not be
        self.socket = Path(f"/proc/{os.getpid()}/fd/{self._opened}/{SOCKET}")
        self._bytes_max = bytes_max
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """The server's address, as a client writes it."""
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start the server; what it had when it was stopped is there again."""
        options = {
            "dir": str(self._folder),
            "port": "0",
            "unixsocket": SOCKET,
            "save": "",
            "maxmemory": str(self._bytes_max or 0),
            "maxmemory-policy": "allkeys-lru",
        }
        parent = os.getpid()
        command = [word for name, value in options.items() for word in (f"--{name}", value)]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [COMMAND, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: end_with(parent),
            )
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                last = (self._folder / "log").read_text().splitlines()[-1:]
                self.close()
                raise NoServer(f"{COMMAND} does not start: {''.join(last)[:200]}")
            time.sleep(0.002)

    def stop(self) -> None:
        """Shut the server down; it writes down what it has."""
        if self._process is not None:
            self._say(b"SHUTDOWN SAVE")
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        """Let the server answer nobody any more."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the server answer again, also what it was asked meanwhile."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the server at once; what it had is lost, also what it wrote when it was last
        stopped."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None
        for left in (SOCKET, "dump.rdb"):
            (self._folder / left).unlink(missing_ok=True)

    def close(self) -> None:
        """End the server."""
        self.kill()
        os.close(self._opened)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _answers(self) -> bool:
        try:
            return self._say(b"PING").startswith(b"+PONG")
        except (FileNotFoundError, ConnectionRefusedError):
            return False

    def _say(self, command: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.socket))
            client.sendall(command + b"\r\n")
            return client.recv(64)
