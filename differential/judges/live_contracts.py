"""The contracts that can speak of an object of which nothing but calls is seen, and those that
cannot."""

from collections.abc import Mapping

from cacheproof.differential.judges.rules import manager_component
from cacheproof.spec.registry import contracts

ENCODER_CACHE = "encoder_cache"
ENCODER_DECODER = "encoder_decoder"
KV_CACHE = "kv_cache"
BLOCK_POOL = "block_pool"
SCHEDULER = "scheduler"
_PROGRESS = "how far a request is, only its scheduler knows"
_TEXTS = "what stands in KV blocks, only the text of prompts decides, which no record has"
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
    KV_CACHE: {"KV-15": "how long a content lived is asked of its collector"},
    BLOCK_POOL: {
        "BP-10": "which hash follows which, only requests say",
        "BP-11": "which items stand in a block, only requests say",
    },
    SCHEDULER: {
        "EC-8b": "every release breaks it, which costs time and is no fault of who extends it",
        "SC-18": "a request that is refused is refused to who calls",
        "SC-21": "how large its cache was to be, only its configuration says",
        **dict.fromkeys(("SC-14", "SC-15", "SC-16", "SC-17"), _TEXTS),
    },
}
"""Contracts that say nothing, by the kind of what is watched, and why."""


def live_contracts(kind: str, release: str | None) -> tuple[str, ...]:
    """The ids of the contracts that can speak of a kind; of a scheduler also those that cannot
    speak of a manager without one."""
    if kind == BLOCK_POOL:
        applicable = [rule for rule in contracts(KV_CACHE, release) if rule.component == kind]
    elif kind == SCHEDULER:
        further = SILENT[ENCODER_CACHE]
        applicable = [
            rule
            for rule in contracts(None, release)
            if rule.component == kind or rule.id in further
        ]
    else:
        applicable = [*contracts(manager_component(kind), release)]
    return tuple(rule.id for rule in applicable if rule.id not in SILENT[kind])
