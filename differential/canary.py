"""Canaries: one planted fault per contract, on the target's side of the pipe.

A search that does not find a fault that is there says nothing by finding none. So a campaign plants
one, another contract's with every seed, and is void when it does not come back with that contract.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cacheproof.differential.campaign import Lane
from cacheproof.differential.examine import examine, rules_for
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.host.faults import FAULTS
from cacheproof.differential.targets.reference import MANAGERS, Factory
from cacheproof.differential.trace import Trace
from cacheproof.reference.semantics import Semantics

_FAULT_OF = {
    "encoder_cache": {
        "EC-1": "leaks_a_slot",
        "EC-2": "miscounts_freeable",
        "EC-3": "overdraws",
        "EC-4": "keeps_hits_queued",
        "EC-5": "books_what_nobody_encoded",
        "EC-6": "evicts_what_is_held",
        "EC-6a": "forgets_the_holder",
        "EC-7": "evicts_newest_first",
        "EC-8a": "evicts_one_more",
        "EC-9": "loses_notices",
        "EC-10": "credits_again",
        "EC-11": "refusal_leaves_a_reference",
        "EC-12": "refuses_now_and_then",
        "EC-13": "raises_now_and_then",
        "WM-1": "reports_what_is_resident",
        "WM-2": "hits_what_is_absent",
        "WM-3": "loses_notices",
        "WM-4": "reports_what_it_just_encoded",
    },
    "encoder_decoder": {
        "ED-1": "overdraws",
        "ED-2": "credits_decoder_again",
        "ED-3": "loses_notices",
        "ED-4": "raises_now_and_then",
        "WM-3": "loses_notices",
        "WM-4": "reports_what_it_just_encoded",
    },
}
NO_CANARY = {
    ("encoder_cache", "EC-8b"): "a manager alone cannot break it: a scheduler does",
    ("encoder_decoder", "WM-2"): "what a step reads is what it encodes, whatever the manager says",
}


@dataclass(frozen=True)
class Canary:
    """A fault of `targets/host/faults.py` that breaks the contract."""

    contract: str
    fault: str


def canaries(
    manager: str, release: str | None = None, broken: Collection[str] = ()
) -> list[Canary]:
    """One canary per contract that judges a kind of manager of a release.

    `broken` are contracts that the release breaks of itself: their canaries would prove nothing.
    """
    faults = _FAULT_OF[manager]
    return [
        Canary(rule.id, faults[rule.id])
        for rule in rules_for(manager, release).all
        if rule.id in faults and rule.id not in broken
    ]


def canary_of(
    seed: int, manager: str, release: str | None = None, broken: Collection[str] = ()
) -> Canary:
    """The canary whose turn it is: consecutive seeds go through all contracts."""
    turn = canaries(manager, release, broken)
    return turn[seed % len(turn)]


def finds_canary(
    canary: Canary, make_target: Callable[[str], Target], traces: Iterable[Trace]
) -> bool:
    """Whether the search finds the canary on the target that `make_target(fault)` gives.

    Traces run one by one until one breaks the canary's contract. Raises HarnessError as the target.
    """
    target = make_target(canary.fault)
    try:
        return any(
            canary.contract in examine(trace, target.run([trace])[0], target).violations
            for trace in traces
        )
    finally:
        target.close()


def planted(fault: str) -> dict[str, Factory]:
    """The reference managers with a fault in each, for a ReferenceTarget."""

    def with_fault(factory: Factory) -> Factory:
        def make(capacity: int, semantics: Semantics) -> Any:
            manager = factory(capacity, semantics)
            FAULTS[fault](manager)
            return manager

        return make

    return {kind: with_fault(factory) for kind, factory in MANAGERS.items()}


CANARY_TRACES = 60


def run_canaries(target: Target, lanes: Sequence[Lane], broken: Collection[str]) -> dict[str, bool]:
    """Plant every canary of the lanes' managers in `target`: which were found.

    Lanes at manager depth take part; `broken` is what the target breaks of itself. Raises
    HarnessError as the target.
    """
    found: dict[str, bool] = {}
    for lane in lanes:
        if lane.depth != "manager" or lane.resized:
            continue
        for canary in canaries(lane.manager, target.release, broken):
            found[f"{canary.contract} ({lane.name})"] = any(
                canary.contract in _broken_under(canary.fault, target, lane.make(seed))
                for seed in range(CANARY_TRACES)
            )
    return found


def _broken_under(fault: str, target: Target, trace: Trace) -> Collection[str]:
    return examine(trace, target.run([trace], fault)[0], target).violations
