"""A plan is read whole, or refused in one line that names the key."""

from pathlib import Path

import pytest

from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.campaigns import plan_file
from cacheproof.differential.search.campaigns.plan_file import CampaignPlan
from cacheproof.differential.search.campaigns.shards import Cutting

TARGETS = 'targets = ["reference"]\n'
SEEDS = TARGETS + 'seeds = "0:5"\n'


def load(tmp_path: Path, text: str) -> CampaignPlan:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return plan_file.load(path)


def test_every_key_is_read(tmp_path: Path) -> None:
    plan = load(
        tmp_path,
        'targets = ["reference", "vllm@0.33.0"]\ndepths = ["manager"]\n'
        'lanes = ["encoder cache", "scheduler"]\nseeds = ["0:5", "7:9"]\nevents = 10\n'
        'shard_seeds = 3\nreference = false\nshrink_listed = true\nuntil = "first-unlisted"\n',
    )
    assert [lane.name for lane in plan.chosen] == ["encoder cache"]
    assert plan.ranges == [range(5), range(7, 9)]
    assert plan_file.restored(plan_file.written(plan)) == plan


def test_without_lanes_and_depths_all_are_searched(tmp_path: Path) -> None:
    assert plan_chosen(load(tmp_path, SEEDS)) == list(LANES)


def plan_chosen(plan: CampaignPlan) -> list[str]:
    return [lane.name for lane in plan.chosen]


@pytest.mark.parametrize("until", ["60", "60.5"])
def test_seconds_end_a_search(tmp_path: Path, until: str) -> None:
    assert load(tmp_path, f"{TARGETS}until = {until}\n").seconds == float(until)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("targets = [", "expected a plan in TOML"),
        ("\x00", "expected a plan in TOML"),
        ("", "missing required field `targets`"),
        ("targets = []", "key targets: "),
        ("targets = 5", "key targets: Expected `array`"),
        ('targets = ["a", "a"]\nseeds = "0:5"', "key targets: one is named twice"),
        (TARGETS, "key seeds: missing; expected seeds A:B"),
        (f"{SEEDS}sead = 5", "key sead: unknown; expected one of targets"),
        (f'{TARGETS}seeds = "5"', "key seeds: '5'; expected A:B with A < B"),
        (f'{TARGETS}seeds = "5:5"', "key seeds: '5:5'; expected A:B with A < B"),
        (f'{TARGETS}seeds = ["0:5", "4:9"]', "key seeds: 0:5 and 4:9 overlap"),
        (f"{TARGETS}seeds = 5", "key seeds: Expected"),
        (f'{SEEDS}depths = ["deep"]', "key depths: 'deep' is no depth; expected some of manager"),
        (f'{SEEDS}lanes = ["fast"]', "key lanes: 'fast' is no lane; expected some of encoder"),
        (f'{SEEDS}depths = ["engine"]\nlanes = ["encoder cache"]', "key lanes: none is at"),
        (f"{SEEDS}events = 0", "key events: Expected `int` >= 1"),
        (f'{SEEDS}events = "5"', "key events: Expected `int | null`"),
        (f"{SEEDS}shard_seeds = 0", "key shard_seeds: Expected `int` >= 1"),
        (f"{SEEDS}reference = 1", "key reference: Expected `bool`"),
        (f'{SEEDS}until = "later"', "key until: "),
        (f"{SEEDS}until = 0", "key until: 0.0; expected seeds, first-unlisted or seconds"),
        (f"{SEEDS}until = nan", "key until: nan; expected"),
        (f"{SEEDS}until = inf", "key until: inf; expected"),
        (f"{SEEDS}until = true", "key until: Expected"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        load(tmp_path, text)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(str(tmp_path / "plan.toml"))
    assert words in line


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        plan_file.load(tmp_path / "nothing.toml")


def test_shards_are_the_seeds_of_every_lane_once() -> None:
    plan = CampaignPlan(targets=("reference",), seeds=("0:7", "20:23"), shard_seeds=3)
    cutting = Cutting(plan, ("a", "b"))
    shards = cutting.shards(0, 1000)
    assert len(shards) == cutting.total == 8
    for lane in ("a", "b"):
        seeds = [seed for shard in shards if shard.lane == lane for seed in shard.seeds]
        assert seeds == [*range(7), 20, 21, 22]
    for shard in shards:
        assert cutting.number_of(shard.lane, shard.seeds.start) == shard.number
    with pytest.raises(IndexError):
        cutting.shard(8)
    with pytest.raises(ValueError, match="9"):
        cutting.number_of("a", 9)
