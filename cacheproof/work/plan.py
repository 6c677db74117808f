"""The extent of a search, and how the command line says it."""

import re
from dataclasses import dataclass, field
from typing import cast, get_args

from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.traces.trace import ModelRunner
from cacheproof.work.workplace import Workplace

SECONDS = 60.0


@dataclass(frozen=True)
class SearchPlan:
    """What a search covers: lanes, seeds, seconds, and whether the reference runs beside it.

    With seeds and seconds it ends with whichever is used up first, so that a search of every night
    can have fresh seeds.

    `seeds_at_once`: seeds that are searched at a time, after the first time only in lanes where a
    listed fault of the release was not met yet; None: all seeds in every lane.
    `shows_listed`: the seeds that show listed faults are run as well; `shrinks_listed`: what is
    listed is minimised too. `place`: where the work is done.
    """

    lanes: tuple[Lane, ...]
    seeds: range | None
    seconds: float | None
    with_reference: bool
    kept_per_break: int = 3
    seeds_at_once: int | None = None
    shows_listed: bool = False
    shrinks_listed: bool = False
    place: Workplace = field(default_factory=Workplace)

    @classmethod
    def parse(
        cls,
        depth: str | None,
        against: str,
        seconds: float | None,
        seeds: str | None,
        *,
        shrinks_listed: bool = False,
        runner: str | None = None,
        place: Workplace,
    ) -> "SearchPlan":
        """Read the command line's words. Raises InputError for words that mean nothing."""
        lanes = lanes_at(depth)
        if runner is not None:
            under = _runner(runner)
            lanes = tuple(one for one in (lane.under(under) for lane in lanes) if one.has_runner)
        if against not in ("reference", "none"):
            raise InputError(f"--against {against}: expected reference or none")
        if seeds is None and seconds is None:
            seconds = SECONDS
        return cls(
            lanes,
            seed_range(seeds),
            seconds,
            against == "reference",
            shrinks_listed=shrinks_listed,
            place=place,
        )


def lanes_at(depth: str | None) -> tuple[Lane, ...]:
    """The lanes of a depth; None: all. Raises InputError for a word that is no depth."""
    lanes = tuple(lane for lane in LANES.values() if depth in (None, lane.depth))
    if not lanes:
        depths = ", ".join(dict.fromkeys(lane.depth for lane in LANES.values()))
        raise InputError(f"--depth {depth}: expected one of {depths}")
    return lanes


def _runner(text: str) -> ModelRunner:
    runners = get_args(ModelRunner)
    if text not in runners:
        raise InputError(f"--runner {text}: expected {' or '.join(runners)}")
    return cast(ModelRunner, text)


def seed_range(text: str | None) -> range | None:
    """The seeds of A:B. Raises InputError for a text that is none."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text, re.ASCII)
    if match is None or int(match[1]) >= int(match[2]):
        raise InputError(f"--seeds {text}: expected A:B with A < B, such as 0:1000")
    return range(int(match[1]), int(match[2]))
