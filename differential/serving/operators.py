"""Operators of a server, who reset its caches, pause it, put it to sleep and load its weights again
while clients ask."""

import random
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from http.client import HTTPException
from typing import NamedTuple, Self

from cacheproof.reference.releases import FIRST_MODELLED
from cacheproof.spec.versions import release_key

VARIABLES = {"VLLM_SERVER_DEV_MODE": "1"}
"""Without it a server has none of these."""
_ANSWER_SECONDS = 120.0
_PAUSES = (0.05, 0.2, 0.6)
"""Seconds between two operations, and between the calls of one."""


class Operation(NamedTuple):
    """What an operator does: calls of the server, each its path and what is posted, with pauses
    between them; `since` is the first release that is asked for it."""

    name: str
    calls: tuple[str, ...]
    since: str = FIRST_MODELLED


_RELOAD = 'collective_rpc {"method": "reload_weights"}'


OPERATIONS = (
    Operation("processed media reset", ("reset_mm_cache",)),
    Operation("encoder cache reset", ("reset_encoder_cache",)),
    Operation("prefix cache reset", ("reset_prefix_cache",)),
    Operation("paused, requests kept", ("pause?mode=keep", "resume")),
    Operation("paused, requests waited for", ("pause?mode=wait", "resume")),
    Operation("paused, requests ended", ("pause?mode=abort", "resume")),
    Operation("asleep, without a level", ("sleep?level=0", "wake_up")),
    Operation("asleep, level 1", ("sleep?level=1", "wake_up")),
    Operation("asleep, level 2", ("sleep?level=2", "wake_up")),
    Operation(
        "weights loaded again",
        ("pause?mode=wait", _RELOAD, "reset_prefix_cache", "reset_encoder_cache", "resume"),
        since="0.26.0",  # docs/explain/runner-requests.md says what is before
    ),
)


def operations_of(release: str) -> list[Operation]:
    """What an operator of that release does."""
    return [one for one in OPERATIONS if release_key(release) >= release_key(one.since)]


class Operator:
    """One operator of a server, from a seed. Entering has it begin. Leaving waits until its last
    operation has ended, so that no server is left paused; after an exception it does not wait.

    `done` counts the operations that a server took; `refused` has what it said to others.
    """

    def __init__(self, url: str, seed: int, operations: Sequence[Operation] = OPERATIONS) -> None:
        self.done: Counter[str] = Counter()
        self.refused: dict[str, str] = {}
        self._url = url
        self._random = random.Random(f"operator {seed}")
        self._operations = operations
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, error: type[BaseException] | None = None, *_: object) -> None:
        self._ends.set()
        if error is None:
            self._thread.join(2 * _ANSWER_SECONDS)

    def _run(self) -> None:
        while not self._ends.wait(self._random.choice(_PAUSES)):
            operation = self._random.choice(self._operations)
            for number, call in enumerate(operation.calls):
                if number:
                    self._ends.wait(self._random.choice(_PAUSES))
                said = _post(f"{self._url}/{call}")
                if said:
                    self.refused[call] = said
                elif not number:
                    self.done[operation.name] += 1


def _post(url: str) -> str:
    """Why the server does not do it; empty where it does."""
    url, _, body = url.partition(" ")
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body.encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return f"{error.code}: {' '.join(error.read().decode(errors='replace').split())[:200]}"
    except (OSError, HTTPException) as error:
        return f"{type(error).__name__}: {error}"[:200]
