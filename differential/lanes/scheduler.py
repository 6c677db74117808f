"""Lanes of a scheduler, its managers inside."""

from functools import partial

from cacheproof.differential.generators.encoder_decoder import encoder_decoder_trace
from cacheproof.differential.generators.scheduler import scheduler_trace
from cacheproof.differential.lanes.encoder_cache import ANOTHER_SIZE, UNDER_PRESSURE
from cacheproof.differential.lanes.lane import Lane

KV_TRANSFERS = frozenset({"KT-1", "KT-2", "KT-3", "KT-4"})
"""Contracts that break only where there is a connector that loads KV."""
KV_BLOCKS = frozenset({"SC-14", "SC-15", "SC-16", "SC-17"})
"""Contracts that are not followed over several groups, nor where KV comes from elsewhere."""
ITEMS_IN_PROMPTS = frozenset({"SC-2", "SC-3", "SC-4", "SC-5", "SC-11", "DF-1"})
"""Contracts that do not break where a request's one item is no part of its prompt."""
DECODERS = frozenset(
    {
        "refused by budget",
        "refused by space",
        "decoder item released again",
        "decoder item encoded again",
        "decoder entry reported",
        "cross-attention blocks",
    }
)
"""What any search of an encoder-decoder's scheduler must meet."""

LANES = (
    Lane(
        "scheduler",
        "scheduler",
        "encoder_cache",
        scheduler_trace,
        UNDER_PRESSURE
        | {
            "preempted after encode in the same step",
            "whole item that does not fit",
            "stopped before an item",
            "rolled back before an item",
            "drafter at an item's edge",
            "drafts rejected",
            "hit after preemption",
            "prompt continued",
            "session waits for more prompt",
        },
        silent_on=KV_TRANSFERS,
        by_release=True,
    ),
    Lane(
        "scheduler with loads",
        "scheduler",
        "encoder_cache",
        partial(scheduler_trace, transfers=True),
        frozenset(
            {
                "loaded from elsewhere",
                "waits for a transfer",
                "preempted after a load in the same step",
                "evicted and loaded in one step",
                "transfer failed",
            }
        ),
        # its traces let items be split; loads are no part of the compute budget
        silent_on=KV_TRANSFERS | {"SC-4", "SC-12"},
        by_release=True,
        since="0.11.1",
    ),
    Lane(
        "scheduler with reused media ids",
        "scheduler",
        "encoder_cache",
        partial(scheduler_trace, resized=True),
        ANOTHER_SIZE | {"reused media id rejected"},
        resized=True,
        silent_on=KV_TRANSFERS,
        by_release=True,
    ),
    Lane(
        "scheduler with windows",
        "scheduler",
        "encoder_cache",
        partial(scheduler_trace, windows=True),
        frozenset(
            {
                "hit in several groups",
                "null blocks in a hit",
                "blocks behind a window given back",
            }
        ),
        silent_on=KV_TRANSFERS | KV_BLOCKS,
        by_release=True,
    ),
    Lane(
        "scheduler of encoder-decoders",
        "scheduler",
        "encoder_decoder",
        encoder_decoder_trace,
        DECODERS,
        # who waits holds no entry
        silent_on=KV_TRANSFERS | ITEMS_IN_PROMPTS | KV_BLOCKS | {"SC-6"},
        by_release=True,
        since="0.13.0",
    ),
    Lane(
        "scheduler with KV loads",
        "scheduler",
        "encoder_cache",
        partial(scheduler_trace, kv_transfers=True),
        frozenset(
            {
                "load under way",
                "load failed",
                "ended while loading",
                "KV loaded within a step",
                "KV loaded within a step failed",
                "KV sent",
                "thrown back for a failed load",
                "ended for a failed load",
                "caching put off until loaded",
                "free put off",
            }
        ),
        # who has loaded its KV goes first, and nearly always somebody waits for something
        silent_on=KV_BLOCKS | {"SC-7", "LV-3"},
        by_release=True,
        since="0.10.2",
    ),
)
