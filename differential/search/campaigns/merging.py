"""Merges two stores: a job that both have counts once, and must have one outcome."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, func, select

from cacheproof.differential.errors import InputError
from cacheproof.differential.search.campaigns import plan_file
from cacheproof.differential.search.campaigns.plan_file import (
    UNTIL_SEEDS,
    CampaignPlan,
    overlapping,
)
from cacheproof.differential.search.campaigns.schema import CAMPAIGN, JOBS, TARGETS
from cacheproof.differential.search.campaigns.shards import Cutting
from cacheproof.differential.search.campaigns.store import DONE, OPEN, REPLAY, SEARCH, CampaignStore

_AT_ONCE = 200
_CHANGED = "of_key"


@dataclass(frozen=True)
class Merged:
    """The outcome of a merge: the shards that are done, and how many of them both stores had."""

    where: str
    shards: int
    both: int


def merge_stores(first: str, second: str, into: str | None, now: float) -> Merged:
    """Put what two stores hold into a third, or into the first: all of it, or nothing.

    Raises:
        InputError: they are of different campaigns, somebody runs one, or a job that is done in
            both came to different things.
    """
    if _is_same(first, second):
        raise InputError(f"merge {first} {second}: one store; expected two")
    with closing(CampaignStore(first)) as one, closing(CampaignStore(second)) as other:
        for store in (one, other):
            _require_idle(store, now)
        _require_same_makers(one, other)
        plan = merged_plan(one, other)
        both = _require_same_outcomes(one, other)
        if into is None:
            shards = _absorb(one, [other], plan)
            return Merged(one.where, shards, both)
        begun = min(one.begun, other.begun)
        new = CampaignStore.create(into, plan, one.known, one.made_by, one.targets, begun)
        with closing(new):
            shards = _absorb(new, [one, other], plan)
            return Merged(new.where, shards, both)


def merged_plan(one: CampaignStore, other: CampaignStore) -> CampaignPlan:
    """A plan that covers both. Plans may differ in their seeds, where only seeds end them.

    Raises:
        InputError: they differ in something else, or in seeds that overlap.
    """
    for key in CampaignPlan.__struct_fields__:
        here, there = getattr(one.plan, key), getattr(other.plan, key)
        if key != "seeds" and here != there:
            raise _apart(one, other, f"key {key} of the plan", here, there)
    if one.plan.ranges == other.plan.ranges:
        return one.plan
    plan = one.plan
    if plan.events is not None or plan.until != UNTIL_SEEDS:
        raise InputError(
            f"merge {one.where} {other.where}: the seeds differ; expected the same, where events, "
            "findings or seconds end a search"
        )
    ranges = sorted(
        {*one.plan.ranges, *other.plan.ranges}, key=lambda some: (some.start, some.stop)
    )
    if overlap := overlapping(ranges):
        raise InputError(
            f"merge {one.where} {other.where}: seeds {overlap} overlap; expected ranges that are "
            "equal or apart"
        )
    return msgspec.structs.replace(plan, seeds=tuple(f"{r.start}:{r.stop}" for r in ranges))


def _is_same(first: str, second: str) -> bool:
    if "://" in first or "://" in second:
        return first == second
    return Path(first).resolve() == Path(second).resolve()


def _require_idle(store: CampaignStore, now: float) -> None:
    for runner in store.beating():
        if not runner.is_dead(now):
            raise InputError(
                f"--store {store.where}: process {runner.who.pid} on {runner.who.host} runs it; "
                "expected a store that nobody runs"
            )


def _require_same_makers(one: CampaignStore, other: CampaignStore) -> None:
    """Require that one cacheproof made both stores. Raises InputError."""
    made = {"cacheproof": "cacheproof", "code": "the digest of cacheproof's text"}
    for name, what in made.items():
        here, there = getattr(one.made_by, name), getattr(other.made_by, name)
        if here != there:
            raise _apart(one, other, what, here, there)
    if one.known != other.known:
        raise InputError(
            f"merge {one.where} {other.where}: their lists of known faults differ; expected one"
        )
    if one.jobs(REPLAY) != other.jobs(REPLAY):
        raise InputError(
            f"merge {one.where} {other.where}: the registers that they began with differ; expected "
            "one"
        )
    for about, its in zip(one.targets, other.targets, strict=False):
        for name in about.__struct_fields__:
            if (here := getattr(about, name)) != (there := getattr(its, name)):
                raise _apart(one, other, f"{name} of {about.name}", here, there)


def _apart(
    one: CampaignStore, other: CampaignStore, what: str, here: object, there: object
) -> InputError:
    return InputError(
        f"merge {one.where} {other.where}: {what} is {here} and {there}; expected the same"
    )


def _require_same_outcomes(one: CampaignStore, other: CampaignStore) -> int:
    """Require equal outcomes of jobs that both have done; returns how many shards are in both."""
    here, there = _digests(one), _digests(other)
    both = sorted(here.keys() & there.keys())
    for key in both:
        if here[key] != there[key]:
            raise InputError(
                f"merge {one.where} {other.where}: {key} came to {here[key][:12]} and to "
                f"{there[key][:12]}; expected the same: run it again with one worker each"
            )
    return sum(key.startswith(f"{SEARCH} ") for key in both)


def _digests(store: CampaignStore) -> dict[str, str]:
    with store.writing() as connection:
        rows = connection.execute(select(JOBS.c.key, JOBS.c.digest).where(JOBS.c.state == DONE))
        return {row.key: row.digest for row in rows}


def _absorb(into: CampaignStore, others: Sequence[CampaignStore], plan: CampaignPlan) -> int:
    """Put what others hold into a store, under that plan; returns how many shards are then done."""
    cuttings = [Cutting(plan, about.lanes) for about in into.targets]
    with into.writing() as connection:
        connection.execute(CAMPAIGN.update(), {"plan": plan_file.written(plan)})
        _renumber(connection, cuttings)
        for other in others:
            with other.writing() as source:
                _copy(connection, source, cuttings)
                _cut(connection, source, is_first=other is others[0] and len(others) > 1)
        return int(
            connection.scalar(
                select(func.count()).where(JOBS.c.kind == SEARCH, JOBS.c.state == DONE)
            )
            or 0
        )


def _renumber(connection: Connection, cuttings: Sequence[Cutting]) -> None:
    """Give shards the numbers that they have under a plan with more seeds."""
    rows = connection.execute(select(JOBS).where(JOBS.c.kind == SEARCH)).all()
    changed = [
        {_CHANGED: row.key, "number": number}
        for row in rows
        if (number := cuttings[row.target].number_of(row.lane, row.first)) != row.number
    ]
    if changed:
        connection.execute(JOBS.update().where(JOBS.c.key == bindparam(_CHANGED)), changed)


def _copy(into: Connection, source: Connection, cuttings: Sequence[Cutting]) -> None:
    """Copy the jobs that only the source has, or only the source has done."""
    here = {row.key: row.state for row in into.execute(select(JOBS.c.key, JOBS.c.state))}
    there = source.execute(select(JOBS.c.key, JOBS.c.state)).all()
    wanted = [
        row.key
        for row in there
        if row.key not in here or (row.state == DONE and here[row.key] != DONE)
    ]
    for first in range(0, len(wanted), _AT_ONCE):
        keys = wanted[first : first + _AT_ONCE]
        rows = source.execute(select(JOBS).where(JOBS.c.key.in_(keys))).mappings()
        into.execute(JOBS.delete().where(JOBS.c.key.in_(keys)))
        into.execute(JOBS.insert(), [_copied(row, cuttings) for row in rows])


def _copied(row: Any, cuttings: Sequence[Cutting]) -> dict[str, Any]:
    values = {**row, "runner": None}
    if values["kind"] == SEARCH:
        values["number"] = cuttings[row["target"]].number_of(row["lane"], row["first"])
    if values["state"] != DONE:
        values |= {"state": OPEN, "digest": None, "outcome": None, "ended": None}
    return values


def _cut(into: Connection, source: Connection, *, is_first: bool) -> None:
    """End searches that the clock ended in both stores where the longer one ended."""
    there = {row.number: row.cut for row in source.execute(select(TARGETS))}
    for row in into.execute(select(TARGETS)).all():
        cut = there[row.number]
        if not is_first:
            cut = None if None in (cut, row.cut) else max(cut, row.cut)
        into.execute(TARGETS.update().where(TARGETS.c.number == row.number), {"cut": cut})
