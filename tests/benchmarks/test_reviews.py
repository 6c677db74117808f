"""Changes whose worth is known: reviews tell right from wrong."""

from pathlib import Path
from typing import Any

import pytest


def test_a_row_names_faults_with_their_contracts(script: Any) -> None:
    tally = {"fault": "phantom-entry", "contract": "WM-1"}
    said = {
        "exit_code": 4,
        "parted": 3,
        "traces": 1000,
        "mended": [tally, {**tally, "contract": "WM-2"}],
        "brought": [{"fault": None, "contract": "SC-10"}],
        "proofs": {"classes": [], "changes": [], "proved_on_both": 0},
    }
    assert script.row("a change", said) == (
        "| a change | 4 | 3 of 1,000 | phantom-entry (WM-1 WM-2) | not listed (SC-10) | "
        "read alike |"
    )


def review_of(script: Any, name: str, folder: Path, *, depth: str) -> Any:
    """What the review of a change says, of a few traces."""
    (change,) = (one for one in script.CHANGES if one.name == name)
    script.write_copy(change, folder / "copy")
    return script.reviewed(
        "vllm@0.33.0", f"path:{folder / 'copy'}", folder, name,
        "--depth", depth, "--seeds", "0:1", "--workers", "1",
    )  # fmt: skip


SPENT = {"SC-12"}
"""What a change breaks that leaves a victim's encoder budget spent: that costs efficiency alone."""


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "mended", "brought"),
    [
        ("phantom-entry, mended", {"WM-1", "WM-2"}, set()),
        ("phantom-entry, evicted alone", set(), set()),
        (
            "phantom-entry, encode kept",
            {"WM-1", "WM-2"},
            {*SPENT, "EC-9", "SC-10", "WM-1", "WM-3", "WM-4"},
        ),
        ("phantom-entry, another victim", {"WM-1", "WM-2"}, {"SC-13"}),
        ("stripped-item, mended", {"SC-9"}, set()),
        ("stripped-item, after a preemption", set(), set()),
    ],
)
def test_a_review_tells_a_mend_from_one_that_is_wrong(
    script: Any, tmp_path: Path, name: str, mended: set[str], brought: set[str]
) -> None:
    said = review_of(script, name, tmp_path, depth="scheduler")
    assert said["exit_code"] in ((1,) if brought - SPENT else (0, 4))
    assert mended <= {one["contract"] for one in said["mended"]}
    assert {one["contract"] for one in said["brought"]} == brought
    assert mended or not said["mended"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "code", "lost"),
    [("a manager, put otherwise", 0, 0), ("a manager, off by one", 1, 1)],
)
def test_a_review_tells_what_is_no_longer_proved(
    script: Any, tmp_path: Path, name: str, code: int, lost: int
) -> None:
    said = review_of(script, name, tmp_path, depth="manager")
    gone = [one for one in said["proofs"]["changes"] if one["base"] == "holds"]
    assert said["proofs"]["classes"] == ["EncoderCacheManager"]
    assert (len(gone) >= 1) == bool(lost)
    assert said["exit_code"] == code
