"""A process that has imported a release, and forks a host from itself for whoever asks.

It imports when it is first asked for anything, and answers over a socket of whole messages in JSON.
`import` asks for no more than that. `begin`, with the host's working folder and one
for its temporary files, brings three descriptors: a host's standard input, the pipe for its results
and its log; the first line in that pipe is the host's process id. `wait`, `kill` and `poll` bring
one, into which the exit status of a host is written, or nothing if it still runs. When its own
standard input ends, whoever started it has ended: it ends with all of its hosts and its folder.
"""

import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

NOT_ALONE = 0
"""Stands for a process id where more than one thread runs here, so that nothing can be forked."""
WAIT_SECONDS = 5.0
MESSAGE_BYTES = 1 << 13
_THREADS = Path("/proc/self/task")


def wait_for_work(control: socket.socket) -> None:
    """Wait until a process that forks hosts is asked for something; it ends here where its standard
    input does."""
    ready, _, _ = select.select([0, control.fileno()], [], [])
    if control.fileno() not in ready and not os.read(0, 1):
        _clean_up()
        os._exit(0)


def fork_hosts(control: socket.socket) -> int:
    """Fork hosts until nobody is left to ask for one; returns in a fork alone.

    Returns:
        The descriptor that takes the host's results. Its input and its log are at 0 and 2.
    """
    hosts: set[int] = set()
    while True:
        ready, _, _ = select.select([0, control.fileno()], [], [])
        if 0 in ready and not os.read(0, 1):
            break
        if control.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 3)
        if not message:
            break
        request = json.loads(message)
        if request["do"] == "begin":
            host = _fork() if len(os.listdir(_THREADS)) == 1 else NOT_ALONE
            if host is None:
                control.close()
                return _settle(descriptors, request)
            if host == NOT_ALONE:
                os.write(descriptors[1], f"{NOT_ALONE}\n".encode())
            else:
                hosts.add(host)
        elif request["do"] != "import" and request["host"] in hosts:
            status = _status(request["host"], request["do"])
            if status is not None:
                hosts.remove(request["host"])
                os.write(descriptors[0], str(status).encode())
        for descriptor in descriptors:
            os.close(descriptor)
    for host in hosts:
        os.killpg(host, signal.SIGKILL)
    _clean_up()
    os._exit(0)


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
