"""Lanes of an engine, whose workers execute what its scheduler decides."""

from functools import partial
from typing import Any

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
"""Rare states of sliding windows beside full attention."""
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
"""Rare states under tight KV blocks and priorities, where encoder cache is plenty."""
SESSIONS = frozenset({"prompt continued", "session waits for more prompt", "equal turns decoded"})
EMBEDDED = RARE - {"preemption inside an item", "shared"} | {
    "prompt of embeddings",
    "tokens and embeddings mixed",
}
"""Rare states of prompts of embeddings, beside fewer prompts with items."""
SILENT_ON = KV_TRANSFERS | {"WM-5", "WM-6"}
"""Contracts of KV transfers, and of what rows are: an engine's rows do not say it, the runner's
do."""


def _lane(
    name: str,
    since: str | None = None,
    rare: frozenset[str] = RARE,
    *,
    but: frozenset[str] = frozenset(),
    **drawn: Any,
) -> Lane:
    """A lane of traces as `drawn`, for engines since a release, except the releases in `but`."""
    make = partial(engine_trace, **drawn)
    return Lane(
        name,
        "engine",
        "encoder_cache",
        make,
        rare,
        silent_on=SILENT_ON,
        since=since,
        but=but,
    )


def _of_sounds(name: str, since: str | None = None, **drawn: Any) -> Lane:
    """A lane of Whisper's traces, in which a waiting request holds no entry."""
    rare = DECODERS | {"began anew beside another item", "equal prompts decoded"}
    silent = SILENT_ON | ITEMS_IN_PROMPTS | {"SC-6"}
    make = partial(whisper_trace, **drawn)
    return Lane(name, "engine", "encoder_decoder", make, rare, silent_on=silent, since=since)


_OTHER_WINDOWS = "0.29.0"
"""Release before which Cohere's windows were a token shorter."""
_DRAFTER = "0.21.0"
"""Engines before it have no drafter that takes rows of items."""
_SESSIONS_AHEAD = "0.31.0"
"""Release before which the step after a turn that ended over one in flight computes a token that
nobody knows (faults/session-placeholders): what a worker reads there is not modelled."""
_ASKS_FOR_A_DRIVER = frozenset({"0.22.0", "0.22.1"})
"""At the first pruned video they ask for a driver of NVIDIA's, and end without one."""

LANES = (
    _lane("LLaVA"),
    _lane("Qwen2.5-VL", model="qwen2_5_vl"),
    _lane("Qwen2.5-VL with pruned videos", model="qwen2_5_vl", prunes=True, but=_ASKS_FOR_A_DRIVER),
    _lane("Qwen3-VL", "0.30.0", model="qwen3_vl"),
    _lane("Qwen2-Audio", "0.21.0", model="qwen2_audio"),
    _lane("Cohere2Vision", _OTHER_WINDOWS, RARE | WINDOWS, model="cohere2_vision"),
    _lane("LLaVA with steps ahead", _DRAFTER, ahead=True),
    _lane("Qwen2.5-VL with steps ahead", _DRAFTER, model="qwen2_5_vl", ahead=True),
    _lane("Qwen3-VL with steps ahead", "0.30.0", model="qwen3_vl", ahead=True),
    _lane("Qwen2-Audio with steps ahead", "0.21.0", model="qwen2_audio", ahead=True),
    _lane(
        "Cohere2Vision with steps ahead",
        _OTHER_WINDOWS,
        RARE | WINDOWS,
        model="cohere2_vision",
        ahead=True,
    ),
    _lane(
        "LLaVA with cache salts", "0.21.0", RARE | {"equal prompts under two salts"}, asked="salts"
    ),
    _lane(
        "Cohere2Vision with cache salts",
        _OTHER_WINDOWS,
        RARE | WINDOWS | {"equal prompts under two salts"},
        model="cohere2_vision",
        asked="salts",
    ),
    _lane(
        "LLaVA with adapters",
        "0.24.0",
        RARE | {"equal prompts under two adapters"},
        asked="adapters",
    ),
    _lane(
        "Qwen2.5-VL with adapters of its tower too",
        "0.27.0",
        RARE | {"equal prompts under two adapters"},
        model="qwen2_5_vl",
        asked="tower adapters",
    ),
    _lane(
        "LLaVA with new weights",
        "0.26.0",
        RARE - {"hit after preemption"} | {"new weights"},
        asked="weights",
    ),
    _lane(
        "LLaVA with embeddings given",
        "0.21.0",
        RARE | {"embeddings beside media"},
        asked="embeddings",
    ),
    _lane(
        "LLaVA with prompts of embeddings",
        "0.24.0",
        EMBEDDED,
        asked="embedded prompts",
    ),
    _lane(
        "Qwen2.5-VL with prompts of embeddings and steps ahead",
        "0.24.0",
        EMBEDDED,
        model="qwen2_5_vl",
        ahead=True,
        asked="embedded prompts",
    ),
    _lane(
        "LLaVA with whole items",
        "0.21.0",
        RARE - {"preemption inside an item"} | {"whole item that does not fit"},
        asked="whole items",
    ),
    _lane("LLaVA under priorities", "0.21.0", INSIDE_ITEMS, asked="priority"),
    _lane("LLaVA with sessions", "0.21.0", RARE | SESSIONS, asked="sessions"),
    _lane(
        "Qwen2.5-VL with sessions and steps ahead",
        _SESSIONS_AHEAD,
        RARE | SESSIONS,
        model="qwen2_5_vl",
        ahead=True,
        asked="sessions",
    ),
    _of_sounds("Whisper"),
    _of_sounds("Whisper with steps ahead", "0.20.0", ahead=True),
)
