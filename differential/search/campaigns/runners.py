"""The processes that run a campaign: each shows that it lives, and can be seen to have died."""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

BEAT_SECONDS = 10.0
DEAD_SECONDS = 120.0
"""A process that has not beaten for this long counts as dead."""


class StoreClock(Protocol):
    """A clock in seconds since 1970, equal on all machines to within some seconds."""

    def now(self) -> float: ...

    def wait(self) -> None:
        """Let a moment pass, in which others go on."""
        ...


@dataclass(frozen=True)
class Who:
    """A process: `pid` is valid in `place`, and `started` tells it from a later process of that
    pid; empty where the system does not say."""

    host: str
    place: str
    pid: int
    started: str

    @classmethod
    def here(cls) -> "Who":
        """This process."""
        return cls(socket.gethostname(), _place(), os.getpid(), _started(os.getpid()))

    def is_gone(self) -> bool:
        """Whether this process can see that it has ended."""
        if not self.started or self.place != _place():
            return False
        return _started(self.pid) != self.started


def is_dead(who: Who, beat: float, now: float) -> bool:
    """Whether a process with that last beat has ended, as far as can be known."""
    return who.is_gone() or now - beat > DEAD_SECONDS


def _place() -> str:
    """This host since it was started, and the pid namespace of this process."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _started(pid: int) -> str:
    """When a process began, in ticks since the system did; empty where there is none, where it is
    unknown, or where it has ended and its parent has not looked."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]
