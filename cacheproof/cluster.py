"""Work on a Ray cluster, job by job, as `workers.Crew` does it on the cores of this machine.

Scheduling, retries and transport are Ray's. A job is a value, and its outcome depends on nothing
else: a node that dies costs its jobs another run. Ray comes with `pip install cacheproof[cluster]`.
"""

import logging
import re
import socket
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.kept_proofs import code_digest

Task = TypeVar("Task")
Result = TypeVar("Result")
SEARCHING = ("differential", "reference", "spec")
"""The parts of this package whose text decides what a job comes to."""
CONNECT_SECONDS = 10.0
"""Ray itself tries for two minutes."""


class ClusterCrew:
    """Processes of a Ray cluster, one on each of its CPUs, to be closed.

    `begin` is called with the arguments in each process before its first job; they must mean the
    same on every node, which has its own file system. `number` is that of the CPUs at first: nodes
    that come later get jobs as well.
    """

    def __init__(self, address: str, begin: Callable[..., object], *arguments: object) -> None:
        """Join the cluster at `address`; "auto" is the one that `ray start` began on this machine.

        Raises:
            InputError: Ray is not installed, or there is no such cluster, or it has no CPU.
        """
        self._ray = _ray()
        try:
            if (place := re.fullmatch(r"([\w.-]+):(\d{1,5})", address, re.ASCII)) is not None:
                socket.create_connection((place[1], int(place[2])), CONNECT_SECONDS).close()
            self._ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            why = str(error).strip().splitlines()[0].rstrip(".")
            raise InputError(
                f"--cluster {address}: {why}; expected auto, or HOST:PORT of a Ray cluster that "
                "`ray start` has begun"
            ) from None
        self.number = int(self._ray.cluster_resources().get("CPU", 0))
        if not self.number:
            self.close()
            raise InputError(f"--cluster {address}: it has no CPU; expected one node with some")
        self._do = self._ray.remote(max_retries=-1, num_cpus=1)(_do)
        self._begin = self._ray.put((code_digest(SEARCHING), begin, arguments))

    def submit(self, run: Callable[[Task], Result], task: Task) -> "Future[Result]":
        """Do it as soon as a CPU is free, and again if its process or node dies."""
        future: Future[Result] = self._do.remote(self._begin, run, task).future()
        return future

    def close(self) -> None:
        """Leave the cluster; what is under way there is given up."""
        self._ray.shutdown()


_begun: tuple[str, Callable[..., object], tuple[object, ...]] | None = None


def _do(
    beginning: tuple[str, Callable[..., object], tuple[object, ...]],
    run: Callable[[Task], Result],
    task: Task,
) -> Result:
    """What comes of a job in a process of the cluster, which may have done jobs of other crews."""
    global _begun
    if _begun != beginning:
        digest, begin, arguments = beginning
        if _own_digest() != digest:
            raise HarnessError(
                "a node of the cluster has another cacheproof than this one; expected the same text"
            )
        begin(*arguments)
        _begun = beginning
    return run(task)


@cache
def _own_digest() -> str:
    return code_digest(SEARCHING)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError(
            "--cluster needs Ray, which is not installed; expected cacheproof[cluster]"
        ) from None
    return ray
