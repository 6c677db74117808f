"""What the recorder leaves unread is as it was; each shortcut has a twin that is broken on purpose."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cacheproof.differential.audit.streams import Numbered
from cacheproof.differential.recording.messages import KVCalls, Message, Scheduled
from cacheproof.reference.releases import NEWEST
from tests.differential.recording.driven import Break, Run, long_trace, run_recorded, whole_traces
from tests.differential.recording.made import parts_of

QUIET: Break = ("engine", "", "is_quiet", True)
COMPARED: Break = ("ledger", "ManagerRecorder", "_compare", None)
AS_BEFORE: Break = ("kv_reading", "ManagerReader", "_is_as_before", True)
ALIKE: Break = ("kv_reading", "", "_alike", 0)


def told(runs: list[Run], folder: Path, **job: Any) -> list[list[Message]]:
    """What is recorded of each run, but for when it was."""
    folder.mkdir()
    return [
        [
            msgspec.structs.replace(part.message, **dict.fromkeys(["time"] * named, 0))
            for part in parts_of(*sorted(one.folder.iterdir()))
            if isinstance(part, Numbered)
            and ((named := hasattr(part.message, "time")) or isinstance(part.message, KVCalls))
        ]
        for one in run_recorded(NEWEST, runs, folder, **job)
    ]


def test_a_step_that_says_more_than_tokens_is_noted_the_long_way(tmp_path: Path) -> None:
    runs: list[Run] = [(long_trace(4), None)]
    right = told(runs, tmp_path / "right")
    assert right == told(runs, tmp_path / "long", long_way=True)
    blind = told(runs, tmp_path / "blind", breaks=QUIET)
    assert blind != right
    assert sum(bool(one.finished) for one in blind[0] if isinstance(one, Scheduled)) < sum(
        bool(one.finished) for one in right[0] if isinstance(one, Scheduled)
    )


def test_what_changes_beside_the_entries_of_a_call_is_told_in_the_same_record(
    tmp_path: Path,
) -> None:
    runs: list[Run] = [(long_trace(4), "gives_back_in_reverse")]
    right, blind = told(runs, tmp_path / "right"), told(runs, tmp_path / "blind", breaks=COMPARED)
    assert right != blind
