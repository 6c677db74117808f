"""Lanes of an encoder-decoder cache manager alone."""

from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.lanes.lane import Lane

FIRST_WITH_ITS_MANAGER = "0.13.0"

LANES = (
    Lane(
        "encoder-decoder",
        "manager",
        "encoder_decoder",
        lambda seed: manager_trace(seed, "encoder_decoder"),
        frozenset({"decoder item released again", "decoder entry reported"}),
        since=FIRST_WITH_ITS_MANAGER,
    ),
    Lane(
        "encoder-decoder of several items",
        "manager",
        "encoder_decoder",
        lambda seed: manager_trace(seed, "encoder_decoder", several=True),
        frozenset({"decoder item released again", "admitted beside pending items"}),
        since=FIRST_WITH_ITS_MANAGER,
    ),
)
