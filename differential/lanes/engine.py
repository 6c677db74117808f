"""Lanes of an engine, whose workers execute what its scheduler decides."""

from functools import partial

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.generators.whisper import whisper_trace
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.lanes.scheduler import DECODERS, ITEMS_IN_PROMPTS, KV_TRANSFERS

RARE = frozenset(
    {
        "repeated item",
        "shared",
        "rescue",
        "eviction",
        "full",
        "refused by budget",
        "refused by space",
        "preemption inside an item",
        "encoded anew after an eviction",
        "stopped before an item",
        "hit after preemption",
        "equal prompts decoded",
    }
)
WINDOWS = frozenset(
    {"blocks behind a window given back", "hit in several groups", "null blocks in a hit"}
)
"""Of sliding windows beside full attention."""
INSIDE_ITEMS = frozenset(
    {
        "abort inside an item",
        "preemption inside an item",
        "hit after preemption",
        "equal prompts decoded",
        "repeated item",
        "shared",
    }
)
"""Under tight KV blocks and priorities, where encoder cache is plenty."""
SILENT_ON = KV_TRANSFERS | {"WM-5", "WM-6"}
"""The rows of an engine do not say what they are; those of the runner do."""

LANES = (
    Lane("LLaVA", "engine", "encoder_cache", engine_trace, RARE, silent_on=SILENT_ON),
    Lane(
        "Qwen2.5-VL",
        "engine",
        "encoder_cache",
        partial(engine_trace, model="qwen2_5_vl"),
        RARE,
        silent_on=SILENT_ON,
    ),
    Lane(
        "Qwen2.5-VL with pruned videos",
        "engine",
        "encoder_cache",
        partial(engine_trace, model="qwen2_5_vl", prunes=True),
        RARE,
        silent_on=SILENT_ON,
    ),
    Lane(
        "Qwen3-VL",
        "engine",
        "encoder_cache",
        partial(engine_trace, model="qwen3_vl"),
        RARE,
        silent_on=SILENT_ON,
        since="0.32.0",  # no earlier engine was tried
    ),
    Lane(
        "Qwen2-Audio",
        "engine",
        "encoder_cache",
        partial(engine_trace, model="qwen2_audio"),
        RARE,
        silent_on=SILENT_ON,
        since="0.32.0",
    ),
    Lane(
        "Cohere2Vision",
        "engine",
        "encoder_cache",
        partial(engine_trace, model="cohere2_vision"),
        RARE | WINDOWS,
        silent_on=SILENT_ON,
        since="0.29.0",  # before, its windows were a token shorter
    ),
    Lane(
        "LLaVA with steps ahead",
        "engine",
        "encoder_cache",
        partial(engine_trace, ahead=True),
        RARE,
        silent_on=SILENT_ON,
        since="0.21.0",  # earlier ones have no drafter that takes rows of items
    ),
    Lane(
        "Qwen2.5-VL with steps ahead",
        "engine",
        "encoder_cache",
        partial(engine_trace, model="qwen2_5_vl", ahead=True),
        RARE,
        silent_on=SILENT_ON,
        since="0.21.0",
    ),
    Lane(
        "LLaVA with cache salts",
        "engine",
        "encoder_cache",
        partial(engine_trace, asked="salts"),
        RARE | {"equal prompts under two salts"},
        silent_on=SILENT_ON,
        since="0.32.0",
    ),
    Lane(
        "LLaVA with adapters",
        "engine",
        "encoder_cache",
        partial(engine_trace, asked="adapters"),
        RARE | {"equal prompts under two adapters"},
        silent_on=SILENT_ON,
        since="0.32.0",
    ),
    Lane(
        "Qwen2.5-VL with adapters of its tower too",
        "engine",
        "encoder_cache",
        partial(engine_trace, model="qwen2_5_vl", asked="tower adapters"),
        RARE | {"equal prompts under two adapters"},
        silent_on=SILENT_ON,
        since="0.32.0",
    ),
    Lane(
        "LLaVA with new weights",
        "engine",
        "encoder_cache",
        partial(engine_trace, asked="weights"),
        RARE - {"hit after preemption"} | {"new weights"},
        silent_on=SILENT_ON,
        since="0.32.0",
    ),
    Lane(
        "LLaVA with embeddings given",
        "engine",
        "encoder_cache",
        partial(engine_trace, asked="embeddings"),
        RARE | {"embeddings beside media"},
        silent_on=SILENT_ON,
        since="0.32.0",
    ),
    Lane(
        "LLaVA under priorities",
        "engine",
        "encoder_cache",
        partial(engine_trace, asked="priority"),
        INSIDE_ITEMS,
        silent_on=SILENT_ON,
        since="0.32.0",
    ),
    Lane(
        "Whisper",
        "engine",
        "encoder_decoder",
        whisper_trace,
        DECODERS | {"began anew beside another item", "equal prompts decoded"},
        # who waits holds no entry
        silent_on=SILENT_ON | ITEMS_IN_PROMPTS | {"SC-6"},
    ),
    Lane(
        "Whisper with steps ahead",
        "engine",
        "encoder_decoder",
        partial(whisper_trace, ahead=True),
        DECODERS | {"began anew beside another item", "equal prompts decoded"},
        silent_on=SILENT_ON | ITEMS_IN_PROMPTS | {"SC-6"},
        since="0.24.0",
    ),
)
