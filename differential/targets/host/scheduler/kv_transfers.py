"""A connector to KV blocks elsewhere whose every answer is written down in the trace.

`KVTransfers` is its side in the scheduler: it says how much of a request can be had elsewhere, and
is told which blocks to load and whose to send. `KVWorker` plays the workers' side: transfers begin
with the step that tells of them, and end when the trace says so.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..vllm_objects.kv_cache import KVCacheBlocks
from ..vllm_objects.requests import Request
from ..vllm_objects.scheduler import KVTold

_ENDS_AFTER_WHICH_IS_SENT = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")


class KVTransfers:
    """The scheduler's side of the connector.

    Loads are counted in tokens of the request. The last known one is left to compute where the step
    waits for the load, as vLLM's own connectors leave it, and where there is no other: behind a
    load of everything the scheduler computes it anew, and would ask again.
    """

    def __init__(self) -> None:
        self._elsewhere: dict[str, tuple[int | None, bool]] = {}
        self._sent: set[str] = set()
        self._told = _nothing()

    def elsewhere(self, request_id: str, tokens: int | None, later: bool) -> None:
        """Let that many of the request's first tokens be elsewhere from now on; None where nobody
        knows yet. `later`: they come between two steps, not within one."""
        self._elsewhere[request_id] = (tokens, later)

    def send(self, request_id: str) -> None:
        """Send the request's KV elsewhere once it has ended."""
        self._sent.add(request_id)

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        name = request.request_id
        self._told["kv_asked"].append([name, num_computed_tokens])
        tokens, later = self._elsewhere.get(name, (0, False))
        if tokens is None:
            return None, False
        whole = request.num_tokens if later and request.num_tokens > 1 else request.num_tokens - 1
        end = min(tokens, whole)
        count = max(0, end - num_computed_tokens)
        return count, later and count > 0

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        if num_external_tokens > 0:
            (block_ids,) = blocks.get_block_ids()
            name = request.request_id
            _, later = self._elsewhere[name]
            self._told["kv_loads"][name] = [num_external_tokens, later, list(block_ids)]

    def request_finished(self, request: Request, block_ids: Sequence[int]) -> tuple[bool, None]:
        name = request.request_id
        sends = name in self._sent and request.status.name in _ENDS_AFTER_WHICH_IS_SENT
        if sends and block_ids:
            self._told["kv_sends"].append([name, list(block_ids)])
        return sends and bool(block_ids), None

    def build_connector_meta(self, scheduler_output: object) -> KVTold:
        """What the workers are told: after how many tokens which requests were asked for, what is
        loaded (tokens, whether later, the request's blocks), and whose blocks are sent."""
        told, self._told = self._told, _nothing()
        return told


def _nothing() -> KVTold:
    return {"kv_asked": [], "kv_loads": {}, "kv_sends": []}


class TransferReport(NamedTuple):
    """The workers' report with a step's output: the request whose load has ended, the one whose
    sending has, and blocks whose load failed."""

    received: str | None
    sent: str | None
    invalid: tuple[int, ...]


class _Load(NamedTuple):
    """A load under way: the step that begins it, and its blocks."""

    step: int
    block_ids: list[int]


class KVWorker:
    """The workers' side. At most one late load and one sending are reported to have ended in a
    step, so that the order in which a release goes through several is nobody's choice."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._at_once: dict[str, _Load] = {}
        self._late: dict[str, _Load] = {}
        self._sends: dict[str, int] = {}
        self._ended: deque[tuple[str, int | None]] = deque()
        self._sent: deque[str] = deque()
        self._failed: dict[tuple[str, int], int] = {}

    def begin(self, step: int, told: KVTold) -> None:
        """Begin the transfers of a step."""
        for name, (tokens, later, block_ids) in told["kv_loads"].items():
            hit = next(local for asked, local in reversed(told["kv_asked"]) if asked == name)
            first, end = hit // self._block_size, -(-(hit + tokens) // self._block_size)
            (self._late if later else self._at_once)[name] = _Load(step, block_ids[first:end])
        for name, _ in told["kv_sends"]:
            self._sends[name] = step

    def end_load(self, request_id: str, failed: int | None) -> bool:
        """End the load; its blocks from number `failed` on are wrong. False where that means
        nothing: no load is under way, its end is known, or it ends with its step."""
        late = self._late.get(request_id)
        if late is not None and not any(name == request_id for name, _ in self._ended):
            self._ended.append((request_id, failed))
            return True
        at_once = self._at_once.get(request_id)
        if late is not None or at_once is None or failed is None:
            return False
        return self._failed.setdefault((request_id, at_once.step), failed) is failed

    def end_sending(self, request_id: str) -> bool:
        """End the sending. False where none is under way, or its end is known already."""
        if request_id not in self._sends or request_id in self._sent:
            return False
        self._sent.append(request_id)
        return True

    def report(self, step: int) -> TransferReport:
        """The report with the output of a step."""
        received, sent = None, None
        wrong: list[int] = []
        for name, load in list(self._at_once.items()):
            if load.step <= step:
                del self._at_once[name]
                wrong += _from(load.block_ids, self._failed.pop((name, load.step), None))
        if self._ended and self._late[self._ended[0][0]].step <= step:
            received, failed = self._ended.popleft()
            wrong += _from(self._late.pop(received).block_ids, failed)
        if self._sent and self._sends[self._sent[0]] <= step:
            sent = self._sent.popleft()
            del self._sends[sent]
        return TransferReport(received, sent, tuple(wrong))


def _from(block_ids: list[int], failed: int | None) -> list[int]:
    """The blocks from number `failed` on; the last one, where there are fewer."""
    return [] if failed is None else block_ids[min(failed, len(block_ids) - 1) :]
