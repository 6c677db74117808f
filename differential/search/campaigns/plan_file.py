"""The plan of a campaign, as a TOML file has it: docs/how-to/campaigns.md describes every key."""

import itertools
import math
import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import msgspec
from msgspec import Meta

from cacheproof.differential import files
from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.search.known import SEEDS

BYTES_MAX = 1 << 20
SHARD_SEEDS = 20
UNTIL_SEEDS = "seeds"
FIRST_UNLISTED = "first-unlisted"
_RANGE = re.compile(r"(\d{1,9}):(\d{1,9})", re.ASCII)
_KEY = re.compile(r"(?P<reason>.*?) - at `\$\.?(?P<key>[^`]*)`", re.DOTALL)


class CampaignPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a campaign covers, and what ends it, for each target by itself.

    `seeds` are ranges A:B of every lane; without any there is no limit. `depths` and `lanes` narrow
    the lanes. With `events` a target's search ends with the shard that reaches that number. `until`
    is what else ends it: its seeds, the first shard with an unlisted break, or seconds of search,
    summed over workers.
    """

    targets: Annotated[tuple[str, ...], Meta(min_length=1)]
    depths: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()
    seeds: str | tuple[str, ...] = ()
    events: Annotated[int, Meta(ge=1)] | None = None
    shard_seeds: Annotated[int, Meta(ge=1, le=100_000)] = SHARD_SEEDS
    reference: bool = True
    shrink_listed: bool = False
    until: Literal["seeds", "first-unlisted"] | float = "seeds"

    @property
    def ranges(self) -> list[range]:
        """Ranges of the seeds; all seeds where the plan names none."""
        texts = [self.seeds] if isinstance(self.seeds, str) else self.seeds
        found = [_RANGE.fullmatch(text) for text in texts]
        return [range(int(one[1]), int(one[2])) for one in found if one] or [range(SEEDS)]

    @property
    def has_seeds(self) -> bool:
        """Whether the seeds are limited."""
        return bool(self.seeds)

    @property
    def seconds(self) -> float | None:
        """Seconds of search after which a target's search ends; None where time does not end it."""
        return None if isinstance(self.until, str) else float(self.until)

    @property
    def chosen(self) -> tuple[Lane, ...]:
        """The lanes, in the order in which searches take turns."""
        return tuple(
            lane
            for lane in LANES.values()
            if (not self.depths or lane.depth in self.depths)
            and (not self.lanes or lane.name in self.lanes)
        )


_DECODER = msgspec.json.Decoder(CampaignPlan)


def load(path: Path) -> CampaignPlan:
    """Read a plan.

    Raises:
        InputError: the file cannot be read or is no plan; names the key and what was expected.
    """
    try:
        raw = tomllib.loads(files.read(path, BYTES_MAX).decode())
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; expected the plan of a campaign"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: {(str(error).splitlines() or ['nested too deeply'])[0]}; expected a plan in "
            "TOML, see docs/how-to/campaigns.md"
        ) from None
    for key in raw:
        if key not in CampaignPlan.__struct_fields__:
            _refuse(path, key, f"unknown; expected one of {', '.join(_KEYS)}")
    try:
        plan = msgspec.convert(raw, CampaignPlan)
    except msgspec.ValidationError as error:
        found = _KEY.fullmatch(str(error))
        if found is None:
            raise InputError(f"{path}: {error}; see docs/how-to/campaigns.md") from None
        _refuse(path, found["key"], f"{found['reason']}; see docs/how-to/campaigns.md")
    _check(path, plan)
    return plan


_KEYS = CampaignPlan.__struct_fields__


def restored(text: str) -> CampaignPlan:
    """A plan that `written` wrote. Raises msgspec.MsgspecError where it is none."""
    return _DECODER.decode(text)


def written(plan: CampaignPlan) -> str:
    """A plan as a store keeps it."""
    return msgspec.json.encode(plan).decode()


def _refuse(path: Path, key: str, reason: str) -> NoReturn:
    raise InputError(f"{path}: key {key}: {reason}")


def _check(path: Path, plan: CampaignPlan) -> None:
    """Refuse what types do not rule out. Raises InputError."""
    if len(set(plan.targets)) < len(plan.targets):
        _refuse(path, "targets", "one is named twice; expected each once")
    depths = dict.fromkeys(lane.depth for lane in LANES.values())
    for depth in plan.depths:
        if depth not in depths:
            _refuse(path, "depths", f"{depth!r} is no depth; expected some of {', '.join(depths)}")
    for lane in plan.lanes:
        if lane not in LANES:
            _refuse(path, "lanes", f"{lane!r} is no lane; expected some of {', '.join(LANES)}")
    if not plan.chosen:
        _refuse(path, "lanes", "none is at the depths of the plan; expected one that is")
    _check_seeds(path, plan)
    if plan.seconds is not None and not (math.isfinite(plan.seconds) and plan.seconds > 0):
        _refuse(path, "until", f"{plan.until}; expected {UNTIL_SEEDS}, {FIRST_UNLISTED} or seconds")
    if plan.until == UNTIL_SEEDS and not plan.has_seeds and plan.events is None:
        _refuse(path, "seeds", "missing; expected seeds A:B, events, or seconds as `until`")


def _check_seeds(path: Path, plan: CampaignPlan) -> None:
    texts = [plan.seeds] if isinstance(plan.seeds, str) else plan.seeds
    for text in texts:
        found = _RANGE.fullmatch(text)
        if found is None or int(found[1]) >= int(found[2]):
            _refuse(path, "seeds", f"{text!r}; expected A:B with A < B, such as 0:1000")
    if both := overlapping(plan.ranges):
        _refuse(path, "seeds", f"{both} overlap; expected ranges apart from each other")


def overlapping(ranges: list[range]) -> str:
    """The first two ranges that have seeds in common, in words; empty where none have."""
    ordered = sorted(ranges, key=lambda one: (one.start, one.stop))
    for one, other in itertools.pairwise(ordered):
        if other.start < one.stop:
            return f"{one.start}:{one.stop} and {other.start}:{other.stop}"
    return ""
