"""Operators of a server, who reset its caches, pause it, put it to sleep and load other weights
while clients ask."""

import json
import math
import random
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
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


_LOAD = "collective_rpc"
"""The call that has all workers load weights; which, the operator draws."""
LOADS = Operation(
    "other weights loaded",
    (
        # a pause that waits leaves who is preempted: they would go on with the other weights
        "pause?mode=abort&clear_cache=false",
        _LOAD,
        "reset_prefix_cache",
        "reset_encoder_cache",
        "resume",
    ),
    since="0.26.0",  # docs/explain/runner-requests.md says what is before
)
_ENDS_REQUESTS = ("pause?mode=abort", "sleep")
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
    LOADS,
)


def operations_of(release: str) -> list[Operation]:
    """What an operator of that release does."""
    return [one for one in OPERATIONS if release_key(release) >= release_key(one.since)]


class Load(NamedTuple):
    """Weights that a server has loaded: which, by number, and when that began and had ended, in
    seconds since the epoch."""

    version: int
    begun: float
    ended: float


class Operator:
    """One operator of a server, from a seed. Entering has it begin. Leaving waits until its last
    operation has ended, so that no server is left paused; after an exception it does not wait.

    `done` counts the operations that a server took; `refused` has what it said to others; `loads`
    are the weights that it loaded, one after the other.
    """

    def __init__(
        self,
        url: str,
        seed: int,
        operations: Sequence[Operation] = OPERATIONS,
        weights: Sequence[Path] = (),
    ) -> None:
        """An operator of the server at `url`. `weights` are the directories of all versions of its
        model, the one that it started with first."""
        self.done: Counter[str] = Counter()
        self.refused: dict[str, str] = {}
        self.loads: list[Load] = []
        self._ends_requests: list[tuple[float, float]] = []
        self._weights = weights
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
                begun = time.time()
                said = self._load() if call == _LOAD else _post(f"{self._url}/{call}")
                if call.startswith(_ENDS_REQUESTS):
                    self._ends_requests.append((begun, time.time()))
                if said:
                    self.refused[call] = said
                elif not number:
                    self.done[operation.name] += 1

    def _load(self) -> str:
        """Have the server load other weights; what it says to that."""
        now = self.loads[-1].version if self.loads else 0
        version = self._random.choice([one for one in range(len(self._weights)) if one != now])
        begun = time.time()
        where = {"weights_path": str(self._weights[version])}
        said = _post(f"{self._url}/{_LOAD}", {"method": "reload_weights", "kwargs": where})
        if not said:
            self.loads.append(Load(version, begun, time.time()))
        return said

    def has_ended(self, begun: float, ended: float) -> bool:
        """Whether the operator has ended requests that were under way between these moments."""
        return any(first <= ended and begun <= last for first, last in self._ends_requests)

    def versions(self, begun: float, ended: float) -> list[int]:
        """The weights that a server had at some moment between these, in seconds since the epoch;
        while it loads, it may have either."""
        befores = [0, *(one.version for one in self.loads)]
        begins = [-math.inf, *(one.begun for one in self.loads)]
        ends = [*(one.ended for one in self.loads), math.inf]
        times = zip(befores, begins, ends, strict=True)
        return list(
            dict.fromkeys(one for one, first, last in times if first <= ended and begun <= last)
        )


def _post(url: str, body: Mapping[str, object] | None = None) -> str:
    """Why the server does not do it; empty where it does."""
    headers = {"Content-Type": "application/json"}
    data = json.dumps(body).encode() if body else b""
    request = urllib.request.Request(url, data, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return f"{error.code}: {' '.join(error.read().decode(errors='replace').split())[:200]}"
    except (OSError, HTTPException) as error:
        return f"{type(error).__name__}: {error}"[:200]
