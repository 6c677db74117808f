"""A process that has imported a release, and forks a host from itself for whoever asks.

It imports when it is first asked for anything, and answers over a socket of whole messages in JSON.
`import` asks for no more than that, `gather` for cheaper forks from then on. `begin`, with the
host's working folder and one for its temporary files, brings three descriptors: a host's standard
input, the pipe for its results and its log; the first line in that pipe is the host's process id.
`wait`, `kill` and `poll` bring one, into which the exit status of a host is written, or nothing if
it still runs. When its own standard input ends, whoever started it has ended: it ends with all of
its hosts and its folder.

A process that has imported libraries alone forks such processes, each for one release: `serve`,
with the environment and the arguments that it would be started with, brings its standard input, its
own socket and a pipe for its process id. They end by themselves, as they would without it. One that
has imported a release forks such a process for another tree with the same text, but for modules
that it has not imported.
"""

import ctypes
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

NOT_ALONE = 0
"""Stands for a process id where nothing can be forked: more than one thread runs here, or what the
fork is to import is here in another text."""
WAIT_SECONDS = 5.0
MESSAGE_BYTES = 1 << 18
"""The environment of a server may be large."""
HUGE_PAGE = 1 << 21
"""Bytes of a huge page; it lies at a multiple of them."""
_HUGE_PAGES, _COLLAPSE = 14, 25  # of madvise(2)
_THREADS = Path("/proc/self/task")
_MAPS = Path("/proc/self/maps")


TUNABLES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Settings with which a server is started. Its heap is in huge pages from the start then, which is
cheaper than to move it there."""


def wait_for_work(control: socket.socket) -> None:
    """Wait until a process that forks hosts is asked for something; it ends here where its standard
    input does."""
    for name, value in TUNABLES.items():
        if os.environ.get(name) == value:
            del os.environ[name]  # it has been read, and is not for what is imported
    ready, _, _ = select.select([0, control.fileno()], [], [])
    if control.fileno() not in ready and not os.read(0, 1):
        _clean_up()
        os._exit(0)


def _gather_pages() -> None:
    """Move what this process has imported into huge pages, where the system has them: a fork copies
    one entry of each in place of 512. It takes half a second, and memory that forks no longer
    share with what this process is a fork of."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int
    for line in _MAPS.read_text().splitlines():
        addresses, access, _, _, _, *name = line.split()
        if access == "rw-p" and name in ([], ["[heap]"]):
            begin, end = (int(one, 16) for one in addresses.split("-"))
            begin, end = -(-begin // HUGE_PAGE) * HUGE_PAGE, end // HUGE_PAGE * HUGE_PAGE
            if begin < end:
                madvise(begin, end - begin, _HUGE_PAGES)
                madvise(begin, end - begin, _COLLAPSE)  # an older system refuses, and forks slower


def _requests(control: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """What is asked, with descriptors that are closed behind it, until nobody is left to ask."""
    while True:
        ready, _, _ = select.select([0, control.fileno()], [], [])
        if 0 in ready and not os.read(0, 1):
            return
        if control.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 3)
        if not message:
            return
        yield json.loads(message), descriptors
        for descriptor in descriptors:
            os.close(descriptor)


def fork_hosts(control: socket.socket) -> int:
    """Fork hosts until nobody is left to ask for one; returns in a fork alone.

    Returns:
        The descriptor that takes the host's results. Its input and its log are at 0 and 2.
    """
    hosts: set[int] = set()
    servers: set[int] = set()
    gc.freeze()  # or the collector would walk, and so copy, all of it in each fork
    for request, descriptors in _requests(control):
        servers = {one for one in servers if not os.waitpid(one, os.WNOHANG)[0]}
        if request["do"] == "serve":
            has_imported = not sys.modules.keys().isdisjoint(request["apart"])
            is_alone = len(os.listdir(_THREADS)) == 1
            server = _fork() if is_alone and not has_imported else NOT_ALONE
            if server is None:
                control.close()
                return fork_hosts(_settle_server(descriptors, request)[0])
            servers |= {server} - {NOT_ALONE}
            os.write(descriptors[2], f"{server}\n".encode())
        elif request["do"] == "begin":
            host = _fork() if len(os.listdir(_THREADS)) == 1 else NOT_ALONE
            if host is None:
                control.close()
                return _settle(descriptors, request)
            if host == NOT_ALONE:
                os.write(descriptors[1], f"{NOT_ALONE}\n".encode())
            else:
                hosts.add(host)
        elif request["do"] == "gather":
            _gather_pages()
        elif request["do"] != "import" and request["host"] in hosts:
            status = _status(request["host"], request["do"])
            if status is not None:
                hosts.remove(request["host"])
                os.write(descriptors[0], str(status).encode())
    for host in hosts:
        os.killpg(host, signal.SIGKILL)
    _clean_up()
    os._exit(0)


def fork_servers(control: socket.socket) -> tuple[socket.socket, list[str]]:
    """Fork processes that fork hosts, until nobody is left to ask for one; returns in a fork alone.

    Returns:
        The socket on which the fork is asked, and its arguments.
    """
    # nobody here waits for them, so the system forgets them when they have ended
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    for request, descriptors in _requests(control):
        if request["do"] == "serve":
            server = _fork() if len(os.listdir(_THREADS)) == 1 else NOT_ALONE
            if server is None:
                control.close()
                return _settle_server(descriptors, request)
            os.write(descriptors[2], f"{server}\n".encode())
    control.setblocking(False)
    # whoever asked has ended, and the folders were to be those of servers that never came
    with suppress(OSError):
        while message := control.recv(MESSAGE_BYTES):
            shutil.rmtree(json.loads(message)["environment"]["TMPDIR"], ignore_errors=True)
    _clean_up()
    os._exit(0)


def _settle_server(
    descriptors: list[int], request: dict[str, Any]
) -> tuple[socket.socket, list[str]]:
    """Make this fork like a process that was started with this environment and these arguments."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    given, control, answer = descriptors
    os.dup2(given, 0)
    os.close(given)
    os.close(answer)
    os.chdir(request["folder"])
    before = _python_path()
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    path = _python_path()
    sys.path[:] = [*path, *(one for one in sys.path if one not in (*path, *before))]
    if request["apart"]:
        _move_to(path[-1], before[-1])  # a tree comes after the versions that it needs
    sys.pycache_prefix = os.environ.get("PYTHONPYCACHEPREFIX")
    sys.argv[1:] = request["arguments"]
    importlib.invalidate_caches()
    return socket.socket(fileno=control), request["arguments"]


def _python_path() -> list[str]:
    return [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


def _move_to(tree: str, before: str) -> None:
    """Let what is imported from now on come from another tree."""
    for module in list(sys.modules.values()):
        named = vars(module)  # where a module answers for what it has not, it imports that
        file, folders = named.get("__file__"), named.get("__path__")
        if isinstance(file, str) and file.startswith(f"{before}{os.sep}"):
            module.__file__ = tree + file.removeprefix(before)
            if isinstance(folders, list):
                folders[:] = [tree + one.removeprefix(before) for one in folders]


def _clean_up() -> None:
    shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


def _fork() -> int | None:
    """The process id of a fork; None in the fork itself."""
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fork() or None


def _settle(descriptors: list[int], request: dict[str, str]) -> int:
    """Make this fork like a process that was started with these descriptors and folders."""
    os.setpgid(0, 0)
    os.chdir(request["folder"])
    os.environ["TMPDIR"] = request["scratch"]
    tempfile.tempdir = None
    given, results, log = descriptors
    os.dup2(given, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(given)
    os.close(log)
    os.write(results, f"{os.getpid()}\n".encode())
    return results


def _status(host: int, what: str) -> int | None:
    """The exit status of a host that is waited for (and killed where it takes too long), killed at
    once, or only looked at: None then, where it runs."""
    until = time.monotonic() + (WAIT_SECONDS if what == "wait" else 0)
    while True:
        ended, status = os.waitpid(host, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if what == "poll":
            return None
        if time.monotonic() >= until:
            os.killpg(host, signal.SIGKILL)
            until = float("inf")
        time.sleep(0.001)
