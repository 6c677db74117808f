"""What an engine can use that an audit does not follow, and the contracts that then say nothing."""

from collections.abc import Iterable

ORDER = frozenset({"SC-7", "SC-13"})
PROGRESS = frozenset({"LV-1", "LV-3"})
NOT_JUDGED = {
    "KV connector": ORDER | PROGRESS | {"LV-2", "SC-3", "SC-19"},
    "KV cache groups of other kinds": frozenset({"LV-2"}),
    "encoders alone": frozenset({"LV-2"}),
    "pipeline parallelism": PROGRESS,
    "data parallelism": PROGRESS | ORDER,
    "context parallelism": frozenset({"LV-2"}),
    "pooling or diffusion": PROGRESS | {"SC-10"},
    "chunks that end where Mamba states do": frozenset({"SC-3"}),
    "slots for parallel drafts": frozenset({"SC-3"}),
}
"""Contracts that are not judged, by what `recording.settings` says of an engine."""
_TEXTS = frozenset({"SC-14", "SC-15", "SC-16", "SC-17"})
"""Contracts of what stands in KV blocks: the text of prompts decides that, and no record has it."""
_TRANSFERS = frozenset({"KT-1", "KT-2", "KT-3", "KT-4"})
"""Contracts of a KV connector's loads: no record says when these arrive."""
_SIZES = frozenset({"SC-21"})
"""The contract that compares with the configured size: a record has the size that came of it."""
NEVER_JUDGED = _TEXTS | _TRANSFERS | _SIZES

_ITEMS = frozenset({"BP-11"})
"""The contract of what stands in a block beside tokens: a record tells a request's keys only."""
_LIVES = frozenset({"KV-15"})
"""The contract of how long contents lived, which a collector is asked, and no record."""
KV_NEVER_JUDGED = _ITEMS | _LIVES
_KV_NOT_JUDGED = {
    "sparse retention of KV": frozenset({"KV-11"}),
    "block keys that look ahead": frozenset({"KV-11"}),
}
"""Contracts of a KV cache manager that are not judged, by feature: a record does not say which full
blocks need not be found."""


def kv_not_judged(features: Iterable[str]) -> frozenset[str]:
    """Contracts that say nothing of a KV cache manager with these features."""
    return KV_NEVER_JUDGED.union(*(_KV_NOT_JUDGED.get(one, frozenset()) for one in features))


def not_judged(features: set[str]) -> frozenset[str]:
    """Contracts that say nothing of an engine with these features."""
    return NEVER_JUDGED.union(*(NOT_JUDGED.get(one, frozenset()) for one in features))
