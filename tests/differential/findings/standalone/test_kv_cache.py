"""Standalone tests of KV blocks on real releases: red where found, green where mended."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.findings.finding import LOCKSTEP, found_in
from cacheproof.differential.findings.standalone.writing import standalone_test, why_none
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.base import SCHEMA
from cacheproof.differential.traces.kv_cache import (
    Arrive,
    CommonPrefix,
    End,
    KVCacheConfig,
    KVCacheGroup,
    KVCacheHeader,
    Output,
    Slots,
    TakeEvents,
)
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics
from tests.differential.findings.standalone.files import written

pytestmark = pytest.mark.full

ALL = 100


def trace(
    groups: tuple[KVCacheGroup, ...], num_blocks: int, *events: AnyEvent, **more: Any
) -> Trace:
    config = KVCacheConfig(num_blocks, groups, max_model_len=14, max_in_flight_tokens=1, **more)
    return Trace(KVCacheHeader(SCHEMA, config), events)


TRACES = {
    ("0.28.0", "KV-10"): trace(
        (KVCacheGroup("full", 2), KVCacheGroup("sliding_window", 2, 9)),
        7,
        Arrive("a", ((0, 2),)),
        Arrive("b", ((1000, 1),)),
        Arrive("c", ((0, 3),)),
        Slots("a", ALL),
        Slots("b", ALL),
        Slots("c", ALL),
        End("a", defer=True),
        CommonPrefix("c"),
    ),
    ("0.28.0", "KV-12"): trace(
        (KVCacheGroup("full", 1), KVCacheGroup("sliding_window", 1, 1)),
        3,
        Arrive("a", ((0, 1),)),
        Slots("a", ALL, external=1, delay=True),
    ),
    ("0.28.0", "BP-6"): trace(
        (KVCacheGroup("full", 9), KVCacheGroup("sliding_window", 3, 6)),
        6,
        Arrive("a", ((0, 9),)),
        Slots("a", ALL),
        TakeEvents(),
        kv_events=True,
    ),
    ("0.18.1", "KV-3"): trace(
        (KVCacheGroup("full", 6), KVCacheGroup("sliding_window", 2, 4)),
        9,
        Arrive("a", ((0, 12),)),
        Arrive("b", ((0, 13),)),
        Slots("a", ALL),
        Slots("b", 1),
        use_eagle=True,
    ),
    ("0.18.1", "KV-5"): trace(
        (KVCacheGroup("full", 2), KVCacheGroup("sliding_window", 2, 2)),
        7,
        Arrive("a", ((2000, 1),)),
        Slots("a", ALL),
        Slots("a", 4, drafts=3),
        Output("a"),
        Slots("a", 1),
        Output("a", first=50000),
        Slots("a", 1),
        async_scheduling=True,
    ),
}
"""Traces that break a contract on a release."""
UNMENDED = ("KV-12", "BP-6")


@contextmanager
def target_of(release: str, contract: str) -> Iterator[Target]:
    """The reference with that release's faults; the release where that does not model them."""
    if contract == "KV-3":
        with closing(resolve(f"vllm@{release}", report=print)) as target:
            yield target
    else:
        yield ReferenceTarget(
            Semantics.of_vllm(release), name=f"reference@{release}", release=release
        )


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    folder = tmp_path_factory.mktemp("standalone")
    files = {}
    for number, ((release, contract), shown) in enumerate(TRACES.items()):
        with target_of(release, contract) as target:
            found = found_in(target, shown, contract, times=2)
        files[release, contract] = written(found, folder / f"test_{number}.py")
    return files


@pytest.mark.parametrize("release", ["0.18.1", "0.28.0"])
def test_a_standalone_test_fails_where_it_was_found(
    sources: dict[tuple[str, str], Path], verdicts: Any, release: str
) -> None:
    files = [path for (found_on, _), path in sources.items() if found_on == release]
    assert [word(one) for one in verdicts(release, files)] == ["AssertionError"] * len(files)


def test_a_standalone_test_passes_where_it_is_mended(
    sources: dict[tuple[str, str], Path], verdicts: Any
) -> None:
    files = list(sources.values())
    expected = ["AssertionError" if contract in UNMENDED else "passes" for _, contract in sources]
    assert [word(one) for one in verdicts(NEWEST, files)] == expected


def word(verdict: str) -> str:
    """A verdict without what the assertion says."""
    return verdict.partition(":")[0]


def test_what_only_a_replay_compares_has_none_and_says_so() -> None:
    with target_of("0.28.0", "BP-6") as target:
        found = found_in(target, TRACES["0.28.0", "BP-6"], LOCKSTEP, ReferenceTarget())
    assert found is not None
    assert standalone_test(found) is None
    assert why_none(found) == "what this rule compares is shown by its replay"
