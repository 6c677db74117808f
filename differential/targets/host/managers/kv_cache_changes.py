"""What an event changed in a KV cache manager, told without putting into words what stayed.

What blocks, the hash map and tables hold is compared as the manager has it, which takes no call of
Python for a block; only where that differs it is told and compared again, in the words of records.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from ..vllm_objects.kv_cache import BlockKey, KVCacheBlock, KVCacheManager
from .kv_cache_recorder import Call, KVCacheRecorder, State, delta_of, ids_under

_BLOCK_IDS = attrgetter("block_id")
_REFERENCES = attrgetter("ref_cnt")
_FIRST_HASHES = attrgetter("block_hash")
_HASHES_AND_TOKENS = attrgetter("block_hash", "block_hash_num_tokens")


class KVCacheChanges(KVCacheRecorder):
    """A recorder for a manager that is driven alone.

    `_held` is what each block is found by, as the pool has it, and `_found` the blocks under each
    key, both when they were told last. `_texts` has the words for keys that are numbered for good.
    """

    def __init__(self, manager: KVCacheManager, takes: frozenset[str]) -> None:
        self._texts: dict[BlockKey, str] = {}
        self._is_provisional = False
        super().__init__(manager, takes)
        self._has_keys = hasattr(self._pool.blocks[0], "keys")
        self._blocks: Sequence[KVCacheBlock] = ()
        self._follow_blocks()

    def _follow_blocks(self) -> None:
        """Tell all anew with the next event, of the blocks that the pool has now."""
        self._blocks = self._pool.blocks
        self._used = [block for block in self._blocks if not block.is_null]
        self._names = [str(block.block_id) for block in self._used]
        self._refs: list[int] = []
        self._held: list[Any] = []
        self._further: Mapping[int, Any] = {}
        self._found: Mapping[BlockKey, list[int]] = {}

    def show(self, block_hashes: list[bytes]) -> list[int]:
        """As the recorder does; what was told of a hash without a number of its own is told
        anew."""
        known = len(self._numbers)
        numbers = super().show(block_hashes)
        if self._is_provisional and len(self._numbers) > known:
            self._is_provisional = False
            self._texts.clear()
            self._follow_blocks()
        return numbers

    def drain(self) -> tuple[list[Call], State]:
        calls, self.calls = self.calls, []
        pool, last = self._pool, self._last
        if pool.blocks is not self._blocks or len(self._blocks) != len(self._used) + 1:
            self._follow_blocks()
        now = {
            **last,
            "free": pool.get_num_free_blocks(),
            "queue": list(map(_BLOCK_IDS, pool.free_block_queue.get_all_free_blocks())),
            "tables": self._tables(),
        }
        refs = list(map(_REFERENCES, self._used))
        if refs != self._refs:
            self._refs = refs
            now["refs"] = dict(zip(self._names, refs, strict=True))
        self._tell_hashes(now)
        found = {key: ids_under(blocks) for key, blocks in self._entries.items()}
        if found != self._found:
            self._found = found
            now["map"] = {self._text(key): ids for key, ids in found.items()}
        self._last = now
        return calls, delta_of(last, now)

    def _tell_hashes(self, now: State) -> None:
        """Put into words what blocks are found by, where it is not as before."""
        held: list[Any]
        if self._has_keys:
            held = [tuple(block.keys.items()) for block in self._used]  # type: ignore[attr-defined]
        elif "block_hash_num_tokens" in self._takes:
            held = list(map(_HASHES_AND_TOKENS, self._used))
        else:
            held = list(map(_FIRST_HASHES, self._used))
        extra = getattr(self._pool, "cached_block_hashes_by_block", None)
        further = {block: tuple(keys) for block, keys in extra.items()} if extra else {}
        if held == self._held and further == self._further:
            return
        was = self._held or [self] * len(held)
        stays = [
            one == before and further.get(block.block_id) == self._further.get(block.block_id)
            for block, one, before in zip(self._used, held, was, strict=True)
        ]
        self._held, self._further = held, further
        told = now["hashes"]
        now["hashes"] = {
            name: told[name] if stay else self._hashes(block)
            for name, block, stay in zip(self._names, self._used, stays, strict=True)
            if (name in told if stay else block.block_hash is not None)
        }

    def _key(self, key: BlockKey) -> tuple[int, int | None]:
        group, number = super()._key(key)
        block_hash = key[:-4] if isinstance(key, bytes) else key[0]
        self._is_provisional |= block_hash not in self._numbers
        return group, number

    def _text(self, key: BlockKey) -> str:
        """A key in the words of records."""
        text = self._texts.get(key)
        if text is None:
            group, number = self._key(key)
            text = self._texts[key] = f"{group}:{number}"
        return text
