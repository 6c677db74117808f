"""The contracts that can speak of an object of which nothing but calls is seen, and those that
cannot."""

from collections.abc import Mapping

from cacheproof.differential.judges.rules import manager_component
from cacheproof.spec.registry import contracts

ENCODER_CACHE = "encoder_cache"
ENCODER_DECODER = "encoder_decoder"
KV_CACHE = "kv_cache"
BLOCK_POOL = "block_pool"
_PROGRESS = "how far a request is, only its scheduler knows"
_SCHEDULED = "which tokens a step computes, only its scheduler knows"
SILENT: Mapping[str, Mapping[str, str]] = {
    ENCODER_CACHE: {
        "CP-2": _PROGRESS,
        "CP-3": "who goes on running, only the scheduler knows",
        "CP-4": "whether the step still encodes it, only the scheduler knows",
        "CP-5": _PROGRESS,
        "EC-8b": "which admission an allocation answers, only the scheduler knows",
        "WM-2": _SCHEDULED,
    },
    ENCODER_DECODER: {},
    KV_CACHE: {},
    BLOCK_POOL: {"BP-10": "which hash follows which, only requests say"},
}
"""By kind, and why."""


def live_contracts(kind: str, release: str | None) -> tuple[str, ...]:
    """The ids of the contracts that can speak of a kind."""
    silent = SILENT[kind]
    if kind == BLOCK_POOL:
        applicable = (rule for rule in contracts(KV_CACHE, release) if rule.component == kind)
    else:
        applicable = contracts(manager_component(kind), release)
    return tuple(rule.id for rule in applicable if rule.id not in silent)
