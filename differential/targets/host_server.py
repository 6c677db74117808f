"""Hosts that are forked from one process: a release is imported once, and a host starts at once.

A server is a process of `targets/host` that has imported a release and runs nothing else. Each host
is a fork of it with pipes of its own, in the state that follows the imports: no more is shared than
by starting anew, but for the memory that nobody writes to. What a fresh process would do otherwise
(addresses, seeds taken while importing) a fork of the same server does not show, so a second server
stands for every `another` process.
"""

import atexit
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

import msgspec

IDLE_SERVERS = 4
"""Servers that are kept after their last host has ended, at most."""
END_SECONDS = 2.0
"""Seconds that a server is given to end; one that has imported ends at once."""
FORKS = sys.platform == "linux"


@dataclass
class ForkedHost:
    """A host that was forked, with the methods of `subprocess.Popen` that are used of it."""

    server: "HostServer"
    pid: int
    stdin: IO[bytes]
    stdout: IO[bytes]
    status: int | None = None

    def kill(self) -> None:
        """End the host."""
        self._ask("kill")

    def wait(self) -> int | None:
        """Wait until the host has ended; returns its exit status."""
        return self._ask("wait")

    def poll(self) -> int | None:
        """The host's exit status; None while it runs."""
        return self._ask("poll")

    def _ask(self, what: str) -> int | None:
        if self.status is None:
            self.status = self.server.status(self.pid, what)
        return self.status


@dataclass
class HostServer:
    """A server: `control` is the socket on which it is asked, `process` the server itself if it was
    started here. `scratch` is for its temporary files and its hosts'. `has_imported`: a host of it
    was begun here."""

    control: socket.socket
    scratch: str
    process: "subprocess.Popen[bytes] | None" = None
    hosts: int = 0
    has_imported: bool = False

    @classmethod
    def start(
        cls, command: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]
    ) -> "HostServer":
        """Start a server, which imports when it is first asked for something. Raises OSError where
        the interpreter cannot be started."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        scratch = tempfile.mkdtemp(prefix="cacheproof-host-")
        with theirs:
            try:
                process = subprocess.Popen(
                    [*command, "--forks", str(theirs.fileno()), *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**environment, "TMPDIR": scratch},
                    pass_fds=(theirs.fileno(),),
                    process_group=0,  # Ctrl-C is for whoever has started it
                )
            except OSError:
                ours.close()
                os.rmdir(scratch)
                raise
        return cls(ours, scratch, process)

    def __reduce__(self) -> tuple[object, ...]:
        """A server that another process can ask, but does not end."""
        return HostServer, (self.control, self.scratch)

    def wake(self) -> None:
        """Let it import in the background."""
        if not self.has_imported:
            with suppress(OSError):  # it has ended, as whoever begins a host will see
                self.control.send(msgspec.json.encode({"do": "import"}))

    def begin(self, log: IO[bytes], scratch: str, buffer: int, seconds: float) -> ForkedHost | None:
        """A new host whose files go to `scratch`; None where the server serves none.

        Raises:
            TimeoutError: it has not answered within `seconds`.
        """
        given, stdin = os.pipe()
        stdout, results = os.pipe()
        message = msgspec.json.encode({"do": "begin", "folder": os.getcwd(), "scratch": scratch})
        try:
            socket.send_fds(self.control, [message], [given, results, log.fileno()])
        except OSError:
            os.close(stdin)
            os.close(stdout)
            return None
        finally:
            os.close(given)
            os.close(results)
        host = ForkedHost(self, 0, os.fdopen(stdin, "wb", buffer), os.fdopen(stdout, "rb", buffer))
        is_answered = bool(select.select([stdout], [], [], seconds)[0])
        if is_answered:
            host.pid = int(host.stdout.readline() or 0)
        if not host.pid:
            host.stdin.close()
            host.stdout.close()
            if not is_answered:
                raise TimeoutError
            return None
        self.hosts += 1
        self.has_imported = True
        return host

    def status(self, host: int, what: str) -> int | None:
        """The exit status of a host, which the server is to wait for (`wait`), to kill (`kill`) or
        only to look at (`poll`): None while it runs. Without a server there is no host: as if it
        had been killed."""
        answer, writes = os.pipe()
        with os.fdopen(answer, "rb") as status:
            is_asked = True
            try:
                message = msgspec.json.encode({"do": what, "host": host})
                socket.send_fds(self.control, [message], [writes])
            except OSError:
                is_asked = False
            os.close(writes)
            said = status.read()
        if is_asked and what == "poll" and not said and self._is_alive():
            return None
        self.hosts -= 1
        return int(said) if said else -signal.SIGKILL

    def _is_alive(self) -> bool:
        return self.process is None or self.process.poll() is None

    def close(self) -> None:
        """End the server and its hosts, where it was started here."""
        self.control.close()
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:  # it still imports, and has no host yet
                self.process.kill()
                self.process.wait()
            shutil.rmtree(self.scratch, ignore_errors=True)  # where it could not by itself


@dataclass
class HostServers:
    """The servers that this process has started, those used last after the others."""

    servers: dict[tuple[object, ...], HostServer] = field(default_factory=dict)

    def of(
        self,
        command: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        number: int,
    ) -> HostServer | None:
        """The server of that number for these hosts, started if it is not there; None where there
        can be none. Those that have been idle for longest are ended."""
        if not FORKS:
            return None
        key = (*command, *arguments, *sorted(environment.items()), number)
        server = self.servers.pop(key, None)
        if server is None or server.process is None or server.process.poll() is not None:
            if server is not None:
                server.close()
            try:
                server = HostServer.start(command, arguments, environment)
            except OSError:
                return None
        self.servers[key] = server
        idle = [key for key, one in self.servers.items() if one is not server and not one.hosts]
        for old in idle[: max(0, len(idle) - IDLE_SERVERS)]:
            self.servers.pop(old).close()
        return server

    def abandon(self) -> None:
        """End the servers that still import. To be called last: the others see by themselves that
        this process ends."""
        importing = [
            (one.process.pid, one.scratch)
            for one in list(self.servers.values())
            if one.process is not None and one.process.returncode is None and not one.has_imported
        ]
        for _, scratch in importing:
            shutil.rmtree(scratch, ignore_errors=True)
        for process, _ in importing:
            os.kill(process, signal.SIGKILL)

    def close(self) -> None:
        """End all servers."""
        while self.servers:
            self.servers.popitem()[1].close()


SERVERS = HostServers()
atexit.register(SERVERS.close)
