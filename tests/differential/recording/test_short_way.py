"""The short way to note a step says what the long way says."""

from pathlib import Path

import msgspec
import pytest

from cacheproof.differential.audit.streams import Numbered
from cacheproof.differential.provision import releases
from cacheproof.differential.recording.messages import Message, Scheduled
from cacheproof.differential.targets.host.faults.scheduler import SCHEDULER_FAULTS
from cacheproof.reference.releases import MODELLED, NEWEST
from cacheproof.spec.versions import Versions
from tests.differential.recording.driven import Run, long_trace, run_recorded, whole_traces
from tests.differential.recording.made import parts_of

INSTALLED = {release.version for release in releases.list_installed()}
OLDER = [
    pytest.param(release, marks=[pytest.mark.full])
    for release in MODELLED
    if release in INSTALLED and release != NEWEST and release in Versions(">=0.10.2")
]


def told(release: str, runs: list[Run], folder: Path, *, long_way: bool) -> list[list[Message]]:
    """What is recorded of each run, but for when it was."""
    folder.mkdir()
    return [
        [
            msgspec.structs.replace(part.message, time=0)
            for part in parts_of(*sorted(one.folder.iterdir()))
            if isinstance(part, Numbered) and hasattr(part.message, "time")
        ]
        for one in run_recorded(release, runs, folder, long_way=long_way)
    ]


@pytest.mark.full
@pytest.mark.parametrize("release", [NEWEST, *OLDER])
def test_a_step_is_told_alike_the_short_and_the_long_way(release: str, tmp_path: Path) -> None:
    traces = [*whole_traces(release, 1), long_trace(4)]
    runs: list[Run] = [(trace, None) for trace in traces]
    runs += [(long_trace(2), fault) for fault in SCHEDULER_FAULTS]
    short = told(release, runs, tmp_path / "short", long_way=False)
    assert short == told(release, runs, tmp_path / "long", long_way=True)
    steps = [one for messages in short for one in messages if isinstance(one, Scheduled)]
    steady = [one for one in steps if not (one.tokens or one.gone or one.rest)]
    assert 0 < len(steady) < len(steps)
