"""The media hashers of real releases, through host processes; provisions what is missing."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from cacheproof.differential.findings.finding import found_in
from cacheproof.differential.findings.finding_file import save
from cacheproof.differential.judges.examination import LOCKSTEP
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision import releases
from cacheproof.differential.search.canary import canaries_in, plant
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import may_be
from cacheproof.differential.search.seeded import SearchOutcome, search
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import hasher_beside, reference_for
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics
from tests.differential.targets.parameters import newest_and

OTHERS = ("0.10.2", "0.11.0", "0.13.0", "0.14.1", "0.15.1", "0.18.1", "0.28.0", "0.30.0", "0.32.0")
LANE = LANES["media hash"]
SEEDS = range(300)
FORMS = {"size of an image", "palette of an image", "shape of an array", "dtype of an array"}


Hosted = Callable[[str], AbstractContextManager[HostTarget]]


def lockstep(
    hosted: Hosted, version: str, semantics: Semantics, seeds: range = SEEDS
) -> SearchOutcome:
    """A release beside the reference with these semantics, in one environment."""
    with hosted(version) as real, closing(hasher_beside(real, semantics)) as hasher:
        reference = ReferenceTarget(semantics, media_hash=hasher)
        return search(real, [LANE], against=reference, seeds=seeds)


@pytest.mark.full
@pytest.mark.parametrize("version", newest_and(*OTHERS))
def test_a_release_has_the_digests_of_the_reference_and_breaks_what_is_listed(
    hosted: Hosted, version: str
) -> None:
    outcome = lockstep(hosted, version, Semantics.of_vllm(version))
    assert outcome.harness_errors == []
    assert outcome.broken[LOCKSTEP, LANE.name] == 0
    assert outcome.calls > 10 * len(SEEDS)
    alone = [(rule, kind) for rule, _, kind in outcome.kinds if " + image + " not in kind]
    known = load()
    unlisted = [one for one in alone if not may_be(known, *one, version, (LANE.name,))]
    assert unlisted == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("version", "before"),
    [("0.11.0", "0.10.2"), ("0.16.0", "0.15.1"), ("0.27.0", "0.18.1"), ("0.31.0", "0.30.0")],
)
def test_the_semantics_of_the_release_before_a_change_part(
    hosted: Hosted, version: str, before: str
) -> None:
    assert lockstep(hosted, before, Semantics.of_vllm(version)).broken[LOCKSTEP, LANE.name] > 0


@pytest.mark.full
def test_sound_semantics_part_from_the_newest_release_where_it_collides(hosted: Hosted) -> None:
    outcome = lockstep(hosted, NEWEST, Semantics.ideal(), range(50))
    assert outcome.broken[LOCKSTEP, LANE.name] == 50


@pytest.mark.full
def test_the_ideal_reference_keeps_every_contract_beside_torch(newest: HostTarget) -> None:
    with closing(hasher_beside(newest, Semantics.ideal())) as hasher:
        outcome = search(hasher, [LANE], against=None, seeds=SEEDS)
    assert outcome.kinds == Counter()
    assert outcome.lanes[0].never_met == []


@pytest.mark.full
def test_two_processes_agree(newest: HostTarget) -> None:
    with closing(newest.another()) as other:
        traces = [LANE.trace(seed, NEWEST) for seed in range(50)]
        assert newest.run(traces) == other.run(traces)


@pytest.mark.full
def test_the_public_collision_is_found_in_its_release_and_not_after_its_fix(
    hosted: Hosted,
) -> None:
    found = {}
    for version in ("0.8.5", "0.9.0.1"):
        with hosted(version) as target:
            outcome = search(target, [LANE], against=None, seeds=SEEDS)
        found[version] = {kind for rule, _, kind in outcome.kinds if rule == "MH-3a"}
        assert outcome.lanes[0].reach.met["another form over the same bytes"] >= 100
    assert found["0.8.5"] >= FORMS
    assert found["0.9.0.1"] == set()


@pytest.mark.parametrize("version", newest_and("0.8.5"))
def test_planted_faults_are_found_beside_the_faults_of_the_release(
    hosted: Hosted, version: str
) -> None:
    with hosted(version) as target:
        outcome = search(target, [LANE], against=None, seeds=range(60))
        worth = canaries_in(LANE, target, outcome.kinds.keys())
        assert all(plant(worth, target, LANE).values())


@pytest.mark.full
def test_a_release_before_the_other_depths_runs_this_one_alone(hosted: Hosted) -> None:
    with hosted("0.8.5") as target:
        assert [lane.name for lane in LANES.values() if target.runs_depth(lane.depth)] == [
            LANE.name
        ]
        assert reference_for(target) is None


@pytest.mark.full
def test_an_algorithm_that_a_release_lacks_is_refused_by_name(hosted: Hosted) -> None:
    with hosted("0.9.0.1") as target:
        result = target.run([LANE.trace(3, None)])[0]
    assert result.illegal == "this release hashes media with blake3 alone, not sha256"


@pytest.mark.full
def test_what_is_found_is_shrunk_to_the_two_values_and_fails_as_a_test_of_its_own(
    newest: HostTarget, tmp_path: Path
) -> None:
    """Every kind that the newest release breaks: two calls, or one that is made twice."""
    with closing(newest.another()) as elsewhere:
        outcome = search(newest, [LANE], against=None, seeds=range(50), kept_per_break=1)
        tests = []
        for broken in outcome.breaks:
            one = found_in(
                newest, broken.trace, broken.contract, kind=broken.kind, elsewhere=elsewhere
            )
            assert one is not None
            assert set(one.kind.split(" + ")) <= set(broken.kind.split(" + "))
            assert len(one.events) == (1 if one.kind == "huge int" else 2)
            tests += [path for path in save(one, tmp_path) if path.suffix == ".py"]
    assert len(tests) >= len({(broken.contract, broken.kind) for broken in outcome.breaks}) - 1
    assert ran(tests) == {path.name: False for path in tests}


def ran(tests: list[Path]) -> dict[str, bool]:
    """Whether each file's test passes in the interpreter of the newest release."""
    command, environment = releases.host_command(releases.install(NEWEST, report=print))
    told = subprocess.run(
        [*command, "-P", "-c", RUN, *map(str, tests)], env=environment, stdout=subprocess.PIPE,
        text=True, check=True,
    ).stdout  # fmt: skip
    passes: dict[str, bool] = json.loads(told.splitlines()[-1])
    return passes


RUN = """
import json, os, pathlib, runpy, sys
class Patch:
    def setenv(self, name, value): os.environ[name] = value
before, passes = dict(os.environ), {}
for path in map(pathlib.Path, sys.argv[1:]):
    names = runpy.run_path(str(path))
    [test] = [names[name] for name in names if name.startswith("test_")]
    try:
        test(Patch())
        passes[path.name] = True
    except AssertionError:
        passes[path.name] = False
    os.environ.clear()
    os.environ.update(before)
print(json.dumps(passes))
"""
