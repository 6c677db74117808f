"""Each kept trace breaks by a listed cause, on each release that is modelled."""

import pytest

from cacheproof.differential.findings.finding_file import load as load_file
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.search.attribution import Attribution
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.trace import Trace
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import Semantics

KNOWN = load()
ELSEWHERE = {"engine", "encoder_connector"}
"""Depths that the reference does not run in this process."""
TRACES = {name: load_file(file) for name, file in kept_traces().items()}


@pytest.mark.sample(4)
@pytest.mark.parametrize("release", MODELLED)
def test_each_kept_trace_breaks_by_the_cause_of_a_listed_fault(release: str) -> None:
    model = ReferenceTarget(Semantics.of_vllm(release), release=release)
    attribution = Attribution(KNOWN, release, model)
    told = {}
    for name, trace in TRACES.items():
        assert isinstance(trace, Trace)
        if trace.depth in ELSEWHERE or not model.compares(trace):
            continue
        (result,) = model.run([trace])
        seen = examine(trace, result, model, model)
        for broken, one in attribution.of(trace, result, seen, None, name).items():
            told[name, *broken] = one
    assert told
    assert {of: one.why for of, one in told.items() if one.fault is None} == {}
    assert [of for of, one in told.items() if one.by_symptom] == []
