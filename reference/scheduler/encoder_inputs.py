"""The walk over a request's items: what a step must encode, and how far it may compute.

A step computes the tokens [computed, computed + new) of a request. Each item that places embeddings
there is in the encoder cache already, or is admitted to it and encoded in this step, or loaded from
elsewhere: that takes its slots in the cache and no compute. The first item
that cannot be admitted ends the window: tokens go up to its start, and if that is where the window
starts, or before, there are none.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange, Request
from cacheproof.reference.scheduled_request import ScheduledRequest
from cacheproof.reference.scheduler.connector import EncoderCacheConnector
from cacheproof.reference.semantics import Semantics


@dataclass(slots=True)
class EncoderWalk:
    """The result of a walk.

    Attributes:
        num_new_tokens: tokens that may be computed, at most what was asked for.
        hits: items that the cache has.
        inputs: items to encode.
        loads: items to load from elsewhere.
        repeats: items that share an identifier with one to encode or load, and are claimed when
            that is allocated; in a walk that claims nothing itself, also those that share a hit's.
        num_embeds: size of the items to encode or load.
        encoder_compute_budget: what the items to encode leave of the budget.
        resized: whether an identifier came back with another size than it has, which ends the
            request.
    """

    num_new_tokens: int
    encoder_compute_budget: int
    hits: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    loads: list[int] = field(default_factory=list)
    repeats: list[int] = field(default_factory=list)
    num_embeds: int = 0
    resized: bool = False


class Foresight:
    """The answers that a manager would give in one walk; claims nothing, and evicts nothing."""

    def __init__(self, manager: EncoderCacheManager) -> None:
        self._manager = manager
        self._num_kept = 0

    def get_cached_num_encoder_embeds(self, request: Request, input_id: int) -> int | None:
        """Size of the entry that the item would hit; None when there would be none."""
        return self._manager.get_cached_num_encoder_embeds(request, input_id)

    def would_hit(self, request: Request, input_id: int, num_embeds_to_schedule: int) -> bool:
        """Whether the item has an entry that can be kept beside what the walk admitted."""
        identifier = request.mm_features[input_id].identifier
        if identifier not in self._manager.cached:
            return False
        idle = self._manager.freeable.get(identifier, 0)
        total = idle + num_embeds_to_schedule + self._num_kept
        if total > self._manager.num_freeable_slots:
            return False
        self._num_kept += idle
        return True

    def can_allocate(
        self,
        request: Request,
        input_id: int,
        encoder_compute_budget: int,
        num_embeds_to_schedule: int,
    ) -> bool:
        """Whether the item would be admitted."""
        need = request.get_num_encoder_embeds(input_id)
        total = need + num_embeds_to_schedule + self._num_kept
        return need <= encoder_compute_budget and total <= self._manager.num_freeable_slots


def walk_encoder_inputs(
    request: ScheduledRequest,
    num_computed_tokens: int,
    num_new_tokens: int,
    *,
    manager: "EncoderCacheManager | Foresight",
    encoder_compute_budget: int,
    disable_chunked_mm_input: bool,
    num_lookahead_tokens: int,
    semantics: Semantics,
    connector: EncoderCacheConnector | None = None,
) -> EncoderWalk:
    """Walk the items in the window. The manager claims hits and evicts entries on the way; its
    foresight only says what it would answer. Items that a drafter reads ahead of the window
    (`num_lookahead_tokens`) are needed as well."""
    walk = EncoderWalk(num_new_tokens, encoder_compute_budget)
    end = num_computed_tokens + num_new_tokens
    read_end = end + num_lookahead_tokens
    # a drafter reads past the chunk, into the item that ends it (faults/drafter-miss)
    rollback = num_lookahead_tokens if semantics.scheduler.rolls_back_for_drafter else 0
    # but a roll-back may split an item or leave too much (faults/whole-item-before, -rolled-back)
    if semantics.scheduler.ends_at_whole_items:
        rollback = 0
    # to stop short of an item that is refused can stall a request (faults/drafter-standstill)
    clamp = 0 if semantics.scheduler.reads_ahead_without else num_lookahead_tokens
    sizes: dict[str, int] = {}
    for input_id in _in_window(request.mm_features, num_computed_tokens, read_end):
        feature = request.mm_features[input_id]
        position, identifier = feature.mm_position, feature.identifier
        is_split = disable_chunked_mm_input and _is_split(
            position, num_computed_tokens, end, semantics
        )
        before = position.offset - num_computed_tokens
        # before the look-up: a cached item must stay whole as well
        if is_split and semantics.scheduler.keeps_hits_whole:
            walk.num_new_tokens = max(0, before - rollback)
            break

        size = position.get_num_embeds()
        # what this walk admitted is not resident yet, and its size must not change either
        known = sizes.get(identifier)
        if known is None and semantics.encoder_cache.refuses_resized:
            known = manager.get_cached_num_encoder_embeds(request, input_id)
        if semantics.encoder_cache.refuses_resized and known not in (None, size):
            return EncoderWalk(0, encoder_compute_budget, resized=True)
        # its entry is debited once, however often the item occurs
        if identifier in sizes:
            walk.repeats.append(input_id)
            continue
        if isinstance(manager, Foresight):
            is_hit = manager.would_hit(request, input_id, walk.num_embeds)
            # a foresight claims nothing, so a repeat would look like a second idle entry
            if is_hit:
                sizes[identifier] = size
        else:
            is_hit = manager.check_and_update_cache(request, input_id)
        if is_hit:
            walk.hits.append(input_id)
            continue
        # before 0.32.0 only an item that is not cached must stay whole
        if is_split:
            walk.num_new_tokens = max(0, before - rollback)
            break
        is_sparse = semantics.encoder_cache.counts_embeds and _is_sparse(
            position,
            num_computed_tokens,
            read_end if semantics.scheduler.reads_ahead_sparsely else end,
            semantics,
        )
        # before the admission, which would evict for what is not encoded (faults/idle-eviction)
        if is_sparse and semantics.scheduler.passes_sparse_items:
            continue
        if not manager.can_allocate(
            request, input_id, walk.encoder_compute_budget, walk.num_embeds
        ):
            # an item that only a drafter reads begins after the window, which must not grow to it
            walk.num_new_tokens = min(num_new_tokens, max(0, before - clamp))
            break
        if is_sparse:
            continue
        sizes[identifier] = size
        walk.num_embeds += size
        if connector is not None and connector.has_cache_item(identifier):
            walk.loads.append(input_id)
            continue
        walk.inputs.append(input_id)
        walk.encoder_compute_budget -= size
    return walk


def walk_decoder_inputs(
    request: ScheduledRequest,
    num_computed_tokens: int,
    num_new_tokens: int,
    *,
    manager: EncoderCacheManager,
    encoder_compute_budget: int,
) -> EncoderWalk:
    """The walk of an encoder-decoder model: its first tokens need all items, and later ones none,
    since what they read has KV blocks of its own by then."""
    walk = EncoderWalk(num_new_tokens, encoder_compute_budget)
    if num_computed_tokens > 0:
        return walk
    for input_id in range(len(request.mm_features)):
        if not manager.can_allocate(
            request, input_id, walk.encoder_compute_budget, walk.num_embeds
        ):
            walk.num_new_tokens = 0
            break
        size = request.get_num_encoder_embeds(input_id)
        walk.num_embeds += size
        walk.inputs.append(input_id)
        walk.encoder_compute_budget -= size
    return walk


def up_to_whole_item(
    request: ScheduledRequest, num_computed_tokens: int, num_new_tokens: int
) -> int:
    """`num_new_tokens`, or the length of the item that begins with them and would be split."""
    end = num_computed_tokens + num_new_tokens
    for input_id in _in_window(request.mm_features, num_computed_tokens, end):
        position = request.mm_features[input_id].mm_position
        if position.offset == num_computed_tokens and end < position.end:
            return position.length
    return num_new_tokens


def _is_split(position: PlaceholderRange, start: int, end: int, semantics: Semantics) -> bool:
    """Whether [start, end) has the first token of the item, and not all of them."""
    # vLLM PR #52412: before, an item was split where the chunk starts with it
    has_first = (
        start <= position.offset
        if semantics.scheduler.keeps_items_whole
        else start < position.offset
    )
    return has_first and end < position.end


def _is_sparse(position: PlaceholderRange, start: int, end: int, semantics: Semantics) -> bool:
    """Whether the item places no embedding in [start, end)."""
    if end == position.offset and position.is_embed and not semantics.scheduler.counts_no_rows:
        return False
    first = max(0, start - position.offset)
    last = max(first, min(position.length, end - position.offset))
    rows = position.get_embeds_indices_in_range(first, last)
    return rows[0] == rows[1]


def _in_window(features: Sequence[MultiModalFeature], start: int, end: int) -> range:
    """Numbers of the items that have a placeholder token in [start, end)."""
    # items are in the prompt's order and do not overlap, so ends and offsets are sorted
    first = bisect_right(features, start, key=lambda feature: feature.mm_position.end)
    last = bisect_left(features, end, key=lambda feature: feature.mm_position.offset)
    return range(first, last)
