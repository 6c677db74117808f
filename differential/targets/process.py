"""A target in a process of its own: batches of traces go down a pipe, step records come back.

A host that crashes, hangs or prints junk is a HarnessError with a name, never a finding and never
silence; the process is gone then, and the next batch starts a new one.
"""

import copy
import queue
import subprocess
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.record import ExplorerStep, TraceResult
from cacheproof.differential.targets.host.protocol import Illegal, Protocol
from cacheproof.differential.targets.host_server import SERVERS, ForkedHost, HostServer
from cacheproof.differential.targets.known_texts import Reading
from cacheproof.differential.trace import EVENTS_OF_DEPTH, AnyEvent, Header, Trace

HOST_FOLDER = Path(__file__).parent / "host"
START_SECONDS = 300.0
BATCH_SECONDS = 300.0
DEPTHS_OF_A_RELEASE = frozenset(EVENTS_OF_DEPTH) - {"engine"}
"""Its Python alone executes nothing."""
PIPE_BYTES = 1 << 20
"""Read at a time: for every piece the reading thread waits until the judging one lets it run."""


class Hello(msgspec.Struct, frozen=True):
    """What a host says of itself. `plug_in` is the kind of manager that the plug-in is, `refusal`
    why it cannot be used. A host whose functions can be changed cannot change those that were
    `called_by_imports` (`path:name`)."""

    id: int
    python: str
    vllm: str
    protocol: dict[str, bool]
    plug_in: str | None = None
    refusal: str | None = None
    called_by_imports: tuple[str, ...] = ()


class _Reply(msgspec.Struct, frozen=True):
    id: int
    results: list[TraceResult]


class _Begun(msgspec.Struct, frozen=True):
    id: int
    tree: Any = None
    source: str = ""
    illegal: str | None = None


class _Steps(msgspec.Struct, frozen=True):
    id: int
    steps: list[list[ExplorerStep | None]]


_BEGUN = msgspec.json.Decoder(_Begun)
_STEPS = msgspec.json.Decoder(_Steps)
_HELLO = msgspec.json.Decoder(Hello)
_REPLY = msgspec.json.Decoder(_Reply)
_END = b""


class HostTarget:
    """Runs traces on a vLLM tree through `targets/host` in that tree's own interpreter.

    `command` is the interpreter, `environment` what it needs to find the tree. `plug_in` puts a
    class (`module:Class`) in the place of the release's manager. `module` has the `Release` that is
    run in place of the tree's whole vLLM, and `depths` are all that it runs. Where it `is_forked`,
    its imports leave one thread, and its hosts share them. `reading` is how the tree's text stands
    to the modelled releases.
    """

    def __init__(
        self,
        name: str,
        release: str | None,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        reading: Reading | None = None,
        plug_in: str | None = None,
        module: str | None = None,
        depths: Collection[str] = DEPTHS_OF_A_RELEASE,
        is_forked: bool = False,
        start_seconds: float = START_SECONDS,
        batch_seconds: float = BATCH_SECONDS,
    ) -> None:
        self.name = name
        self.release = release
        self.reading = reading
        self._interpreter = command
        self._module = [module] if module else []
        self._environment = {**environment, "PYTHONHASHSEED": "0"}
        self._depths = depths
        self._plug_in = plug_in
        self._start_seconds = start_seconds
        self._batch_seconds = batch_seconds
        self._process: subprocess.Popen[bytes] | ForkedHost | None = None
        self._server: HostServer | None = None
        self._server_number = 0 if is_forked else None
        self._hello: Hello | None = None
        self._sent = 0
        self._received = 0

    @property
    def hello(self) -> Hello:
        """What the host says of itself; starts it.

        Raises:
            HarnessError: it does not start.
            InputError: the plug-in cannot be used.
        """
        if self._hello is None:
            self._start()
            self._send({"do": "hello", "manager": self._plug_in})
            hello = self._decode(_HELLO, self._receive(self._start_seconds))
            if hello.refusal is not None:
                self.close()
                raise InputError(
                    f"target {self.name}: {hello.refusal}; expected MODULE:CLASS that imports "
                    f"from this folder or from the release"
                )
            self._hello = hello
        return self._hello

    @property
    def model(self) -> str | None:
        return self.release if self.reading is None else self.reading.nearest

    @property
    def announcement(self) -> list[str]:
        return [] if self.reading is None else self.reading.announcement(self.name)

    @property
    def protocol(self) -> Protocol:
        return Protocol(**self.hello.protocol)

    @property
    def plug_in_kind(self) -> str | None:
        """The kind of manager that the plug-in is: it is driven as no other. None without one."""
        return self.hello.plug_in if self._plug_in else None

    def runs_depth(self, depth: str) -> bool:
        return depth in self._depths

    def beside(
        self, name: str, module: str, depths: Collection[str], settings: Mapping[str, str]
    ) -> "HostTarget":
        """A host of another module in the same interpreter, with the same libraries."""
        environment = {**self._environment, **settings}
        return HostTarget(name, None, self._interpreter, environment, module=module, depths=depths)

    def run(self, traces: Sequence[Trace], fault: str | None = None) -> list[TraceResult]:
        self.submit(traces, fault)
        return self.collect(len(traces))

    def submit(self, traces: Sequence[Trace], fault: str | None = None) -> None:
        """Send a batch without waiting for it. Raises HarnessError when no host is running."""
        assert self.hello
        self._send({"do": "run", "traces": traces, "manager": self._plug_in, "fault": fault})

    def collect(self, expected: int) -> list[TraceResult]:
        """Results of the oldest batch sent. Raises HarnessError when the host broke."""
        reply = self._decode(_REPLY, self._receive(self._batch_seconds))
        if len(reply.results) != expected:
            raise self._broken(f"sent {len(reply.results)} results for {expected} traces")
        return reply.results

    def explorer(
        self, header: Header, alphabet: Sequence[AnyEvent], fault: str | None
    ) -> "HostExplorer":
        """What tries every event of the alphabet in the states of one manager, the last asked for.

        Raises:
            Illegal: the release has no such manager.
            HarnessError: the host broke.
        """
        assert self.hello
        about = {"header": header, "alphabet": alphabet, "fault": fault}
        self._send({"do": "explore", "manager": self._plug_in, **about})
        begun = self._decode(_BEGUN, self._receive(self._batch_seconds))
        if begun.illegal is not None:
            raise Illegal(begun.illegal)
        return HostExplorer(self, begun.tree, begun.source)

    def submit_states(self, states: Sequence[int]) -> None:
        """Ask what becomes of states, without waiting. Raises HarnessError as `submit`."""
        self._send({"do": "expand", "states": states})

    def collect_steps(self) -> list[list[ExplorerStep | None]]:
        """The steps that were asked for first. Raises HarnessError when the host broke."""
        steps: list[list[ExplorerStep | None]]
        steps = self._decode(_STEPS, self._receive(self._batch_seconds)).steps
        return steps

    def another(self) -> "HostTarget":
        twin = copy.copy(self)
        twin._process = twin._server = twin._hello = None
        if twin._server_number is not None:
            twin._server_number = 1 - twin._server_number
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs to run the same system in a host of its own."""
        running = ("_process", "_hello", "_log", "_requests", "_lines")
        return {name: value for name, value in vars(self).items() if name not in running} | {
            "_process": None,
            "_hello": None,
        }

    def close(self) -> None:
        """End the host process."""
        process, self._process, self._hello = self._process, None, None
        if process is not None:
            process.kill()
            process.wait()
            self._requests.put(_END)
            if process.stdout is not None:
                process.stdout.close()
            self._log.close()

    def _start(self) -> None:
        self.close()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        self._sent = self._received = 0
        self._process = self._forked() or self._started()
        self._requests: queue.Queue[bytes] = queue.Queue()
        self._lines: queue.Queue[bytes] = queue.Queue()
        ways = (
            (_send, self._process.stdin, self._requests),
            (_receive, self._process.stdout, self._lines),
        )
        for forward, *ends in ways:
            threading.Thread(target=forward, args=ends, daemon=True).start()

    def prepare(self) -> None:
        """Begin to import in the background, so that hosts start at once."""
        if self._server_number is not None and self._server is None:
            self._server = SERVERS.of(
                [*self._interpreter, str(HOST_FOLDER)],
                self._module,
                self._environment,
                self._server_number,
            )

    def _forked(self) -> ForkedHost | None:
        """A host that has imported already; None where it is to be started."""
        self.prepare()
        if self._server is None:
            return None
        host = self._server.begin(self._log, PIPE_BYTES, self._start_seconds)
        if host is None:
            self._server = None
        return host

    def _started(self) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                [*self._interpreter, str(HOST_FOLDER), *self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=PIPE_BYTES,
                env=self._environment,
            )
        except OSError as error:
            raise HarnessError(
                f"host of {self.name} does not start: {self._interpreter[0]}: {error.strerror}"
            ) from None

    def _send(self, request: dict[str, Any]) -> None:
        if self._process is None:
            raise HarnessError(f"host of {self.name} is not running")
        self._sent += 1
        self._requests.put(msgspec.json.encode({"id": self._sent, **request}) + b"\n")

    def _receive(self, seconds: float) -> bytes:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise self._broken(f"gave no answer for {seconds:.0f} s and was killed") from None
        if line == _END:
            raise self._broken("crashed")
        return line

    def _decode(self, decoder: Any, line: bytes) -> Any:
        self._received += 1
        try:
            reply = decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise self._broken(f"printed what is no answer ({error})") from None
        if reply.id != self._received:
            raise self._broken(f"answered request {reply.id} instead of {self._received}")
        return reply

    def _broken(self, what: str) -> HarnessError:
        """End the process and say what happened, with the last line that it printed."""
        status = ""
        if self._process is not None:
            if what == "crashed":
                status = f" (exit status {self._process.wait()})"
            else:
                self._process.kill()
            self._log.seek(0)
            last = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
            status += f": {last[0]}" if last else ""
        self.close()
        return HarnessError(f"host of {self.name} {what}{status}")


@dataclass(frozen=True)
class HostExplorer:
    """An explorer in a host: `tree` is the state that it begins with, `source` the SHA-256 of the
    text of the manager's class."""

    target: HostTarget
    tree: Any
    source: str

    def submit(self, states: Sequence[int]) -> None:
        """Ask for the steps from these states."""
        self.target.submit_states(states)

    def collect(self) -> list[list[ExplorerStep | None]]:
        """The steps that were asked for first."""
        return self.target.collect_steps()


# A pipe holds less than a batch: without these, whoever writes waits until the other side reads.


def _send(stream: IO[bytes], requests: "queue.Queue[bytes]") -> None:
    """Move requests from the queue to the pipe; who waits for an answer sees that a host ended."""
    with suppress(OSError), stream:
        for request in iter(requests.get, _END):
            stream.write(request)
            stream.flush()


def _receive(stream: IO[bytes], lines: "queue.Queue[bytes]") -> None:
    """Move whole lines from the pipe to the queue."""
    try:
        for line in _whole_lines(stream):
            lines.put(line)
    except (OSError, ValueError):
        pass
    finally:
        lines.put(_END)


def _whole_lines(stream: IO[bytes]) -> Iterator[bytes]:
    for line in stream:
        if line.endswith(b"\n"):
            yield line
