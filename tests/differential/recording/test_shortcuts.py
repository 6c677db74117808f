"""What the recorder leaves unread is as it was: each shortcut has a twin, broken on purpose."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cacheproof.differential.audit.streams import Numbered
from cacheproof.differential.recording import kv_reading
from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.kv_cache import KVCacheRecording
from cacheproof.differential.recording.kv_reading import ManagerReader
from cacheproof.differential.recording.messages import KVCalls, Message, Scheduled
from cacheproof.reference.releases import NEWEST
from tests.differential.recording.driven import Break, Run, long_trace, run_recorded
from tests.differential.recording.made import parts_of

QUIET: Break = ("engine", "", "is_quiet", True)
COMPARED: Break = ("ledger", "ManagerRecorder", "_are_others_as_before", True)


def told(runs: list[Run], folder: Path, **job: Any) -> list[Message]:
    """What is recorded of a run, but for when it was."""
    folder.mkdir()
    (one,) = run_recorded(NEWEST, runs, folder, **job)
    return [
        msgspec.structs.replace(part.message, time=0)
        for part in parts_of(*sorted(one.folder.iterdir()))
        if isinstance(part, Numbered) and hasattr(part.message, "time")
    ]


@pytest.mark.full
def test_a_step_that_says_more_than_tokens_is_noted_the_long_way(tmp_path: Path) -> None:
    runs: list[Run] = [(long_trace(4), None)]
    right = told(runs, tmp_path / "right")
    blind = told(runs, tmp_path / "blind", breaks=QUIET)
    right_ends, blind_ends = (
        [one.finished for one in messages if isinstance(one, Scheduled) and one.finished]
        for messages in (right, blind)
    )
    assert len(blind_ends) < len(right_ends)


@pytest.mark.full
def test_what_no_call_of_the_encoder_cache_is_about_is_told(tmp_path: Path) -> None:
    runs: list[Run] = [(long_trace(4), "gives_back_in_reverse")]
    right, blind = told(runs, tmp_path / "right"), told(runs, tmp_path / "blind", breaks=COMPARED)
    assert right != blind


class Pool:
    """A block pool of three blocks and a null block, as far as it is read."""

    def __init__(self) -> None:
        ends = SimpleNamespace(block_id=-1), SimpleNamespace(block_id=-2)
        self.blocks = [
            SimpleNamespace(
                block_id=number,
                ref_cnt=0,
                is_null=number == 0,
                block_hash=None,
                next_free_block=None,
                prev_free_block=None,
            )
            for number in range(4)
        ]
        self.null_block = self.blocks[0]
        self.free = self.blocks[1:]
        self.cached_block_hash_to_block: dict[Any, Any] = {}
        self.free_block_queue = SimpleNamespace(
            fake_free_list_head=ends[0],
            fake_free_list_tail=ends[1],
            get_all_free_blocks=lambda: list(self.free),
        )
        self._link()

    def get_num_free_blocks(self) -> int:
        return len(self.free)

    def get_new_blocks(self, num_blocks: int) -> list[Any]:
        taken, self.free = self.free[:num_blocks], self.free[num_blocks:]
        for block in taken:
            block.ref_cnt, block.next_free_block = 1, None
        self._link()
        return taken

    def _link(self) -> None:
        queue = self.free_block_queue
        chain = [queue.fake_free_list_head, *self.free, queue.fake_free_list_tail]
        for one, following in pairwise(chain):
            one.next_free_block, following.prev_free_block = following, one


class Manager:
    """A KV cache manager of one group; each call for slots does what `does` says."""

    def __init__(self) -> None:
        self.block_pool = Pool()
        self.single = SimpleNamespace(req_to_blocks={}, num_cached_block={})
        self.coordinator = SimpleNamespace(single_type_managers=[self.single])
        self.does: Callable[[], object] = lambda: None

    def allocate_slots(self, request: Any, num_new_tokens: int) -> None:
        self.does()

    def take(self) -> None:
        """Give the request a block."""
        table = self.single.req_to_blocks.setdefault("r", [])
        table += self.block_pool.get_new_blocks(1)

    def swap(self) -> None:
        """Give it a block, and put the null block in the place of its first."""
        self.take()
        self.single.req_to_blocks["r"][0] = self.block_pool.null_block

    def steal(self) -> None:
        """Put a block at its disposal that nobody took from the pool."""
        self.single.req_to_blocks["r"].append(self.block_pool.blocks[1])


class Kept:
    """Keeps records, and what each said when it was put."""

    def __init__(self) -> None:
        self.messages: list[KVCalls] = []
        self.said: list[bytes] = []

    def put(self, message: KVCalls, *, at_once: bool = False) -> None:
        self.messages.append(message)
        self.said.append(msgspec.msgpack.encode(message))

    @property
    def is_unchanged(self) -> bool:
        return self.said == list(map(msgspec.msgpack.encode, self.messages))


def noted(*calls: str) -> Kept:
    """The records of calls for slots, one for each, in which the manager does what is named."""
    manager, kept = Manager(), Kept()
    hasher = Hasher(b"salt", plain=True)
    recording = KVCacheRecording(manager, hasher, {"r": 0}.__getitem__, {}, [], frozenset())
    request = SimpleNamespace(
        request_id="r",
        block_hashes=[],
        status=SimpleNamespace(name="RUNNING"),
        num_tokens=1,
        num_computed_tokens=0,
        num_preemptions=0,
    )
    for call in calls:
        manager.does = getattr(manager, call)
        manager.allocate_slots(request, 1)
        recording.write(kept, is_whole=False)  # type: ignore[arg-type]
    return kept


def tables_of(kept: Kept) -> list[Any]:
    """What changed in tables, call by call; None for nothing."""
    return [
        None if changed is None else changed.get("tables")
        for message in kept.messages
        for *_, changed, _ in message.calls
    ]


def test_a_table_that_changes_without_the_pool_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = ("take", "steal")
    right = [{"0": [[0, [1], None]]}, {"0": [[1, [1], None]]}]
    assert tables_of(noted(*calls)) == right
    monkeypatch.setattr(ManagerReader, "_is_as_before", lambda *_: True)
    assert tables_of(noted(*calls)) == [right[0], None]


def test_a_block_that_another_took_the_place_of_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = ("take", "swap")
    right = [{"0": [[0, [1], None]]}, {"0": [[0, [0, 2], None]]}]
    assert tables_of(noted(*calls)) == right
    monkeypatch.setattr(kv_reading, "_alike", lambda had, has: len(had))
    assert tables_of(noted(*calls)) == [right[0], {"0": [[1, [2], None]]}]


def test_no_call_that_was_handed_on_changes_later() -> None:
    kept = noted("take", "take", "swap")
    assert kept.is_unchanged
    kept.messages[0].calls.clear()
    assert not kept.is_unchanged
