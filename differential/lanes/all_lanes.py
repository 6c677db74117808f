"""All lanes, in the order in which searches take turns."""

from cacheproof.differential.lanes import (
    block_hash,
    encoder_cache,
    encoder_decoder,
    engine,
    kv_cache,
    media_hash,
    scheduler,
)
from cacheproof.differential.lanes.lane import Lane

_DEPTHS = encoder_cache, encoder_decoder, scheduler, engine, block_hash, media_hash, kv_cache
LANES = {lane.name: lane for depth in _DEPTHS for lane in depth.LANES}


def lane_called(name: str) -> Lane:
    """The lane of that name. Raises KeyError when there is none."""
    return LANES[name]
