"""What to do about a listed fault, in a clause that an audit ends with."""

import pytest

from cacheproof.audit.listing import remedy_of
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault
from cacheproof.listed.facts import remedy
from cacheproof.reference.releases import NEWEST, within

REMOVES = "the no a another an KV kv_load_failure_policy scheduler_reserve_full_isl ec_cpu_bytes"
"""Words with which the list begins the name of what removes a fault, beside options."""


def misread(fault: KnownFault) -> bool:
    """Whether what to do about a fault does not read as a clause."""
    said = remedy(fault, within(fault.seen)[-1])
    _, restarts, what = said.partition("restart with ")
    first = what.partition(" ")[0]
    return not said or (bool(restarts) and not (first.startswith("--") or first in REMOVES.split()))


def test_what_to_do_about_a_fault_reads_as_a_clause() -> None:
    harmful = [one for one in load() if one.seen and one.harm.startswith(("safety", "liveness"))]
    assert [one.name for one in harmful if misread(one)] == []


@pytest.mark.parametrize("avoid", ["", "a later release", "lower it", "from 0.1 on the default"])
def test_what_does_not_read_as_a_clause_is_seen(avoid: str) -> None:
    assert misread(KnownFault("it", "a title", "safety", seen=NEWEST, avoid=avoid))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"avoid": "--one"}, "restart with --one"),
        ({"avoid": "drop `it` of requests"}, "drop `it` of requests"),
        ({"avoid": "--one", "mended_in": "0.34.0"},
         "restart with --one, or move to 0.34.0, which mends it"),
        ({"avoid": "a later release", "mended_in": "0.34.0"}, "move to 0.34.0, which mends it"),
        ({"avoid": "no switch; leave it", "mended_in": "0.33.0"}, "leave it"),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_fault_is_removed_by_what_the_list_says_or_by_a_later_release(
    fault: dict[str, str], said: str
) -> None:
    assert remedy(KnownFault("it", "a title", "safety", **fault), "0.33.0") == said


def test_of_several_faults_that_a_break_may_be_each_has_its_own_remedy() -> None:
    one, other = (
        KnownFault(name, "a title", "safety", avoid=f"--{name}") for name in ("one", "two")
    )
    assert remedy_of((one,), "0.33.0") == "restart with --one"
    assert remedy_of((one, other), "0.33.0") == "do what avoids each, as above"
    assert remedy_of((), "0.33.0") == ""
