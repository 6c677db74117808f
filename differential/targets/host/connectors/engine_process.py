"""Engines of traces for connectors, each a process of its own that can be killed.

They are forks of one process, which is itself a fork of the host and does nothing else: its memory
stays as it was, so that a fork copies little, and an engine finds the same whatever ran before it.
"""

import json
import os
import pickle
import select
import signal
import socket
from pathlib import Path
from typing import NamedTuple

from ..child import end_with, leave_the_host
from ..protocol import Event, HostError, Illegal, Json
from .engine import ConnectorEngine, MakeKit
from .store import Store

ANSWER_SECONDS = 30.0
"""Limit of a call: one that takes longer counts as one that does not end."""
STOP_SECONDS = 10.0
"""Limit of a shutdown, which has less to do than a call."""
LINE_BYTES_MAX = 1 << 22
MESSAGE_BYTES = 64


class DoesNotAnswer(Exception):
    """An engine is still busy with a call after a long time."""


class Asked(NamedTuple):
    """What an engine is made of: the trace's configuration, the number of its model, the version of
    its weights, the store and its folder, and the fault that is planted in its connector."""

    config: Event
    model: int
    weights: int
    store: Store
    root: Path
    fault: str | None

    def made(self, make_kit: MakeKit) -> ConnectorEngine:
        """The engine."""
        model = self.config["models"][self.model]
        kit = make_kit(self.config, model, self.weights, self.root, self.fault)
        return ConnectorEngine(self.config, self.model, self.weights, self.store, kit)


class EngineForks:
    """A process that forks engines, whose connectors are what `make_kit` makes. It ends with this
    one."""

    def __init__(self, make_kit: MakeKit) -> None:
        self.owner = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if not os.fork():
            ours.close()
            _fork_engines(theirs, make_kit, self.owner)
        theirs.close()
        self._control = ours

    def begin(self, orders: socket.socket) -> int:
        """The process id of a new engine that reads what it is made of, and then its orders."""
        return self._ask(0, orders.fileno())

    def bury(self, engine: int) -> None:
        """Wait until an engine has ended."""
        self._ask(engine)

    def _ask(self, engine: int, *descriptors: int) -> int:
        try:
            socket.send_fds(self._control, [b"%d" % engine], descriptors)
            said = self._control.recv(MESSAGE_BYTES)
        except OSError:
            said = b""
        if not said:
            raise HostError("the process that forks engines has ended")
        return int(said)


_forks: dict[MakeKit, EngineForks] = {}


def _forks_of(make_kit: MakeKit) -> EngineForks:
    """The process of this one that forks such engines. A fork of this one has its own."""
    forks = _forks.get(make_kit)
    if forks is None or forks.owner != os.getpid():
        _forks[make_kit] = forks = EngineForks(make_kit)
    return forks


def _fork_engines(control: socket.socket, make_kit: MakeKit, host: int) -> None:
    """Fork engines until the host has ended; never returns."""
    try:
        end_with(host)
        leave_the_host()
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 1)
            if not message:
                break
            engine = int(message)
            if engine:
                os.waitpid(engine, 0)
            elif not (engine := os.fork()):
                control.close()
                _serve(socket.socket(fileno=descriptors[0]), make_kit)
            for descriptor in descriptors:
                os.close(descriptor)
            control.send(b"%d" % engine)
    finally:
        os._exit(0)


class EngineProcess:
    """An engine in a process of its own, which gets one order after the other."""

    def __init__(self, make_kit: MakeKit, asked: Asked) -> None:
        self._forks = _forks_of(make_kit)
        ours, theirs = socket.socketpair()
        with theirs:
            self.pid = self._forks.begin(theirs)
        self._socket = ours
        self._lines = ours.makefile("rb")
        self.has_died = False
        self._socket.sendall(pickle.dumps(asked))

    def ask(self, order: str, *arguments: Json) -> Event:
        """The answer to an order, or {"raises": [type, text]}; empty where the engine has died.

        Raises:
            DoesNotAnswer: it goes on and on.
        """
        try:
            self._socket.sendall(json.dumps([order, *arguments]).encode() + b"\n")
            seconds = STOP_SECONDS if order == "stop" else ANSWER_SECONDS
            if not select.select([self._socket], [], [], seconds)[0]:
                self.kill()
                raise DoesNotAnswer(f"{order} takes longer than {seconds:.0f} s")
            line = self._lines.readline(LINE_BYTES_MAX)
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        if not line:
            self._bury()
            return {}
        answer: Event = json.loads(line)
        return answer

    def kill(self) -> None:
        """End the engine, whatever it does."""
        if not self.has_died:
            os.kill(self.pid, signal.SIGKILL)
            self._bury()

    def _bury(self) -> None:
        self.has_died = True
        self._lines.close()
        self._socket.close()
        self._forks.bury(self.pid)


def _serve(orders: socket.socket, make_kit: MakeKit) -> None:
    """Serve orders in the fork; never returns."""
    try:
        engine: ConnectorEngine | None = None
        with orders.makefile("rwb") as lines:
            asked: Asked = pickle.load(lines)
            for line in lines:
                order, *arguments = json.loads(line)
                try:
                    if engine is None:
                        engine = asked.made(make_kit)
                    answer = getattr(engine, order)(*arguments) if order != "start" else {}
                except HostError as error:
                    answer = {"host": str(error)}
                except Illegal as reason:
                    answer = {"illegal": str(reason)}
                except (Exception, SystemExit) as error:
                    answer = {"raises": [type(error).__name__, _said(error)]}
                lines.write(json.dumps(answer).encode() + b"\n")
                lines.flush()
    finally:
        os._exit(0)


def _said(error: BaseException) -> str:
    """An error in one line, without paths, which differ in each run."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).splitlines() or [""])[0]
