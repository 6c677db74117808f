"""Records of real traces, right ones and some with a planted fault."""

import pytest

from cacheproof.reference.releases import NEWEST
from tests.differential.recording.driven import Driven, run_recorded, whole_traces

PLANTED = ("stops", "drops_what_is_encoded", "releases_ahead")


@pytest.fixture(scope="session")
def driven(tmp_path_factory: pytest.TempPathFactory) -> list[Driven]:
    """Records of the newest release: of each lane one, and one of a scheduler with each fault."""
    right = [(trace, None) for trace in whole_traces(NEWEST, 2)]
    (trace, *_) = whole_traces(NEWEST, 1, ["scheduler with reused media ids"])
    planted = [(trace, fault) for fault in PLANTED]
    return run_recorded(NEWEST, [*right, *planted], tmp_path_factory.mktemp("records"))
