"""Canaries: one planted fault per contract, on the target's side of the pipe.

A search that does not find a fault that is there says nothing by finding none. So a campaign plants
one per contract, each by itself, and is void when one of them does not come back.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import get_args

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rules import ENGINE, SCHEDULER, rules_for
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.both_runners import EngineTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.texts import mends
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.reference.semantics import offered_by

CANARY_TRACES = 60

_FAULT_OF: dict[str, Mapping[str, str | Mapping[str, str]]] = {
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
        "EC-8b": "refuses_after_evicting",
        "EC-9": "loses_notices",
        "EC-10": "credits_again",
        "EC-11": "refusal_leaves_a_reference",
        "EC-12": "refuses_now_and_then",
        "EC-13": "raises_now_and_then",
        "EC-14": "frees_nothing",
        "EC-15": "grants_without_room",
        "EC-16": "misses_what_is_resident",
        "EC-17": "tells_a_size_of_the_absent",
        "EC-18": "leaves_an_input_out",
        "WM-1": "reports_what_is_resident",
        "WM-2": "hits_what_is_absent",
        "WM-3": "loses_notices",
        "WM-4": "reports_what_it_just_encoded",
        "CP-1": "allocates_again",
        "CP-2": "releases_ahead",
        "CP-3": "frees_who_runs",
        "CP-4": "drops_whom_it_encodes_for",
        "CP-5": "gives_back_in_reverse",
    },
    "encoder_decoder": {
        "ED-1": "overdraws",
        "ED-2": "credits_decoder_again",
        "ED-3": "loses_notices",
        "ED-4": "raises_now_and_then",
        "ED-5": {"as an item is debited": "leaks_a_slot"},
        "ED-6": "refuses_now_and_then",
        "ED-7": "leaves_an_input_out",
        "WM-3": "loses_notices",
        "WM-4": "reports_what_it_just_encoded",
        "CP-6": "allocates_again",
    },
    "block_hash": {
        "BK-1": "forgets_items",
        "BK-2": "forgets_the_prefix",
        "BK-3": "hashes_growth_otherwise",
        "BK-4": "never_repeats",
        "BK-5": "leaves_the_last_key_out",
    },
    "media_hash": {
        "MH-2": {"order of arguments": "leans_on_order"},
        "MH-3": {
            "list against map": "forgets_kinds_of_containers",
            "mode of an image": "forgets_forms",
        },
        "MH-3a": {"shape of an array": "forgets_forms"},
        "MH-4": {"image": "never_repeats", "layout of an array": "leans_on_layout"},
        "MH-6": "raises_now_and_then",
        "MH-7": {"image or media": "forgets_image_ids"},
    },
    "scheduler": {
        "SC-1a": "schedules_beyond_the_budget",
        "SC-1b": "encodes_beyond_the_budget",
        "SC-1c": "admits_everybody",
        "SC-2": "computes_into_items",
        "SC-3": "stops_early",
        "SC-4": "splits_items",
        "SC-5": "encodes_again",
        "SC-6": {"after the end": "frees_nothing"},
        "SC-7": "looks_past_the_first",
        "SC-8": {"KeyError in update": "raises_in_update"},
        "SC-9": {
            "at once": "withholds_what_is_encoded",
            "while it runs": "drops_what_is_encoded",
        },
        "SC-10": "calls_all_tokens_drafts",
        "SC-11": "computes_into_items",
        "SC-12": "offers_less",
        "SC-13": "preempts_the_most_urgent",
        "SC-14": "computes_the_same_again",
        "SC-15": "reads_what_nobody_wrote",
        "SC-16": "counts_a_block_too_few",
        "SC-17": "tells_of_a_block_too_few",
        "SC-18": {"it is the second": "refuses_requests"},
        "SC-19": "forgets_who_waits",
        "SC-20": "begins_before_the_first",
        "SC-21": "has_a_slot_too_many",
        "DF-1": "drops_what_is_read",
        "LV-1": "stops",
        "LV-3": "computes_the_same_again",
        "KT-1": "hands_out_what_is_loaded",
        "KT-2": "reads_what_nobody_wrote",
        "KT-3": "overlooks_failed_loads",
        "KT-4": "sends_from_the_second",
    },
    "engine": {
        "EQ-1": "reads_the_row_before",
        "WM-1": "never_frees",
        "WM-3a": "keeps_what_it_cut_off",
    },
    "kv_cache": {
        "BP-1": "keeps_hits_queued",
        "BP-2": "loses_a_hash",
        "BP-3": "leaks_a_block",
        "BP-4": "keeps_silent_about_evictions",
        "BP-5": "frees_the_first_block_first",
        "BP-6": "tells_a_token_too_many",
        "BP-7": "hands_out_what_was_used_last",
        "BP-8": "says_that_it_was_reset",
        "BP-9": "evicts_nothing_by_id",
        "BP-10": "tells_no_parent",
        "BP-11": "names_no_items",
        "KV-1": "hits_every_token",
        "KV-2": "hands_out_a_shared_block",
        "KV-3": "refuses_to_be_reset",
        "KV-4": "hands_out_a_block_twice",
        "KV-5": "takes_a_block_away",
        "KV-6": "takes_a_block_too_many",
        "KV-7": "refuses_every_third_time",
        "KV-8": "caches_what_is_loading",
        "KV-9": "misses_every_third_hit",
        "KV-10": "claims_whole_tables_as_common",
        "KV-11": "caches_nothing_computed",
        "KV-12": "loads_to_nowhere",
        "KV-13": "counts_no_lookups",
        "KV-14": "caches_what_nobody_reads",
        "KV-15": "measures_no_hit",
    },
    "encoder_connector": {
        "EX-1": "forgets_to_load",
        "EX-2": "reports_loads_early",
        "EX-3": "never_reports",
        "EX-4": "serves_another_item",
        "EX-5": "refuses_large_items",
        "EX-6": "keeps_everything",
        "EX-7": "ignores_new_weights",
        "EX-8": "follows_paths",
        "EX-9": "leaves_drafts",
        "EX-10": "sees_its_own_alone",
        "EX-11": "remembers_what_it_promised",
        "EX-12": "promises_nothing",
    },
}
# No order of its rows matters to a decoder that attends to all, and WM-1 does not judge its store.
_OF_DECODING_ENGINES = {
    "EQ-1": "reads_one_row",
    "WM-3": "never_frees",
    "WM-3a": "keeps_what_it_cut_off",
}
_ASKS_FOR = {"drops_what_is_encoded": "scheduler.sends_items_again"}
"""Faults in what not every release says: fault -> the flag of those that say it."""
NO_CANARY = {
    ("encoder_decoder", "manager", "WM-2"): (
        "what a step reads is what it encodes, whatever the manager says"
    ),
    ("encoder_decoder", "scheduler", "WM-2"): (
        "what a step reads is what it encodes, whatever the manager says"
    ),
    ("encoder_cache", "scheduler", "EC-10"): (
        "a real scheduler asks which items are held before it releases any"
    ),
    ("encoder_cache", "scheduler", "LV-2"): "it judges what a trace asks for, not what is answered",
    ("encoder_decoder", "scheduler", "LV-3"): (
        "its fault forgets chunks of a prompt, and such a model's comes in one"
    ),
    ("encoder_decoder", "scheduler", "SC-9, while it runs"): (
        "a request's item is encoded when the workers are first told of it"
    ),
    ("encoder_decoder", "scheduler", "LV-2"): (
        "it judges what a trace asks for, not what is answered"
    ),
}
NO_CANARY_WHERE_PLANNED = {
    "EC-8b": "a scheduler that plans its walks evicts for what it then allocates",
    "EC-11": "a scheduler that plans its walks asks for nothing that would be refused",
    "WM-2": "a scheduler that plans its walks finds out by itself what would be hit",
}


@dataclass(frozen=True)
class Canary:
    """A fault of `targets/host` that breaks the contract: of a manager, or of a hasher. It breaks
    it in that kind, where a judge tells kinds of break apart. Where an engine has both model
    runners, it is planted in that `runner`."""

    contract: str
    fault: str
    kind: str = ""
    runner: ModelRunner | None = None

    @property
    def name(self) -> str:
        """The contract, and the kind where there is one."""
        return ", ".join(part for part in (self.contract, self.kind) if part)


def canaries(
    manager: str,
    release: str | None = None,
    broken: Collection[str] = (),
    depth: str = "manager",
) -> list[Canary]:
    """One canary per contract that judges a kind of manager of a release at a depth, and kind of
    break that is told apart.

    `broken` are contracts that the release breaks of itself: their canaries would prove nothing.
    Of an engine only what executes steps has canaries: those of its decisions are planted at
    scheduler depth, where the same classes take them.
    """
    if DEPTHS[depth].is_executed:
        faults = _OF_DECODING_ENGINES if manager == "encoder_decoder" else _FAULT_OF[ENGINE]
        return [
            one
            for rule in sorted(faults.keys() - set(broken))
            for one in _canaries_of(rule, faults[rule])
        ]
    return [
        canary
        for rule in rules_for(manager, release, depth).all
        if rule.id not in broken and (manager, depth, rule.id) not in NO_CANARY
        for canary in _canaries_of(
            rule.id, _FAULT_OF[SCHEDULER if SCHEDULER in rule.applies_to else manager][rule.id]
        )
        if (manager, depth, canary.name) not in NO_CANARY and _can_be_planted(canary.fault, release)
    ]


def _can_be_planted(fault: str, release: str | None) -> bool:
    """Whether the release says anything of what the fault falsifies."""
    return fault not in _ASKS_FOR or offered_by(release).flags[_ASKS_FOR[fault]]


def _canaries_of(contract: str, faults: str | Mapping[str, str]) -> list[Canary]:
    if isinstance(faults, str):
        return [Canary(contract, faults)]
    return [Canary(contract, fault, kind) for kind, fault in faults.items()]


def finds_canary(canary: Canary, target: Target, traces: Iterable[Trace]) -> bool:
    """Whether the search finds the canary on the target: stops at the first trace that does. A
    break is no canary's where all is as without the fault: then it was not planted, and the target
    breaks the contract of itself.

    Raises HarnessError as the target.
    """
    sought = canary.contract, canary.kind
    for drawn in traces:
        trace = drawn if canary.runner is None else drawn.under_runner(canary.runner)
        (planted,) = target.run([trace], canary.fault)
        if sought in examine(trace, planted, target).by_kind and target.run([trace]) != [planted]:
            return True
    return False


def canaries_in(
    lane: Lane, target: Target, broken: Set[tuple[str, str, str]] = frozenset()
) -> list[Canary]:
    """The canaries of a lane's manager that are worth planting in `target`.

    `broken` are the contracts that the target breaks of itself, each with the lane and the kind of
    break: those would be found without a canary.
    """
    if lane.resized:
        return []
    without = set(lane.silent_on)
    if DEPTHS[lane.depth].has_scheduler and _plans(target):
        without |= NO_CANARY_WHERE_PLANNED.keys()
    some = canaries(lane.manager, target.release, without, lane.depth)
    if isinstance(target, EngineTarget):
        some = [
            replace(one, runner=runner)
            for runner in get_args(ModelRunner)
            if lane.runner in (None, runner)
            and target.has_runner(runner)
            and lane.under(runner).has_runner
            for one in some
        ]
    return unbroken(some, lane, broken)


def unbroken(some: Iterable[Canary], lane: Lane, broken: Set[tuple[str, str, str]]) -> list[Canary]:
    """Those canaries of a lane whose contracts the target does not break of itself."""
    ours = {(contract, kind) for contract, name, kind in broken if name == lane.name}
    return [one for one in some if not {(one.contract, one.kind), (one.contract, "")} & ours]


def name_in(lane: Lane, canary: Canary) -> str:
    """What a campaign calls a canary of a lane."""
    where = f"{lane.name}, second model runner" if canary.runner == "second" else lane.name
    return f"{canary.name} ({where})"


def plant(some: Iterable[Canary], target: Target, lane: Lane) -> dict[str, bool]:
    """Plant canaries of a lane in `target`: which were found. Raises HarnessError as the target."""
    return {
        name_in(lane, canary): finds_canary(
            canary, target, (lane.trace(seed, target.model) for seed in range(CANARY_TRACES))
        )
        for canary in some
    }


def _plans(target: Target) -> bool:
    """Whether the target's scheduler plans its walks: the reference's own, or a mended one."""
    if isinstance(target, ReferenceTarget):
        return target.semantics.scheduler.takes_after_blocks
    return "scheduler.takes_after_blocks" in mends.flags_of(target.mended)
