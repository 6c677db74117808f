"""Hosts that are forked from one process: a release is imported once, and a host starts at once.

A server is a process of `targets/host` that has imported a release and runs nothing else. Each host
is a fork of it with pipes of its own, in the state that follows the imports: no more is shared than
by starting anew, but for the memory that nobody writes to. What a fresh process would do otherwise
(addresses, seeds taken while importing) a fork of the same server does not show, so a second server
stands for every `another` process, which shares nothing with the first.

Three quarters of an import are libraries, of which releases import the same. So a server that can
is itself a fork, of a process that has imported LIBRARIES alone. The server of a release that has
faults mended in modules which its hosts import when they need them is a fork of the release's own.
"""

import atexit
import functools
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
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from cacheproof.differential.targets.host.forking import TUNABLES

IDLE_SERVERS = 4
"""Servers that are kept after their last host has ended, at most."""
END_SECONDS = 2.0
"""Seconds that a server is given to end; one that has imported ends at once."""
NEAR_SECONDS = 5.0
"""Seconds that a server which has imported is given to answer with a fork."""
FORKS = sys.platform == "linux"
LIBRARIES = (
    *("PIL.Image", "aiohttp", "cachetools", "cbor2", "cloudpickle", "cpuinfo", "huggingface_hub"),
    *("msgspec", "numpy.typing", "openai_harmony", "packaging.version"),
    *("prometheus_client", "psutil", "pybase64", "pydantic.dataclasses", "regex", "requests"),
    *("safetensors.torch", "torch", "torch._dynamo.convert_frame"),
    *("torch._inductor.custom_graph_pass", "torch._inductor.standalone_compile"),
    *("torch._subclasses.fake_tensor", "torch.distributed", "torch.library"),
    *("transformers.dynamic_module_utils", "transformers.generation.logits_process"),
    *("transformers.models.auto.image_processing_auto", "transformers.models.auto.modeling_auto"),
    *("transformers.models.auto.tokenization_auto", "transformers.processing_utils"),
    *("transformers.models.whisper.tokenization_whisper", "zmq.asyncio"),
)
"""Modules that every modelled release imports, in the environment that they share."""
_OWN_SETTINGS = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "VLLM_")
"""Beginnings of the settings that the libraries do not read."""


Key = tuple[object, ...]
"""What tells servers apart."""


class Near(NamedTuple):
    """A server whose tree has the same text, but for the modules in which they are `apart`."""

    server: "HostServer"
    apart: tuple[str, ...]


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


class ForkedServer:
    """A server that was forked, with the methods of `subprocess.Popen` that are used of it. Its
    process id comes over the pipe `answer`, once the process that forks it has imported; 0 or
    nothing where that could not."""

    def __init__(self, stdin: IO[bytes], answer: int) -> None:
        self.stdin = stdin
        self._answer = answer
        self._process: int | None = None

    def __del__(self) -> None:
        os.close(self._answer)
        if self._process is not None:
            os.close(self._process)

    def begins(self, seconds: float) -> bool:
        """Whether it is there within so many seconds."""
        return bool(select.select([self._answer], [], [], seconds)[0]) and self.poll() is None

    def poll(self) -> int | None:
        """An exit status; None while it is there or is to come."""
        return self._ended(0)

    def wait(self, seconds: float | None = None) -> int:
        """Wait until it has ended. Raises TimeoutExpired."""
        status = self._ended(seconds)
        if status is None:
            raise subprocess.TimeoutExpired("a server", seconds or 0)
        return status

    def kill(self) -> None:
        """End it, if it is there. What is still to come ends by itself: its input has ended."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self._process is None:
            if not select.select([self._answer], [], [], seconds)[0]:
                return None
            pid = int(os.read(self._answer, 20) or 0)
            try:
                self._process = os.pidfd_open(pid)
            except (OSError, ValueError):  # there is none
                return -signal.SIGKILL
        return 0 if select.select([self._process], [], [], seconds)[0] else None


@dataclass
class HostServer:
    """A server: `control` is the socket on which it is asked, `process` the server itself if it was
    started here, `libraries` the one that it is a fork of. `scratch` is for its temporary files and
    its hosts'. `has_imported`: a host of it was begun here."""

    control: socket.socket
    scratch: str
    process: "subprocess.Popen[bytes] | ForkedServer | None" = None
    libraries: "tuple[Key, HostServer] | None" = None
    hosts: int = 0
    has_imported: bool = False

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        libraries: "tuple[Key, HostServer] | None" = None,
        near: Near | None = None,
    ) -> "HostServer":
        """Start a server, which imports when it is first asked for something, or a fork of one that
        has imported `libraries`, which imports the rest at once, or of one that is `near`. Raises
        OSError where the interpreter cannot be started, or the one that is near has ended or has
        imported what they are apart in."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        scratch = tempfile.mkdtemp(prefix="cacheproof-host-")
        its_own = {**environment, "TMPDIR": scratch}
        with theirs:
            try:
                if near is not None:
                    process = near.server.fork_server(theirs, arguments, its_own, near.apart)
                    if not process.begins(NEAR_SECONDS):
                        raise ProcessLookupError
                    return cls(ours, scratch, process)
                if libraries is not None:
                    process = libraries[1].fork_server(theirs, arguments, its_own)
                    return cls(ours, scratch, process, libraries)
                started = subprocess.Popen(
                    [*command, "--forks", str(theirs.fileno()), *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**TUNABLES, **its_own},
                    pass_fds=(theirs.fileno(),),
                    process_group=0,  # Ctrl-C is for whoever has started it
                )
            except OSError:
                ours.close()
                os.rmdir(scratch)
                raise
        return cls(ours, scratch, started)

    def __reduce__(self) -> tuple[object, ...]:
        """A server that another process can ask, but does not end; that process forks from the same
        libraries."""
        return _received, (self.control, self.scratch, self.libraries)

    def fork_server(
        self,
        control: socket.socket,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        apart: Sequence[str] = (),
    ) -> ForkedServer:
        """A fork of this one, which has imported libraries alone, or none of the modules that are
        `apart`. Raises OSError where it has ended."""
        given, stdin = os.pipe()
        answer, answers = os.pipe()
        about = {"folder": os.getcwd(), "environment": environment, "arguments": arguments}
        message = msgspec.json.encode({"do": "serve", "apart": apart, **about})
        try:
            socket.send_fds(self.control, [message], [given, control.fileno(), answers])
        except OSError:
            os.close(stdin)
            os.close(answer)
            raise
        finally:
            os.close(given)
            os.close(answers)
        return ForkedServer(os.fdopen(stdin, "wb"), answer)

    def wake(self, *, gathers: bool = False) -> None:
        """Let it import in the background; where it `gathers`, forks are cheaper from then on."""
        if gathers or not self.has_imported:
            with suppress(OSError):  # it has ended, as whoever begins a host will see
                self.control.send(msgspec.json.encode({"do": "gather" if gathers else "import"}))

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


def _received(
    control: socket.socket, scratch: str, libraries: tuple[Key, HostServer] | None
) -> HostServer:
    """A server that another process has started."""
    if libraries is not None:
        SERVERS.libraries.setdefault(*libraries)
    return HostServer(control, scratch, None, libraries)


@dataclass
class HostServers:
    """The servers that this process has started, those used last after the others, and the
    processes that they are forks of."""

    servers: dict[Key, HostServer] = field(default_factory=dict)
    libraries: dict[Key, HostServer] = field(default_factory=dict)

    def of(
        self,
        command: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        number: int,
        near: Near | None = None,
    ) -> HostServer | None:
        """The server of that number for these hosts, started if it is not there, as a fork of one
        that is `near` if it can be; None where there can be none. Those that have been idle for
        longest are ended."""
        if not FORKS:
            return None
        key = (*command, *arguments, *sorted(environment.items()), number)
        server = self.servers.pop(key, None)
        if server is None or server.process is None or server.process.poll() is not None:
            if server is not None:
                server.close()
            server = self._started(command, arguments, environment, number, near)
            if server is None:
                return None
        self.servers[key] = server
        idle = [key for key, one in self.servers.items() if one is not server and not one.hosts]
        for old in idle[: max(0, len(idle) - IDLE_SERVERS)]:
            self.servers.pop(old).close()
        return server

    def _started(
        self,
        command: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        number: int,
        near: Near | None,
    ) -> HostServer | None:
        libraries = None
        if not (number or arguments):  # what stands for `another` process shares no import
            if near is not None:
                with suppress(OSError):
                    return HostServer.start(command, arguments, environment, near=near)
            libraries = self._libraries_for(command, environment)
        try:
            return HostServer.start(command, arguments, environment, libraries)
        except OSError:
            return None

    def _libraries_for(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[Key, HostServer] | None:
        """The process that has imported the libraries of an interpreter in this environment, those
        of other versions in folders before them included, started if it is not there; None where
        the interpreter has none."""
        theirs = _modules_in(_site_packages(Path(command[0])))
        if "torch" not in theirs:
            return None
        folders = environment.get("PYTHONPATH", "").split(os.pathsep)
        before = [one for one in folders if one and theirs & _modules_in(Path(one))]
        settings = {
            name: value for name, value in environment.items() if not name.startswith(_OWN_SETTINGS)
        }
        settings["PYTHONPATH"] = os.pathsep.join(before)
        key = (*command, *sorted(settings.items()))
        found = self.libraries.get(key)
        if found is None or (found.process is not None and found.process.poll() is not None):
            try:
                found = HostServer.start(command, ["--libraries", *LIBRARIES], settings)
            except OSError:
                return None
            self.libraries[key] = found
        return key, found

    def abandon(self) -> None:
        """End the servers that still import. To be called last: the others see by themselves that
        this process ends."""
        importing = [
            (one.process.pid, one.scratch)
            for one in (*list(self.servers.values()), *list(self.libraries.values()))
            if isinstance(one.process, subprocess.Popen)
            and one.process.returncode is None
            and not one.has_imported
        ]
        for _, scratch in importing:
            shutil.rmtree(scratch, ignore_errors=True)
        for process, _ in importing:
            os.kill(process, signal.SIGKILL)

    def close(self) -> None:
        """End all servers."""
        for several in (self.servers, self.libraries):
            while several:
                several.popitem()[1].close()


@functools.cache
def _modules_in(folder: Path) -> frozenset[str]:
    """Names of the modules that a folder has."""
    try:
        names = [one.name for one in folder.iterdir()]
    except OSError:
        return frozenset()
    return frozenset(one.partition(".")[0] for one in names if one.isidentifier() or ".py" in one)


def _site_packages(python: Path) -> Path:
    """The libraries of an interpreter of a virtual environment."""
    return next(python.parent.parent.glob("lib/python3*/site-packages"), Path(os.devnull))


SERVERS = HostServers()
atexit.register(SERVERS.close)
