"""Lanes of an encoder-decoder cache manager alone."""

from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.lanes.lane import Lane

LANES = (
    Lane(
        "encoder-decoder",
        "manager",
        "encoder_decoder",
        lambda seed: manager_trace(seed, "encoder_decoder"),
        frozenset({"decoder item released again", "decoder entry reported"}),
    ),
    Lane(
        "encoder-decoder of several items",
        "manager",
        "encoder_decoder",
        lambda seed: manager_trace(seed, "encoder_decoder", several=True),
        frozenset({"decoder item released again", "admitted beside pending items"}),
    ),
)
