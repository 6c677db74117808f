"""Standalone tests of schedulers on real releases: red where found, green where mended, and before
the fault came."""

from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from cacheproof.differential.findings.finding import Finding, found_in
from cacheproof.differential.findings.finding_file import load
from cacheproof.differential.findings.standalone.writing import standalone_test, why_none
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics

NOT_MODELLED = ("cross-attention", "null-block", "session-length", "session-twice")


class Shown(NamedTuple):
    """A kept trace, where it breaks what, and what its test then fails with."""

    name: str
    release: str
    contract: str
    kind: str
    words: str


SHOWN = [
    Shown("orphan-load", "0.33.0", "WM-1", "", "AssertionError"),
    Shown("phantom-entry", "0.33.0", "WM-1", "", "AssertionError"),
    Shown("stripped-item", "0.33.0", "SC-9", "after a preemption", "AssertionError"),
    Shown("stripped-item-load", "0.33.0", "SC-9", "while it runs", "AssertionError"),
    Shown("stripped-item-session", "0.33.0", "SC-9", "after a preemption", "AssertionError"),
    Shown("uncomputed-hit", "0.33.0", "SC-15", "left by a preemption", "AssertionError"),
    Shown("no-progress", "0.33.0", "LV-1", "whole items", "AssertionError"),
    Shown("rolled-back-hit-repeat", "0.33.0", "SC-6", "while waiting", "AssertionError"),
    Shown("session-length", "0.33.0", "SC-17", "in a session", "AssertionError"),
    Shown("whole-item-before", "0.33.0", "SC-4", "", "AssertionError"),
    Shown("cross-attention", "0.33.0", "ED-1", "", "AssertionError"),
    Shown("kv-load-hit", "0.33.0", "KT-2", "", "AssertionError"),
    Shown("kv-load-delivered", "0.33.0", "KT-3", "", "AssertionError"),
    Shown("session-reset", "0.33.0", "SC-8", "RuntimeError in reset_prefix", "Failed to reset"),
    Shown("kv-load-reset", "0.33.0", "SC-8", "RuntimeError in reset_prefix", "Failed to reset"),
    Shown("kv-load-turn", "0.33.0", "SC-8", "AssertionError in update", "AssertionError"),
    Shown(
        "kv-load-turn-hit",
        "0.33.0",
        "SC-8",
        "AssertionError in schedule: a session waits",
        "AssertionError",
    ),
    Shown("kv-load-shared", "0.28.0", "SC-8", "AssertionError in schedule", "AssertionError"),
    Shown("session-placeholders", "0.28.0", "SC-8", "AssertionError in update", "AssertionError"),
    Shown(
        "session-drafts",
        "0.32.0",
        "SC-8",
        "AssertionError in schedule: a session waits",
        "AssertionError",
    ),
    Shown("session-twice", "0.22.1", "SC-8", "RuntimeError in schedule", "status: RUNNING"),
    Shown("null-block", "0.13.0", "SC-8", "AssertionError in update", "AssertionError"),
    Shown("cross-attention", "0.13.0", "SC-8", "ValueError in schedule", "Cannot get 1 free block"),
]
"""Among them connectors to encoder outputs and to KV, sessions, drafts, several groups, and an
encoder-decoder model."""


def target_of(name: str, release: str) -> Target:
    """The reference with that release's faults; the release where that does not model them."""
    if name in NOT_MODELLED:
        return resolve(f"vllm@{release}", report=print)
    return ReferenceTarget(Semantics.of_vllm(release), name=f"vllm@{release}", release=release)


def finding(
    name: str, release: str, contract: str, kind: str = "", *, runner: ModelRunner = "first"
) -> Finding:
    trace = load(kept_traces()[name])
    assert isinstance(trace, Trace)
    trace = trace.under_runner(runner)
    with closing(target_of(name, release)) as target:
        found = found_in(target, trace, contract, kind=kind, times=2, batches=2)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Shown], Path]:
    """Writes a finding's test, once."""
    folder = tmp_path_factory.mktemp("standalone")

    @cache
    def write(shown: Shown) -> Path:
        text = standalone_test(finding(*shown[:4]))
        assert text is not None
        assert "cacheproof" not in text
        assert all(len(line) <= 100 for line in text.splitlines())
        name = f"{shown.name}_{shown.contract}".replace("-", "_").lower()
        path = folder / f"test_{name}.py"
        path.write_text(text)
        return path

    return write


OTHERS = sorted({shown.release for shown in SHOWN} - {NEWEST})


@pytest.mark.full
@pytest.mark.parametrize(
    "release", [NEWEST, *(pytest.param(other, marks=pytest.mark.full) for other in OTHERS)]
)
def test_a_standalone_test_fails_where_it_was_found(
    source: Callable[[Shown], Path], verdicts: Any, release: str
) -> None:
    here = [shown for shown in SHOWN if shown.release == release]
    said = verdicts(release, [source(shown) for shown in here])
    for shown, words in zip(here, said, strict=True):
        assert shown.words in words, shown.name


@pytest.mark.full
def test_a_standalone_test_passes_where_it_is_mended(
    source: Callable[[Shown], Path], verdicts: Any
) -> None:
    mended = [source(shown) for shown in SHOWN if shown.release != NEWEST]
    assert verdicts(NEWEST, mended) == ["passes"] * len(mended)


@pytest.mark.full
def test_a_standalone_test_runs_under_the_second_model_runner(
    tmp_path: Path, verdicts: Any
) -> None:
    kind = "while it runs"
    source = standalone_test(finding("stripped-item-load", "0.32.0", "SC-9", kind, runner="second"))
    assert source is not None
    path = tmp_path / "test_second.py"
    path.write_text(source)
    assert verdicts("0.32.0", [path])[0].startswith("AssertionError")
    assert verdicts(NEWEST, [path]) == ["passes"]


@pytest.mark.full
def test_a_standalone_test_passes_before_the_fault_came(
    source: Callable[[Shown], Path], verdicts: Any
) -> None:
    before = [source(shown) for shown in SHOWN if shown.contract == "SC-9"]
    assert len(before) == 3
    assert verdicts("0.28.0", before) == ["passes"] * 3


@pytest.mark.parametrize(
    ("name", "release", "contract", "kind", "reason"),
    [
        ("overtaken", "0.13.0", "SC-7", "", "adapters are shown by their replay"),
        ("kv-load-freed-in-flight", "0.22.1", "KT-1", "", "no attribute shows it after the event"),
        ("drafter-miss", "0.22.1", "SC-2", "", "no attribute shows it after the event"),
        ("lost-budget", "0.33.0", "SC-12", "", "no attribute shows it after the event"),
    ],
)
def test_what_has_no_test_says_why_in_one_line(
    name: str, release: str, contract: str, kind: str, reason: str
) -> None:
    found = finding(name, release, contract, kind)
    assert standalone_test(found) is None
    assert why_none(found) == reason


@pytest.mark.parametrize(
    ("target", "is_shown"),
    [("mine:Manager@0.33.0", False), ("path:folder", True), ("vllm@0.33.0", True)],
)
def test_a_plug_in_has_no_test_in_a_scheduler(target: str, is_shown: bool) -> None:
    found = finding("phantom-entry", "0.33.0", "WM-1")
    named = msgspec.structs.replace(found, target=target)
    assert (standalone_test(named) is not None) is is_shown
