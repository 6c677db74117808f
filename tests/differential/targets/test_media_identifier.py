"""Names that real releases give to items, beside those of the reference."""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import fields

import pytest

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.host.faults.media_identifier import MEDIA_IDENTIFIER_FAULTS
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.resolve import reference_for
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.media import MediaSemantics
from tests.differential.targets.parameters import newest_and
from tests.differential.targets.searched import breaks_in, new_among

LANE = LANES["media identifier"]
SEEDS = range(60)
Hosted = Callable[[str], AbstractContextManager[HostTarget]]


@pytest.mark.parametrize("version", newest_and(*MODELLED[:-1]))
def test_a_release_names_items_as_the_reference_and_breaks_what_is_listed(
    hosted: Hosted, version: str
) -> None:
    with hosted(version) as real:
        breaks = breaks_in(real, SEEDS, [LANE])
    assert new_among(breaks) == []
    assert {"ID-1", "ID-2"} <= {contract for contract, *_ in breaks}


@pytest.mark.parametrize("fault", sorted(MEDIA_IDENTIFIER_FAULTS.keys() - {"nothing"}))
def test_a_planted_fault_is_a_difference(hosted: Hosted, fault: str) -> None:
    """Whatever else the release breaks: the reference beside it has not the fault."""
    with hosted("0.33.0") as real:
        reference = reference_for(real)
        assert reference is not None
        with closing(reference):
            traces = [LANE.trace(seed, real.model) for seed in SEEDS]
            planted = zip(traces, real.run(traces, fault), strict=True)
            found = [examine(trace, run, real, reference).difference for trace, run in planted]
    assert any(found)


NAMING = [
    one.name
    for one in fields(MediaSemantics)
    if one.metadata["change"].function.startswith(
        ("BaseR", "InputProcessor", "MultiModalData", "ProcessorInputs")
    )
]


@pytest.mark.parametrize("flag", NAMING)
def test_each_flag_of_names_changes_what_is_told(flag: str) -> None:
    newest = Semantics.of_vllm("0.33.0")
    other = newest.changed({f"media.{flag}": not getattr(newest.media, flag)})
    traces = [LANE.trace(seed, None) for seed in SEEDS]
    assert ReferenceTarget(newest).run(traces) != ReferenceTarget(other).run(traces)


def test_the_ideal_reference_keeps_the_contracts() -> None:
    target = ReferenceTarget()
    traces = [LANE.trace(seed, None) for seed in SEEDS]
    for trace, run in zip(traces, target.run(traces), strict=True):
        assert examine(trace, run, target).violations == {}
