"""Records of real traces, right ones and some with a planted fault."""

import pytest

from cacheproof.reference.releases import NEWEST
from tests.differential.recording.driven import Driven, Run, long_trace, run_recorded, whole_traces

PLANTED = ("stops", "drops_what_is_encoded", "releases_ahead", "splits_items")
KEYFRAME_STEPS = 7


@pytest.fixture(scope="session")
def driven(tmp_path_factory: pytest.TempPathFactory) -> list[Driven]:
    """Records of the newest release: of each lane some, of requests that decode for long, and of
    these with each fault. Every few steps there is a keyframe."""
    long = long_trace(8)
    runs: list[Run] = [(trace, None) for trace in [*whole_traces(NEWEST, 2), long]]
    runs += [(long, fault) for fault in PLANTED]
    return run_recorded(NEWEST, runs, tmp_path_factory.mktemp("records"), KEYFRAME_STEPS)
