"""What a child of the host does first."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have the system end this process with its parent, which has that number."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def leave_the_host() -> None:
    """Let go of what a fork has of its host: the three standard streams, and the timer that ends a
    trace that takes too long."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
