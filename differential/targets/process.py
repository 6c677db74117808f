"""A target in a process of its own: batches of traces go down a pipe, step records come back.

A host that crashes, hangs or prints junk is a HarnessError with a name, never a finding and never
silence; the process is gone then, and the next batch starts a new one.
"""

import copy
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.targets.host.protocol import Illegal, Protocol
from cacheproof.differential.targets.host_server import SERVERS, ForkedHost, HostServer, Near
from cacheproof.differential.texts.known_texts import Reading
from cacheproof.differential.traces.entry_table import TableEvent, TableHeader
from cacheproof.differential.traces.records import Expansion, TraceResult
from cacheproof.differential.traces.trace import AnyEvent, Header, Trace

HOST_FOLDER = Path(__file__).parent / "host"
START_SECONDS = 600.0
"""Limit for a start: importing takes four seconds, and some minutes on a busy machine."""
BATCH_SECONDS = 300.0
DEPTHS_OF_A_RELEASE = frozenset(name for name, depth in DEPTHS.items() if not depth.is_executed)
"""Depths that need no execution of a model: a release's Python alone executes nothing."""
LOOK_SECONDS = 1.0
"""Seconds between looks at a host that gives no answer: a child of it may hold the pipe open."""
EXIT_SECONDS = 10.0
"""How long a host whose output has ended may take to end too."""
LOG_BYTES_MAX = 64 << 20
LOG_BYTES_READ = 1 << 16
LAST_WORDS_MAX = 400
PIPE_BYTES = 1 << 20
"""Bytes read at once: for each piece the reading thread waits until the judging one lets it run."""


class Hello(msgspec.Struct, frozen=True):
    """A host's answer about itself. `plug_in` is the kind of manager that the plug-in is, `refusal`
    why it cannot be used. Where functions of a host can be changed, those `called_by_imports`
    (`path:name`) cannot."""

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


class _Called(msgspec.Struct, frozen=True):
    id: int
    called: list[list[str]]


class Built(msgspec.Struct, frozen=True):
    """How many schedulers were built with a manager of each class, and in words what they do
    `otherwise` than to build one of the release's managers and leave it as it is."""

    id: int
    built: dict[str, int]
    otherwise: list[str]


class _Imported(msgspec.Struct, frozen=True):
    id: int
    otherwise: list[str]


class _Begun(msgspec.Struct, frozen=True):
    id: int
    tree: Any = None
    source: str = ""
    capacity: int | None = None
    illegal: str | None = None


class _Expanded(Expansion, frozen=True, kw_only=True):
    id: int


_CALLED = msgspec.json.Decoder(_Called)
_BUILT = msgspec.json.Decoder(Built)
_IMPORTED = msgspec.json.Decoder(_Imported)
_BEGUN = msgspec.json.Decoder(_Begun)
_EXPANDED = msgspec.json.Decoder(_Expanded)
_HELLO = msgspec.json.Decoder(Hello)
_REPLY = msgspec.json.Decoder(_Reply)
_END = b""
_PLACE = re.compile(r' +File "(.+)", line (\d+)')


class HostTarget:
    """Runs traces on a vLLM tree through `targets/host` in that tree's own interpreter.

    `command` is the interpreter, `environment` what it needs to find the tree. `plug_in` puts a
    class (`module:Class`) in the place of the release's manager. `module` has the `HOST` to run in
    the place of the one for releases, and `depths` are all that it runs. Where it `is_forked`, its
    imports leave one thread, and its hosts share them. `reading` is how the text of the `tree`
    compares with the modelled releases, `mended` the listed faults that are taken out of it.
    `project` is the one whose system it is.
    """

    def __init__(
        self,
        name: str,
        release: str | None,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        reading: Reading | None = None,
        tree: Path | None = None,
        plug_in: str | None = None,
        mended: tuple[str, ...] = (),
        module: str | None = None,
        depths: Collection[str] = DEPTHS_OF_A_RELEASE,
        is_forked: bool = False,
        project: str = "vllm",
        start_seconds: float = START_SECONDS,
        batch_seconds: float = BATCH_SECONDS,
    ) -> None:
        self.name = name
        self.projects: tuple[str, ...] = (project,)
        self.release = release
        self.reading = reading
        self.tree = tree
        self.mended = mended
        self._interpreter = command
        self._module = [module] if module else []
        # The order of sets would differ between runs otherwise.
        self._environment = {**environment, "PYTHONHASHSEED": "0"}
        self._depths = depths
        self._plug_in = plug_in
        self._start_seconds = start_seconds
        self._batch_seconds = batch_seconds
        self._process: subprocess.Popen[bytes] | ForkedHost | None = None
        self._server: HostServer | None = None
        self._server_number = 0 if is_forked else None
        self._near: Near | None = None
        self._hello: Hello | None = None
        self._sent = 0
        self._received = 0

    @property
    def hello(self) -> Hello:
        """The host's answer about itself; starts the host.

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
                    f"target {self.name}: {hello.refusal}; expected MODULE:CLASS, a manager or a "
                    "connector that imports from this folder or from the release"
                )
            self._hello = hello
        return self._hello

    @property
    def model(self) -> str | None:
        return self.release if self.reading is None else self.reading.nearest

    @property
    def announcement(self) -> list[str]:
        if self.mended:
            faults = ", ".join(self.mended)
            return [f"{self.name}: listed faults that are mended first: {faults}"]
        return [] if self.reading is None else self.reading.announcement(self.name)

    @property
    def protocol(self) -> Protocol:
        return Protocol(**self.hello.protocol)

    @property
    def plug_in_kind(self) -> str | None:
        """The kind of manager that the plug-in is, and alone is driven as; None without one."""
        return self.hello.plug_in if self._plug_in else None

    def runs_depth(self, depth: str) -> bool:
        return depth in self._depths

    def beside(
        self, name: str, module: str, depths: Collection[str], settings: Mapping[str, str]
    ) -> "HostTarget":
        """A host of another module in the same interpreter, with the same libraries."""
        environment = {**self._environment, **settings}
        return HostTarget(name, None, self._interpreter, environment, module=module, depths=depths)

    def run(
        self,
        traces: Sequence[Trace],
        fault: str | None = None,
        flags: Mapping[str, bool] | None = None,
    ) -> list[TraceResult]:
        self.submit(traces, fault, flags)
        return self.collect(len(traces))

    def submit(
        self,
        traces: Sequence[Trace],
        fault: str | None = None,
        flags: Mapping[str, bool] | None = None,
    ) -> None:
        """Send a batch without waiting for it. A host of the reference runs it with these `flags`
        of its semantics changed. Raises HarnessError when no host is running."""
        assert self.hello
        about = {"manager": self._plug_in, "fault": fault, **({"flags": flags} if flags else {})}
        self._send({"do": "run", "traces": traces, **about})

    def collect(self, expected: int) -> list[TraceResult]:
        """Results of the oldest batch sent. Raises HarnessError when the host broke."""
        reply = self._decode(_REPLY, self._receive(self._batch_seconds))
        if len(reply.results) != expected:
            raise self._broken(f"sent {len(reply.results)} results for {expected} traces")
        return reply.results

    def called(self, trace: Trace, fault: str | None = None) -> list[list[str]]:
        """The functions of the tree that each event of a trace calls, up to the last event that is
        run; none where the host runs another module. Raises HarnessError when the host broke.
        """
        if self._module:
            return []
        assert self.hello
        self._send({"do": "called", "trace": trace, "manager": self._plug_in, "fault": fault})
        called: list[list[str]] = self._decode(_CALLED, self._receive(self._batch_seconds)).called
        return called

    def imported_otherwise(
        self, imports: Sequence[str], module: str, text: str, classes: Sequence[str]
    ) -> list[str]:
        """What differs, of a module's classes and their bases, from the module's text; or is
        another class in one of the modules `imports`.

        Raises:
            HarnessError: the host broke.
        """
        assert self.hello
        asked = {"imports": imports, "module": module, "text": text, "classes": classes}
        self._send({"do": "imported", **asked})
        return self._decode(_IMPORTED, self._receive(self._batch_seconds)).otherwise

    def built(self, traces: Sequence[Trace]) -> Built:
        """What the schedulers of these traces build. Raises HarnessError when the host broke."""
        assert self.hello
        self._send({"do": "built", "traces": traces})
        return self._decode(_BUILT, self._receive(self._batch_seconds))

    def explorer(
        self,
        header: Header | TableHeader,
        alphabet: Sequence[AnyEvent | TableEvent],
        fault: str | None,
    ) -> "HostExplorer":
        """An explorer that tries every event of the alphabet in the states of a manager or a table.
        A host has one explorer, the last that was asked for.

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
        return HostExplorer(self, begun.tree, begun.source, begun.capacity)

    def submit_states(self, states: Sequence[int]) -> None:
        """Ask for what follows states, without waiting. Raises HarnessError as `submit`."""
        self._send({"do": "expand", "states": states})

    def collect_expansion(self) -> Expansion:
        """What follows the states that were asked for first. Raises HarnessError when the host
        broke."""
        expansion: Expansion = self._decode(_EXPANDED, self._receive(self._batch_seconds))
        return expansion

    def another(self) -> "HostTarget":
        twin = copy.copy(self)
        twin._process = twin._server = twin._hello = None
        # Forks of one server agree in addresses and seeds: another process is of the other server.
        if twin._server_number is not None:
            twin._server_number = 1 - twin._server_number
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """The attributes with which another process runs the same system in a host of its own."""
        running = ("_process", "_hello", "_log", "_scratch", "_requests", "_lines")
        return {name: value for name, value in vars(self).items() if name not in running} | {
            "_process": None,
            "_hello": None,
            "_near": None,
        }

    def close(self) -> None:
        self._end()

    def _end(self) -> None:
        """End the host process."""
        process, self._process, self._hello = self._process, None, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            process.wait()
            self._requests.put(_END)  # the writing thread would wait for ever
            self._log.close()
            self._scratch.cleanup()

    def _start(self) -> None:
        self._end()
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

    def fork_near(self, other: "HostTarget", apart: Sequence[str]) -> None:
        """Fork hosts from what the other one's are forks of, as long as that has imported none of
        these modules, the only ones in which their trees are apart."""
        if other._server is not None and other._server_number == 0:
            self._near = Near(other._server, tuple(apart))

    def prepare(self, *, imports: bool = True, forks_much: bool = False) -> None:
        """Begin to import in the background, so that hosts start at once later; without `imports`
        only start what imports as soon as a host is begun or this is called again. Where its hosts
        fork much, as those of connectors do, they are made ready for that."""
        if self._server_number is not None and self._server is None:
            self._server = SERVERS.of(
                [*self._interpreter, str(HOST_FOLDER)],
                self._module,
                self._environment,
                self._server_number,
                self._near,
            )
        if self._server is not None and imports:
            self._server.wake(gathers=forks_much)

    def _forked(self) -> ForkedHost | None:
        """A forked host, which has imported already; None where one must be started anew."""
        self.prepare()
        if self._server is not None and not os.path.isdir(self._server.scratch):
            self._server = None  # it has made room for others since
            self.prepare()
        if self._server is None or not os.path.isdir(self._server.scratch):
            return None
        self._make_scratch(self._server.scratch)
        seconds = self._start_seconds
        try:
            host = self._server.begin(self._log, self._scratch.name, PIPE_BYTES, seconds)
        except TimeoutError:  # it still imports: to begin anew would take as long again
            self._server = None
            self._log.close()
            self._scratch.cleanup()
            raise HarnessError(
                f"host of {self.name} has not started within {seconds:.0f} s"
            ) from None
        if host is None:
            self._server = None
            self._scratch.cleanup()
        return host

    def _make_scratch(self, within: str | None = None) -> None:
        """Make a folder for the host's files, which it leaves when it is killed. A forked host's
        lies within its server's, which removes it where this process was killed."""
        self._scratch = tempfile.TemporaryDirectory(
            prefix="cacheproof-host-", dir=within, ignore_cleanup_errors=True
        )

    def _started(self) -> "subprocess.Popen[bytes]":
        self._make_scratch()
        try:
            return subprocess.Popen(
                [*self._interpreter, str(HOST_FOLDER), *self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=PIPE_BYTES,
                env={**self._environment, "TMPDIR": self._scratch.name},
                process_group=0,  # so that it is ended with all that it has started
            )
        except OSError as error:
            self._log.close()
            self._scratch.cleanup()
            raise HarnessError(
                f"host of {self.name} does not start: {self._interpreter[0]}: {error.strerror}"
            ) from None

    def _send(self, request: dict[str, Any]) -> None:
        if self._process is None:
            raise HarnessError(f"host of {self.name} is not running")
        self._sent += 1
        self._requests.put(msgspec.json.encode({"id": self._sent, **request}) + b"\n")

    def _receive(self, seconds: float) -> bytes:
        until = time.monotonic() + seconds
        line = None
        while line is None:
            left = until - time.monotonic()
            try:  # in short waits: a host that is dead, or fills its log, is not waited for
                line = self._lines.get(timeout=min(LOOK_SECONDS, max(left, 0)))
            except queue.Empty:
                if self._process is None or self._process.poll() is not None:
                    line = self._last_word()
                elif os.fstat(self._log.fileno()).st_size > LOG_BYTES_MAX:
                    said = f"printed more than {LOG_BYTES_MAX >> 20} MiB and was killed"
                    raise self._broken(said) from None
                elif left <= 0:
                    said = f"gave no answer for {seconds:.0f} s and was killed"
                    raise self._broken(said) from None
        if line == _END:
            raise self._broken("crashed")
        return line

    def _last_word(self) -> bytes:
        """The last line of a dead host. The pipe's end is not waited for: a surviving child may
        hold it open."""
        try:
            return self._lines.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            return _END

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
        """End the process; returns an error that says what happened, with the last words."""
        status = ""
        if self._process is not None:
            if what == "crashed":
                status = f" ({self._exit()})"
            else:
                self._process.kill()
            self._log.seek(max(0, os.fstat(self._log.fileno()).st_size - LOG_BYTES_READ))
            words = _last_words(self._log.read().decode(errors="replace"))
            status += f": {words}" if words else ""
        self.close()
        return HarnessError(f"host of {self.name} {what}{status}")

    def _exit(self) -> str:
        """How a host ended that says no more; one that only closed its output is ended."""
        assert self._process is not None
        until = time.monotonic() + EXIT_SECONDS
        while (status := self._process.poll()) is None:
            if time.monotonic() > until:
                self._process.kill()
                return "it closed its output and went on"
            time.sleep(0.01)
        return f"exit status {status}"


def _last_words(log: str) -> str:
    """The exception of the last traceback and where it was raised, or the last line."""
    lines = log.strip().splitlines()
    places = [number for number, line in enumerate(lines) if _PLACE.match(line)]
    said = [line for line in lines[places[-1] + 1 :] if line[:1] != " "] if places else []
    if not said:
        return "".join(lines[-1:])[:LAST_WORDS_MAX]
    place = _PLACE.match(lines[places[-1]])
    assert place is not None
    return f"{' '.join(said)[:LAST_WORDS_MAX]} ({place[1]}:{place[2]})"


@dataclass
class HostExplorer:
    """An explorer in a host: `tree` is its first state, `source` the SHA-256 of the text of the
    manager's class, `capacity` the room that a manager says it has."""

    target: HostTarget
    tree: Any
    source: str
    capacity: int | None
    _outstanding: int = 0

    def submit(self, states: Sequence[int]) -> None:
        """Ask for what follows these states."""
        self.target.submit_states(states)
        self._outstanding += 1

    def collect(self) -> Expansion:
        """What follows the states that were asked for first."""
        self._outstanding -= 1
        return self.target.collect_expansion()

    def leave(self) -> None:
        """Ask for nothing more. Answers come in order: those left here would be taken for those to
        the next question."""
        while self._outstanding:
            self.collect()


# A pipe holds less than a batch: without these, whoever writes waits until the other side reads.


def _send(stream: IO[bytes], requests: "queue.Queue[bytes]") -> None:
    """Move requests from the queue to the pipe; who waits for an answer sees that a host ended."""
    with suppress(OSError), stream:
        for request in iter(requests.get, _END):
            stream.write(request)
            stream.flush()


def _receive(stream: IO[bytes], lines: "queue.Queue[bytes]") -> None:
    """Move whole lines from the pipe to the queue."""
    with suppress(OSError, ValueError), stream:
        for line in _whole_lines(stream):
            lines.put(line)
    lines.put(_END)


def _whole_lines(stream: IO[bytes]) -> Iterator[bytes]:
    for line in stream:
        if line.endswith(b"\n"):  # else the host died in the middle of it
            yield line
