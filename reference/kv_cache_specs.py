"""What a KV cache is made of: how many blocks, and which kinds of attention share them."""

from dataclasses import dataclass
from math import gcd, lcm


class NotModelledCache(ValueError):
    """A configuration that the reference does not model; the message names it."""


@dataclass(frozen=True)
class KVCacheSpec:
    """One kind of attention. `block_size` is in tokens.

    Raises:
        ValueError: a size below 1.
    """

    block_size: int

    @property
    def kind(self) -> str:
        """The name under which KV events report this kind."""
        raise NotImplementedError

    @property
    def window(self) -> int | None:
        """The sliding window that KV events report; None for kinds without one."""
        return None

    def max_admission_blocks_per_request(
        self, max_in_flight_tokens: int, max_model_len: int
    ) -> int | None:
        """Most blocks that a request holds at a time; None when it keeps all that it gets."""
        return None


@dataclass(frozen=True)
class FullAttentionSpec(KVCacheSpec):
    """Every token attends to all tokens before it."""

    @property
    def kind(self) -> str:
        return "full_attention"


@dataclass(frozen=True)
class SlidingWindowSpec(KVCacheSpec):
    """Every token attends to itself and the `sliding_window` - 1 tokens before it."""

    sliding_window: int

    @property
    def kind(self) -> str:
        return "sliding_window"

    @property
    def window(self) -> int | None:
        return self.sliding_window

    def max_admission_blocks_per_request(
        self, max_in_flight_tokens: int, max_model_len: int
    ) -> int | None:
        """One more block than the tokens fill: a window need not start at a block's start."""
        tokens = min(self.sliding_window - 1 + max_in_flight_tokens, max_model_len)
        return ceil_div(tokens, self.block_size) + 1


@dataclass(frozen=True)
class ChunkedLocalAttentionSpec(KVCacheSpec):
    """Every token attends to the tokens before it in its chunk of `attention_chunk_size`."""

    attention_chunk_size: int

    @property
    def kind(self) -> str:
        return "chunked_local_attention"

    def max_admission_blocks_per_request(
        self, max_in_flight_tokens: int, max_model_len: int
    ) -> int | None:
        tokens = min(self.attention_chunk_size + max_in_flight_tokens, max_model_len)
        return ceil_div(tokens, self.block_size)


@dataclass(frozen=True)
class CrossAttentionSpec(KVCacheSpec):
    """A decoder's tokens attend to the encoder's; the blocks hold the encoder's."""

    @property
    def kind(self) -> str:
        return "cross_attention"


@dataclass(frozen=True)
class KVCacheGroupSpec:
    """Layers that share block tables; `is_eagle_group` marks those with a drafter's layers."""

    kv_cache_spec: KVCacheSpec
    is_eagle_group: bool = False


@dataclass(frozen=True)
class KVCacheConfig:
    """The blocks, the null block among them, and the groups that take theirs from them.

    Windows are cached before every multiple of `prefix_cache_retention_interval` tokens and at the
    end of a prompt; 0: there alone; None: wherever a hit can end.
    """

    num_blocks: int
    kv_cache_groups: tuple[KVCacheGroupSpec, ...]
    prefix_cache_retention_interval: int | None = None

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """The block size of each group, in tokens."""
        return tuple(group.kv_cache_spec.block_size for group in self.kv_cache_groups)

    @property
    def scheduler_block_size(self) -> int:
        """Where blocks of all groups end together, in tokens."""
        return lcm(*self.block_sizes)

    @property
    def hash_block_size(self) -> int:
        """What every group's block size is a multiple of, in tokens."""
        return gcd(*self.block_sizes)


def ceil_div(dividend: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-dividend // divisor)
