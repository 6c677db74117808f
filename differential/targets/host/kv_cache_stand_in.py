"""A KV cache manager that builds on the reference, in the place of a release's in its Scheduler.

Both speak of the same blocks under the same names. What differs is adapted here: how a manager is
made, how a request says where it stands, and what a release asks beyond the reference's methods, of
which nothing decides on the blocks that full attention, windows, chunks and cross-attention take.

Imported only for such a plug-in: what it builds on can be imported then, and only then.
"""

from collections.abc import Iterable
from typing import Any

from cacheproof.reference import kv_cache_specs as specs
from cacheproof.reference.scheduled_request import RequestStatus

_WINDOWS = {
    "SlidingWindowSpec": "sliding_window",
    "ChunkedLocalAttentionSpec": "attention_chunk_size",
}


class _Seen:
    """A release's request as the reference reads one."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    @property
    def status(self) -> RequestStatus:
        return RequestStatus[self._request.status.name]


class _Coordinator:
    """What a scheduler asks of a manager's coordinator."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self.single_type_managers = coordinator.single_type_managers

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Any,
        num_encoder_tokens: int,
        total_computed_tokens: int,
        apply_admission_cap: bool = False,
        **further: Any,
    ) -> int:
        needed: int = self._coordinator.get_num_blocks_to_allocate(
            request_id,
            num_tokens,
            new_computed_blocks,
            num_encoder_tokens,
            total_computed_tokens,
            apply_admission_cap,
        )
        return needed


class StandIn:
    """Made with the arguments of a release's manager; `manager_class` is made with the reference's.

    Methods are those that a release's Scheduler calls; the others are the manager's own.
    """

    def __init__(
        self,
        manager_class: Any,
        *,
        kv_cache_config: Any,
        max_model_len: int,
        max_in_flight_tokens: int,
        enable_caching: bool,
        use_eagle: bool,
        watermark: float,
        **further: Any,
    ) -> None:
        self._release_config = kv_cache_config
        self._manager = manager_class(
            specs.KVCacheConfig(
                kv_cache_config.num_blocks,
                tuple(map(_group, kv_cache_config.kv_cache_groups)),
                kv_cache_config.prefix_cache_retention_interval,
            ),
            max_model_len,
            max_in_flight_tokens,
            enable_caching=enable_caching,
            use_eagle=use_eagle,
            watermark=watermark,
        )
        self.coordinator = _Coordinator(self._manager.coordinator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def get_computed_blocks(
        self, request: Any, max_cache_hit_length: int | None = None
    ) -> tuple[Any, int, int]:
        assert max_cache_hit_length is None, "auxiliary outputs are not modelled"
        found: tuple[Any, int, int] = self._manager.get_computed_blocks(_Seen(request))
        return found

    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        skip_zeroing_group_ids: tuple[int, ...] = (),
        **further: Any,
    ) -> Any:
        return self._manager.allocate_slots(_Seen(request), num_new_tokens, **further)

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        self._manager.cache_blocks(_Seen(request), num_computed_tokens)

    def free(self, request: Any) -> None:
        self._manager.free(_Seen(request))

    def pop_blocks_for_free(self, request: Any) -> Any:
        return self._manager.pop_blocks_for_free(_Seen(request))

    def record_prefix_cache_stats(self, request: Any, num_hits: int) -> None:
        self._manager.record_prefix_cache_stats(_Seen(request), num_hits)

    def remove_skipped_blocks(
        self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        self._manager.remove_skipped_blocks(request_id, processed_computed_tokens)

    def get_block_ids_for_computed_tokens(
        self, request_id: str, num_computed_tokens: int
    ) -> tuple[list[int], ...]:
        """Those of a request that has ended; a connector knows one group."""
        (block_ids,) = self._manager.get_block_ids(request_id)
        (manager,) = self.coordinator.single_type_managers
        return (block_ids[: specs.ceil_div(num_computed_tokens, manager.block_size)],)

    def estimate_cached_tokens(self, request: Any) -> int:
        """For statistics alone."""
        return 0

    def new_step_starts(self) -> None:
        """Nothing is kept by the step."""

    def take_new_block_ids(self) -> list[int]:
        """None: no kind here has the workers write zeros."""
        return []

    def take_kv_cache_block_copies(self) -> tuple[list[Any], list[Any]]:
        """None: parts of blocks are no hit."""
        return [], []

    def take_boundary_state_offloads(self) -> dict[str, Any]:
        """None: no kind here keeps state at boundaries."""
        return {}


def _group(group: Any) -> specs.KVCacheGroupSpec:
    """The reference's description of a release's group."""
    name = type(group.kv_cache_spec).__name__
    further: Iterable[Any] = (
        (getattr(group.kv_cache_spec, _WINDOWS[name]),) if name in _WINDOWS else ()
    )
    return specs.KVCacheGroupSpec(getattr(specs, name)(group.kv_cache_spec.block_size, *further))
