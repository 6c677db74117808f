"""The run over every release: it sees what differs and what breaks, and leaves no release out."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.releases import MODELLED
from cacheproof.reference.semantics import Semantics

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "releases-checked.md"
NEWEST = Semantics.of_vllm("0.33.0")


def target(semantics: Semantics) -> ReferenceTarget:
    """The reference with these semantics, in the place of 0.33.0."""
    return ReferenceTarget(semantics, name="it", release="0.33.0")


def test_what_decides_as_the_reference_does_is_clean(script):
    outcome = script.checked(target(NEWEST), target(NEWEST), "manager", 0, 2_000)
    assert outcome.is_clean
    assert outcome.compared == outcome.done >= 2_000


def test_a_clock_that_is_up_ends_it_after_one_batch_and_says_how_much_that_was(script):
    outcome = script.checked(target(NEWEST), target(NEWEST), "manager", 0, 10**9, seconds=0)
    assert outcome.is_clean
    assert outcome.seeds == script.SEEDS_AT_A_TIME
    assert outcome.wanted == outcome.compared > 0


def test_a_clock_that_is_up_makes_no_difference_clean(script):
    changed = target(NEWEST.without("encoder_cache.remembers_sizes"))
    assert not script.checked(changed, target(NEWEST), "manager", 0, 10**9, seconds=0).is_clean


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("depth", "flag"),
    [
        ("manager", "encoder_cache.remembers_sizes"),
        ("scheduler", "scheduler.passes_over_unschedulable"),
        ("kv_cache", "kv_cache.caches_aligned"),
    ],
)
def test_what_decides_otherwise_is_counted_and_told(script, depth, flag):
    changed = target(NEWEST.without(flag))
    outcome = script.checked(changed, target(NEWEST), depth, 0, 1_000)
    assert outcome.differences
    assert not outcome.is_clean
    assert any("lockstep" in sentence for sentence in outcome.unlisted)


@pytest.mark.full
def test_a_break_that_no_entry_lists_is_told_by_itself(script):
    broken = target(NEWEST.without("encoder_cache.holds_until_last_occurrence"))
    outcome = script.checked(broken, None, "manager", 0, 2_000)
    assert outcome.compared == outcome.differences == 0
    assert any("EC-6" in sentence for sentence in outcome.unlisted)


def test_the_slices_of_as_many_days_have_every_release_once(script):
    days = [date(2026, 12, 25) + timedelta(days=count) for count in range(script.SLICES)]
    run = [release for day in days for release in script.versions_of(day.isoformat())]
    assert sorted(run) == sorted(MODELLED)


def outcome_of(script, **changes):
    plain = {
        "release": "0.33.0", "depth": "scheduler", "first_seed": 1, "seeds": 20,
        "wanted": 20_000, "done": 20_000,
        "compared": 20_000, "differences": 0, "broken": ["SC-4"], "unlisted": [], "seconds": 1.0,
    }  # fmt: skip
    return script.Outcome(**{**plain, **changes})


def test_what_was_not_compared_is_not_clean(script):
    refused = {"depth": "kv_cache", "done": 0, "compared": 0}
    assert outcome_of(script).is_clean
    assert not outcome_of(script, compared=0).is_clean
    assert not outcome_of(script, compared=19_999).is_clean
    assert not outcome_of(script, **refused).is_clean
    assert outcome_of(script, release="0.13.0", **refused).is_clean


def test_a_page_tells_what_was_compared_from_what_was_judged_alone(script):
    page = script.page(
        [
            outcome_of(script),
            outcome_of(script, release="0.28.0", compared=0, differences=0),
            outcome_of(script, release="0.29.0", differences=2, unlisted=["one"]),
        ]
    )
    assert "| 0.33.0 | 20,000: 0, 0 |" in page
    assert "| 0.28.0 | not modelled (20,000): 0, 0 |" in page
    assert "| 0.29.0 | 20,000: 2, 1 |" in page
    assert "3 releases: 2 differences, 1 unlisted breaks." in page


def test_the_page_has_every_release_and_nothing_that_is_unexplained():
    lines = PAGE.read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| 0.")]
    assert [row[0].removeprefix("| ") for row in rows] == [*MODELLED, *MODELLED]
    assert "36 releases: 0 differences, 0 unlisted breaks." in lines
    assert not any("not run" in line for line in lines)
