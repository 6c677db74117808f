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
from dataclasses import dataclass, field
from typing import IO

import msgspec

IDLE_SERVERS = 4
"""Kept after the last host of theirs has ended."""
END_SECONDS = 2.0
"""A server that has imported ends at once."""
FORKS = sys.platform == "linux"


@dataclass
class ForkedHost:
    """A host, as `subprocess.Popen` has one."""

    server: "HostServer"
    pid: int
    stdin: IO[bytes]
    stdout: IO[bytes]
    status: int | None = None

    def kill(self) -> None:
        """End it."""
        self._ask("kill")

    def wait(self) -> int | None:
        """Its exit status, once it has ended."""
        return self._ask("wait")

    def poll(self) -> int | None:
        """Its exit status, if it has ended."""
        return self._ask("poll")

    def _ask(self, what: str) -> int | None:
        if self.status is None:
            self.status = self.server.status(self.pid, what)
        return self.status


@dataclass
class HostServer:
    """One server: `control` is where it is asked, `process` itself where it was started here.
    `scratch` is for its temporary files and its hosts'. `has_imported` says that a host of it was
    begun here."""

    control: socket.socket
    scratch: str
    process: "subprocess.Popen[bytes] | None" = None
    hosts: int = 0
    has_imported: bool = False

    @classmethod
    def start(
        cls, command: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]
    ) -> "HostServer":
        """Start to import. Raises OSError where the interpreter cannot be started."""
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
        """In another process it can be asked, and is not its to end."""
        return HostServer, (self.control, self.scratch)

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
        """The exit status of a host for which it is asked to `wait`, which it is to `kill`, or
        after which it is asked alone (`poll`): None where that runs. Without a server there is no
        host: as if it had been killed."""
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
        """End it and its hosts, where it was started here."""
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
    """The servers that this process has started, those used last behind the others."""

    servers: dict[tuple[object, ...], HostServer] = field(default_factory=dict)

    def of(
        self,
        command: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        number: int,
    ) -> HostServer | None:
        """The server with that number of these hosts, started first if need be; None where there
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
        """The last thing that this process does, whose end servers see by themselves: end those
        that still import, and would not see it before they have."""
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
