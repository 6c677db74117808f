"""Canaries: one planted fault per contract, on the target's side of the pipe.

A search that does not find a fault that is there says nothing by finding none. So a search plants
one per contract, each by itself, and is void when one of them does not come back.
"""

import math
import time
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import get_args

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rules import SCHEDULER, rules_for
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.both_runners import EngineTarget
from cacheproof.differential.targets.host.by_name import canaries_of
from cacheproof.differential.targets.host.connectors.faults import CONNECTOR_FAULTS
from cacheproof.differential.targets.host.faults.block_hash import BLOCK_HASH_FAULTS
from cacheproof.differential.targets.host.faults.front_end import FRONT_END_FAULTS
from cacheproof.differential.targets.host.faults.kv_cache import KV_CACHE_FAULTS
from cacheproof.differential.targets.host.faults.manager import FAULTS
from cacheproof.differential.targets.host.faults.manager_calls import MANAGER_CALL_FAULTS
from cacheproof.differential.targets.host.faults.media_hash import MEDIA_HASH_FAULTS
from cacheproof.differential.targets.host.faults.media_identifier import MEDIA_IDENTIFIER_FAULTS
from cacheproof.differential.targets.host.faults.scheduler import SCHEDULER_FAULTS
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.texts import mends
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.reference.semantics import offered_by
from cacheproof.spec.registry import Contract

CANARY_TRACES = 60
LATE_SEEDS = Path(__file__).with_name("late_seeds.toml")
"""Written by benchmarks/late_seeds.py."""
CANARIES_AT_ONCE = 8
"""Canaries of a lane that are planted in one job."""

_OF_MANAGERS = canaries_of(FAULTS, MANAGER_CALL_FAULTS)
_FAULTS_OF = {
    "encoder_cache": _OF_MANAGERS,
    "encoder_decoder": _OF_MANAGERS,
    SCHEDULER: canaries_of(SCHEDULER_FAULTS, FAULTS),
    "kv_cache": canaries_of(KV_CACHE_FAULTS),
    "block_hash": canaries_of(BLOCK_HASH_FAULTS),
    "media_hash": canaries_of(MEDIA_HASH_FAULTS),
    "encoder_connector": canaries_of(CONNECTOR_FAULTS),
    "media_identifier": canaries_of(MEDIA_IDENTIFIER_FAULTS),
    "front_end": canaries_of(FRONT_END_FAULTS),
}
"""What a trace is for -> contract -> kind of break -> the fault that is planted."""
_EVENT_OF = {name: vars(fault)["event"] for name, fault in CONNECTOR_FAULTS.items() if vars(fault)}
"""Fault -> the event without which it does not show. Each engine of a trace for connectors is a
process, so that a run of one that cannot show a fault costs as much as all other canaries."""
_OF_ENGINES = {
    "EQ-1": "reads_the_row_before",
    "WM-1": "never_frees",
    "WM-3a": "keeps_what_it_cut_off",
}
# No order of its rows matters to a decoder that attends to all, and WM-1 does not judge its store.
_OF_DECODING_ENGINES = {
    "EQ-1": "reads_one_row",
    "WM-3": "never_frees",
    "WM-3a": "keeps_what_it_cut_off",
}
_ASKS_FOR = {
    "drops_what_is_encoded": "scheduler.sends_items_again",
    "forgets_adapters": "media.identifies_adapters",
}
"""Fault -> flag of the releases that have what the fault falsifies."""
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
NO_CANARY_WHERE_ALL_IS_SENT = {
    ("PM-2", "though nothing was lost"): "a front end that sends all data takes nothing for sent",
}


@dataclass(frozen=True)
class Canary:
    """A fault of `targets/host` that breaks the contract, in that `kind` where its judge tells
    several apart. Where an engine has both model runners, it is planted in that `runner`. Without
    that `event` a trace is not worth its run."""

    contract: str
    fault: str
    kind: str = ""
    runner: ModelRunner | None = None
    event: str = ""

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
    """One canary for each contract that judges a kind of manager of a release at a depth, and for
    each kind of break that is told apart.

    `broken` are contracts that the release breaks of itself: their canaries would prove nothing. In
    an engine only what executes steps has canaries: those of its decisions are planted at scheduler
    depth, in the same classes.
    """
    if DEPTHS[depth].is_executed:
        faults = _OF_DECODING_ENGINES if manager == "encoder_decoder" else _OF_ENGINES
        return [Canary(rule, faults[rule]) for rule in sorted(faults.keys() - set(broken))]
    return [
        canary
        for rule in rules_for(manager, release, depth).all
        if rule.id not in broken and (manager, depth, rule.id) not in NO_CANARY
        for canary in _canaries_of(rule, manager)
        # Asked again with the kind: a contract may have no canary in one kind alone.
        if (manager, depth, canary.name) not in NO_CANARY and _can_be_planted(canary.fault, release)
    ]


def _can_be_planted(fault: str, release: str | None) -> bool:
    """Whether the release has what the fault falsifies."""
    return fault not in _ASKS_FOR or offered_by(release).flags[_ASKS_FOR[fault]]


def _canaries_of(rule: Contract, manager: str) -> list[Canary]:
    faults = _FAULTS_OF[SCHEDULER if SCHEDULER in rule.applies_to else manager]
    return [
        Canary(rule.id, fault, kind, event=_EVENT_OF.get(fault, ""))
        for kind, fault in faults[rule.id].items()
    ]


class Planting:
    """Plants canaries of a lane in a target, and looks for them in its traces. What a trace comes
    to without a fault is run once for all of them."""

    def __init__(self, target: Target, traces: Iterable[Trace]) -> None:
        self._target = target
        self._left = iter(traces)
        self._drawn: list[Trace] = []
        self._without: dict[tuple[int, ModelRunner | None], TraceResult] = {}

    def finds(
        self,
        canary: Canary,
        until: float = math.inf,
        showing: Iterable[tuple[int, Trace]] = (),
    ) -> bool | None:
        """Whether a canary is found; the first trace that shows it ends the search, and None says
        that the moment `until` of the monotonic clock did. Traces that are known to be `showing` it
        come first, each with its number among all. A break does not count where the run
        without the fault has the same records: then the fault did nothing, and the target breaks
        the contract of itself.

        Raises HarnessError as the target.
        """
        sought = canary.contract, canary.kind
        for number, drawn in chain(showing, enumerate(self._traces())):
            if time.monotonic() >= until:
                return None
            if canary.event and canary.event not in {tag_of(type(one)) for one in drawn.events}:
                continue
            trace = drawn if canary.runner is None else drawn.under_runner(canary.runner)
            (planted,) = self._target.run([trace], canary.fault)
            if planted == self._run_without(number, canary.runner, trace):
                continue
            if sought in examine(trace, planted, self._target, sought=sought).by_kind:
                return True
        return False

    def _traces(self) -> Iterator[Trace]:
        """The traces, drawn as they are asked for: the first that shows a canary ends its
        search."""
        yield from self._drawn
        for trace in self._left:
            self._drawn.append(trace)
            yield trace

    def _run_without(self, number: int, runner: ModelRunner | None, trace: Trace) -> TraceResult:
        if (number, runner) not in self._without:
            (self._without[number, runner],) = self._target.run([trace])
        return self._without[number, runner]


def canaries_in(
    lane: Lane, target: Target, broken: Set[tuple[str, str, str]] = frozenset()
) -> list[Canary]:
    """The canaries of a lane that are worth planting in `target`.

    `broken` are the contracts that the target breaks of itself, each with lane and kind of break:
    canaries against them would prove nothing.
    """
    if lane.resized:
        return []
    without = set(lane.silent_on)
    if DEPTHS[lane.depth].has_scheduler and _plans(target):
        without |= NO_CANARY_WHERE_PLANNED.keys()
    some = canaries(lane.manager, target.release, without, lane.depth)
    if not _sends_names_alone(target):
        some = [one for one in some if (one.contract, one.kind) not in NO_CANARY_WHERE_ALL_IS_SENT]
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


def plantings(lane: Lane, target: Target) -> Iterator[tuple[Canary, ...]]:
    """The canaries of a lane, a few at a time."""
    some = canaries_in(lane, target)
    for first in range(0, len(some), CANARIES_AT_ONCE):
        yield tuple(some[first : first + CANARIES_AT_ONCE])


def plantings_in_turns(
    lanes: Iterable[Lane], target: Target
) -> Iterator[tuple[Lane, tuple[Canary, ...]]]:
    """The canaries of all lanes, the first few of each lane first: what the clock leaves out should
    not be whole lanes."""
    by_lane = [[(lane, some) for some in plantings(lane, target)] for lane in lanes]
    for turn in zip_longest(*by_lane):
        yield from (one for one in turn if one is not None)


def unbroken(some: Iterable[Canary], lane: Lane, broken: Set[tuple[str, str, str]]) -> list[Canary]:
    """The canaries of a lane whose contracts the target does not break of itself."""
    ours = {(contract, kind) for contract, name, kind in broken if name == lane.name}
    # A break of the target without a kind may be of any, so it rules out those of every kind.
    return [one for one in some if not {(one.contract, one.kind), (one.contract, "")} & ours]


def name_in(lane: Lane, canary: Canary) -> str:
    """What a search calls a canary of a lane."""
    where = f"{lane.name}, second model runner" if canary.runner == "second" else lane.name
    return f"{canary.name} ({where})"


def plant(
    some: Iterable[Canary], target: Target, lane: Lane, until: float = math.inf
) -> dict[str, bool]:
    """Plant canaries of a lane in `target`: which were found, without those that the moment `until`
    left out. Raises HarnessError as the target."""

    def of_seeds(seeds: Iterable[int]) -> Iterator[tuple[int, Trace]]:
        return ((seed, lane.trace(seed, target.model)) for seed in seeds)

    planting = Planting(target, (trace for _, trace in of_seeds(range(CANARY_TRACES))))
    told = {}
    for canary in some:
        showing = of_seeds(late_seeds().get(lane.name, {}).get(canary.name, ()))
        told[name_in(lane, canary)] = planting.finds(canary, until, showing)
    return {name: found for name, found in told.items() if found is not None}


@cache
def late_seeds() -> Mapping[str, Mapping[str, list[int]]]:
    """Lane -> name of a canary -> seeds that are known to show it, where those before do not. They
    only come first: what they do not show is looked for in all others."""
    found: dict[str, dict[str, list[int]]] = tomllib.loads(LATE_SEEDS.read_text())
    return found


def _plans(target: Target) -> bool:
    """Whether the target's scheduler plans its walks, as the ideal and mended releases do."""
    if isinstance(target, ReferenceTarget):
        return target.semantics.scheduler.takes_after_blocks
    return "scheduler.takes_after_blocks" in mends.flags_of(target.mended)


def _sends_names_alone(target: Target) -> bool:
    """Whether the target's front end sends what it takes for sent without its data."""
    if isinstance(target, ReferenceTarget):
        return target.semantics.front_end.sends_names_alone
    return mends.flags_of(target.mended).get("front_end.sends_names_alone", True)
