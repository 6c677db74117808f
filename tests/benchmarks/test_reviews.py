"""Changes whose worth is known: an edit that fits once, and reviews that tell right from wrong."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.reference.semantics import Semantics

SOURCE = (
    "def pick(some):\n    name = 'ü'; return max(some, key=abs)\n\n\ndef other():\n    return 1\n"
)


def edit(script: Any, expression: str) -> Any:
    return script.Edit("a.py", "pick", expression, "some[0]")


def test_an_expression_of_a_function_is_replaced(script: Any) -> None:
    found = script.edited(SOURCE, edit(script, "max(some, key=abs)"))
    assert found == SOURCE.replace("max(some, key=abs)", "some[0]")


@pytest.mark.parametrize(("expression", "times"), [("1", 0), ("min(some)", 0)])
def test_an_edit_that_does_not_fit_once_is_refused(
    script: Any, expression: str, times: int
) -> None:
    with pytest.raises(ValueError, match=f"{times} times, not once"):
        script.edited(SOURCE, edit(script, expression))


def test_an_edit_that_fits_twice_is_refused(script: Any) -> None:
    twice = SOURCE.replace("'ü'", "max(some, key=abs)")
    with pytest.raises(ValueError, match="2 times, not once"):
        script.edited(twice, edit(script, "max(some, key=abs)"))


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
        ("phantom-entry, mended", {"WM-1", "WM-2"}, SPENT),
        ("phantom-entry, evicted alone", set(), SPENT),
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


SHOWING = {
    "scheduler": (99, 205, 605),
    "scheduler with loads": (2, 70, 90),
    "scheduler with KV loads": (7607,),
}
"""Seeds on which 0.33.0 has one of the two faults, beside the first of each lane."""


@pytest.mark.full
@pytest.mark.parametrize(
    ("mend", "flag", "gone"),
    [
        ("phantom-entry, mended", "scheduler.hands_on_encodes", {"WM-1", "WM-2"}),
        ("stripped-item, mended", "scheduler.sends_all_items", {"SC-9"}),
    ],
)
def test_a_flag_says_what_a_release_decides_once_its_fault_is_mended(
    script: Any, tmp_path: Path, mend: str, flag: str, gone: set[str]
) -> None:
    (change,) = (one for one in script.CHANGES if one.name == mend)
    script.write_copy(change, tmp_path / "copy")
    own = Semantics.of_vllm("0.33.0")
    released = ReferenceTarget(own, release="0.33.0")
    differing: dict[str, list[bool]] = {"with it": [], "without": []}
    broken: dict[str, set[str]] = {"mended": set(), "released": set()}
    with closing(resolve(f"path:{tmp_path / 'copy'}", report=print)) as mended:
        for lane in (one for one in LANES.values() if one.depth == "scheduler"):
            for seed in (*range(15), *SHOWING.get(lane.name, ())):
                trace = lane.trace(seed, "0.33.0")
                (result,) = mended.run([trace])
                for which, semantics in (("with it", own.changed({flag: True})), ("without", own)):
                    reference = ReferenceTarget(semantics, mended.protocol, release="0.33.0")
                    seen = examine(trace, result, mended, reference)
                    assert seen.compared
                    differing[which].append(seen.difference is not None)
                broken["mended"] |= set(seen.violations)
                broken["released"] |= set(
                    examine(trace, released.run([trace])[0], released).violations
                )
    assert not any(differing["with it"])
    assert any(differing["without"])  # red twin: the traces tell the two apart
    assert broken["released"] - broken["mended"] >= gone
