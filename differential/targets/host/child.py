"""The first acts of a child of the host."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Let the system end this process with its parent, which has that process id."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def leave_the_host() -> None:
    """Give up what a fork shares with its host: the three standard streams, and the timer that ends
    a trace that takes too long."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
