"""Hosts of a release with faults mended that are forks of the release's own process."""

from contextlib import closing

import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host_server import FORKS
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.texts import mends
from cacheproof.differential.traces.records import TraceResult
from cacheproof.reference.releases import NEWEST
from tests.differential.targets.processes import parent_of

pytestmark = pytest.mark.skipif(not FORKS, reason="nothing is forked on this system")

CONNECTORS = [
    name
    for name in mends.mended_in(NEWEST)
    if any("ec_connector" in module for module in mends.modules_of([name], NEWEST))
]
"""Faults in modules of connectors, which a host imports with the first trace that has some."""
LANE_NAMES = ("connectors on a disk", "connectors in memory")
SEEDS = range(25)


def outcomes(target: HostTarget) -> list[TraceResult]:
    """What it makes of the traces; names of files outside a store are drawn."""
    found = []
    for name in LANE_NAMES:
        for result in target.run([LANES[name].make(seed) for seed in SEEDS]):
            for record in result.records:
                if isinstance(record.outcome, dict):
                    record.outcome.pop("outside", None)
            found.append(result)
    return found


def is_near(one: HostTarget, other: HostTarget) -> bool:
    """Whether a host's server is a fork of the other's."""
    assert one._server is not None
    assert other._server is not None
    assert one._process is not None
    assert other._process is not None
    server, its_own = (parent_of(host._process.pid) for host in (other, one))
    return parent_of(its_own) == server


@pytest.fixture(scope="module")
def release() -> list[TraceResult]:
    """What the release itself makes of the traces."""
    with closing(resolve(f"vllm@{NEWEST}", report=print)) as target:
        assert isinstance(target, HostTarget)
        return outcomes(target)


@pytest.mark.full
@pytest.mark.parametrize("fault", CONNECTORS)
def test_a_fork_of_the_releases_process_has_the_mended_text(
    fault: str, release: list[TraceResult]
) -> None:
    modules = mends.modules_of([fault], NEWEST)
    with (
        closing(resolve(f"vllm@{NEWEST}", report=print)) as near,
        closing(resolve(f"vllm@{NEWEST}+mended:{fault}", report=print)) as target,
        closing(target.another()) as alone,
    ):
        assert isinstance(near, HostTarget)
        assert isinstance(target, HostTarget)
        assert isinstance(alone, HostTarget)
        assert near.hello
        target.fork_near(near, modules)
        seen = outcomes(target)
        assert seen == outcomes(alone) != release
        # the module of a scheduler is imported at once
        assert is_near(target, near) == ("vllm.v1.core.sched.scheduler" not in modules)
        assert not is_near(alone, near)
