"""Stores of campaigns that nobody ran, with what a test wants to see in them."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement
from pathlib import Path

import msgspec

from cacheproof.board.model import Board, BoardReader
from cacheproof.differential.search.campaigns import outcomes
from cacheproof.differential.search.campaigns.outcomes import PlantedOutcome, SearchedShard
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.runners import Who
from cacheproof.differential.search.campaigns.running import search_of
from cacheproof.differential.search.campaigns.shards import Cutting
from cacheproof.differential.search.campaigns.store import (
    DONE,
    FAILED,
    PLANT,
    CampaignStore,
    CampaignTarget,
    EndedJob,
    MadeBy,
    ShardJob,
    key_of,
)
from cacheproof.differential.search.canary import Canary
from cacheproof.differential.search.fault_folders import to_text
from cacheproof.differential.search.known import KnownFault, Symptom
from cacheproof.differential.search.seeded import Work

BEGUN = 1_800_000_000.0
LANES = ("encoder cache", "scheduler")
SHARD_TRACES = 4
KNOWN = to_text(
    [
        KnownFault(
            "early-release",
            "An entry goes too early",
            "safety",
            page="faults/early-release/page.md",
            upstream="PR #1",
            symptom=(Symptom("EC-6", ">=0.28.0"),),
        )
    ]
)
Listed = list[tuple[str, str, str, int]]
Traces = Sequence[Sequence[str]]
"""The states that each trace of a shard met."""


def made(
    place: Path | str,
    targets: Sequence[str] = ("vllm@0.33.0",),
    *,
    seeds: str = "0:40",
    known: str = KNOWN,
) -> CampaignStore:
    """A store of a campaign that has just begun."""
    plan = CampaignPlan(targets=tuple(targets), seeds=seeds, shard_seeds=SHARD_TRACES)
    abouts = [
        CampaignTarget(name, name.partition("@")[2] or None, "", False, False, LANES)
        for name in targets
    ]
    return CampaignStore.create(str(place), plan, known, MadeBy("1", "code"), abouts, BEGUN)


def enlist(store: CampaignStore, at: float, host: str = "host-1", pid: int = 11) -> str:
    """A process that runs it from so many seconds after the beginning."""
    return store.enlist(Who(host, "there", pid, "1"), 2, BEGUN + at)


def search(
    store: CampaignStore,
    runner: str,
    number: int,
    at: float,
    met: Traces = (("full",),) * SHARD_TRACES,
    *,
    target: int = 0,
    seconds: float = 4.0,
    events: int = 100,
    kinds: Sequence[tuple[str, str, int]] = (),
    listed: Sequence[tuple[str, str, str, int]] = (),
    errors: Sequence[str] = (),
) -> None:
    """A shard that such a process ends so many seconds after the beginning."""
    about = store.targets[target]
    job = search_of(target, about.name, Cutting(store.plan, about.lanes).shard(number))
    together: Counter[tuple[str, str]] = Counter()
    for trace in met:
        together.update(combinations_with_replacement(sorted(set(trace)), 2))
    counts = Counter(state for trace in met for state in trace)
    place = {state: which for which, state in enumerate(sorted(counts))}
    outcome = SearchedShard(
        work=Work(len(met), events, 0, events),
        compared=None,
        resident_sum=0,
        illegal={},
        met=dict(counts),
        broken={contract: traces for contract, _, traces in kinds},
        kinds=list(kinds),
        breaks=[],
        errors=list(errors),
        listed=list(listed),
        together=sorted((place[one], place[two], n) for (one, two), n in together.items()),
    )
    _finish(store, runner, job, outcome, at, seconds, events)


def plant(
    store: CampaignStore, runner: str, at: float, found: Sequence[tuple[str, bool]], target: int = 0
) -> None:
    """Faults planted against contracts in the first lane, each found or not."""
    key = key_of(PLANT, store.targets[target].name, LANES[0], 0, len(found))
    job = ShardJob(key, target, PLANT, 0, LANES[0], 0, len(found))
    outcome = PlantedOutcome(
        [(Canary(contract, "leaks_a_slot"), is_found) for contract, is_found in found]
    )
    _finish(store, runner, job, outcome, at, 1.0, 0)


def _finish(
    store: CampaignStore,
    runner: str,
    job: ShardJob,
    outcome: outcomes.Outcome,
    at: float,
    seconds: float,
    events: int,
) -> None:
    store.add([job])
    while job.key not in {one.key for one in store.claim(runner, job.target, None, 1, BEGUN + at)}:
        pass
    text = outcomes.written(outcome)
    digest = outcomes.digest_of(outcome)
    failed = isinstance(outcome, SearchedShard) and outcome.errors
    ended = EndedJob(job, FAILED if failed else DONE, events, events, seconds, digest, text)
    store.finish(runner, [ended], BEGUN + at)


def early_release(traces: int) -> tuple[list[tuple[str, str, int]], Listed]:
    """What so many traces of that listed fault are to a shard: what they break, and that they are
    it."""
    return [("EC-6", "", traces)], [("EC-6", "", "early-release", traces)]


def small(place: Path | str, targets: Sequence[str] = ("vllm@0.33.0",)) -> CampaignStore:
    """Two processes, one of which dies; a pause; a listed fault and one that is not listed; a
    planted fault that is missed."""
    store = made(place, targets)
    first = enlist(store, 0.0)
    plant(store, first, 2.0, [("EC-1", True), ("EC-2", False)])
    common = ("full", "shared")
    for number in range(6):
        rare = ("eviction",) if number == 4 else ()
        kinds, listed = early_release(1 + number) if number % 2 else ([], [])
        met = [common, ("full", *rare)] * 2
        search(store, first, number, 10.0 + 5 * number, met, kinds=kinds, listed=listed)
    store.beat(first, 2, BEGUN + 40.0)
    late = ShardJob("search of nobody", 0, "search", 10_000, LANES[0], 0, 4)
    store.add([late])
    store.claim(first, 0, None, 1, BEGUN + 41.0)
    second = enlist(store, 1000.0, pid=12)
    for number in range(6, 9):
        kinds = [("EC-7", "order", 2)] if number == 8 else []
        search(store, second, number, 1005.0 + 5 * (number - 6), [common] * 4, kinds=kinds)
    store.leave(second, BEGUN + 1020.0)
    return store


def board(store: CampaignStore, place: Path | str = "findings", now: float = 2000.0) -> Board:
    """What there is to see of it so many seconds after the beginning."""
    return BoardReader(Path(place), lambda: BEGUN + now).read(store)


def as_older(store: CampaignStore) -> None:
    """Make of a store what an earlier cacheproof would have written."""
    from cacheproof.differential.search.campaigns.schema import JOBS, LOSSES

    with store.writing() as connection:
        LOSSES.drop(connection)
        for row in connection.execute(JOBS.select().where(JOBS.c.kind == "search")).all():
            outcome = msgspec.json.decode(row.outcome) if row.outcome else None
            if outcome is not None:
                del outcome["together"], outcome["listed"]
                text = msgspec.json.encode(outcome).decode()
                connection.execute(JOBS.update().where(JOBS.c.key == row.key), {"outcome": text})
