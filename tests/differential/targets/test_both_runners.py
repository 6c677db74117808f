"""Every kept trace under both model runners: which of its breaks are one runner's."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from cacheproof.differential.findings.finding_file import load
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.search.fault_folders import load as load_known
from cacheproof.differential.search.known import may_be
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.listed.pages import kept_traces

FIRST_ALONE = {
    "0.33.0": {
        "stripped-item": {"SC-9"},
        "stripped-item-load": {"SC-9"},
        "stripped-item-session": {"SC-9"},
    },
    "0.32.0": {"stripped-item": {"SC-9"}, "stripped-item-session": {"SC-9"}},
    "0.30.0": {"stripped-item": {"SC-9"}},
    "0.24.0": {},
    "0.23.0": {"drafter-miss": {"SC-2"}, "drafter-miss-within": {"SC-2"}},
    "0.12.0": {"whole-item-before": {"SC-2"}, "whole-item-rolled-back": {"SC-2"}},
}
"""Release -> trace -> what breaks under the first runner and holds under the second."""
OLDER = [pytest.param(release, marks=pytest.mark.full) for release in list(FIRST_ALONE)[1:]]


def traces() -> Iterator[tuple[str, Trace]]:
    for name, path in kept_traces().items():
        trace = load(path)
        assert isinstance(trace, Trace)
        if trace.depth == "scheduler":
            yield name, trace


@pytest.mark.parametrize("release", ["0.33.0", *OLDER])
def test_a_finding_breaks_under_both_runners_but_where_it_is_listed(
    hosted: Callable[[str], AbstractContextManager[HostTarget]], release: str
) -> None:
    broken: dict[tuple[str, ModelRunner], set[str]] = {}
    with hosted(release) as target:
        for name, trace in traces():
            for runner in ("first", "second"):
                one = trace.under_runner(runner)
                broken[name, runner] = examine(one, target.run([one])[0], target).broken
    names = {name for name, _ in broken}
    alone = {name: broken[name, "first"] - broken[name, "second"] for name in names}
    assert {name: rules for name, rules in alone.items() if rules} == FIRST_ALONE[release]
    assert not any(broken[name, "second"] - broken[name, "first"] for name in names)
    assert len(names) > 30


def test_what_breaks_under_one_runner_alone_is_listed() -> None:
    listed = load_known()
    kinds = {"SC-9": "after a preemption", "SC-2": ""}
    for release, found in FIRST_ALONE.items():
        for rule in {rule for rules in found.values() for rule in rules}:
            assert may_be(listed, rule, kinds[rule], release, ("scheduler",), "first")
