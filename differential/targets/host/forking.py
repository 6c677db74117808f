"""A process that has imported a release, and forks a host from itself for whoever asks.

It answers over a socket of whole messages. `begin` brings three descriptors, a host's standard
input, the pipe for its results and its log; the first line in that pipe is the host's process id.
`wait` and `kill` bring one, into which the host's exit status is written. When its own standard
input ends, whoever started it has ended, and it ends with all of its hosts.
"""

import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

NOT_ALONE = 0
"""In the place of a process id: more threads than one run here, so that nothing can be forked."""
WAIT_SECONDS = 5.0
_THREADS = Path("/proc/self/task")


def fork_hosts(control: socket.socket) -> int:
    """Fork until there is nobody left to ask; returns in a fork alone.

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
        message, descriptors, _, _ = socket.recv_fds(control, 64, 3)
        if not message:
            break
        what, _, process = message.decode().partition(" ")
        if what == "begin":
            host = _fork() if len(os.listdir(_THREADS)) == 1 else NOT_ALONE
            if host is None:
                control.close()
                return _settle(descriptors)
            if host == NOT_ALONE:
                os.write(descriptors[1], f"{NOT_ALONE}\n".encode())
            hosts.add(host)
        elif int(process) in hosts:
            hosts.remove(int(process))
            os.write(descriptors[0], str(_end(int(process), what == "kill")).encode())
        for descriptor in descriptors:
            os.close(descriptor)
    for host in hosts - {NOT_ALONE}:
        os.kill(host, signal.SIGKILL)
    os._exit(0)


def _fork() -> int | None:
    """The process id of a fork; None in the fork itself."""
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fork() or None


def _settle(descriptors: list[int]) -> int:
    """Take the place of a process that was started with these descriptors."""
    given, results, log = descriptors
    os.dup2(given, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(given)
    os.close(log)
    os.write(results, f"{os.getpid()}\n".encode())
    return results


def _end(host: int, kill: bool) -> int:
    """The exit status of a host that ends, or is made to: at once, or when it takes too long."""
    until = time.monotonic() + (0 if kill else WAIT_SECONDS)
    while True:
        ended, status = os.waitpid(host, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            os.kill(host, signal.SIGKILL)
            until = float("inf")
        time.sleep(0.001)
