"""The measure of guided search: it finds what is wrong, and nothing where nothing is."""

import dataclasses
from itertools import islice

import pytest


def test_every_listed_fault_is_still_there_and_about_half_of_them_are_held_out(script) -> None:
    faults = script.listed()
    assert all(script.fault_of(one) for one in faults)
    assert len({one.words for one in faults}) == len(faults) >= 30
    halves = [one.half for one in faults]
    assert abs(halves.count("tuning") - halves.count("held out")) <= 1


def test_no_listed_fault_was_found_at_once_when_it_was_chosen(script) -> None:
    assert all(one.pilot is None or one.pilot > 20 for one in script.listed())


@pytest.mark.parametrize("kind", ["variant", "statement"])
def test_a_fault_that_is_no_more_is_named(script, kind: str) -> None:
    name = "encoder_cache:EncoderCacheManager.reset"
    with pytest.raises(LookupError, match=r"no variant|no change"):
        script.fault_of(script.Listed(kind, name, "encoder cache", "tuning"))


def test_a_variant_is_found_and_counts_events_up_to_the_trace_that_shows_it(script) -> None:
    easy = script.Listed("variant", "newest-evicted-first", "encoder cache", "tuning")
    (found,) = script.measure("today", [easy], [0], 60)
    traces = islice(script.WAYS["today"]("encoder cache", 0), found.first)
    assert found.events == sum(len(trace.events) for trace in traces)


def test_a_changed_statement_is_found_and_the_statement_as_it_was_breaks_nothing(script) -> None:
    changed = script.fault_of(
        next(one for one in script.listed() if one.name == "scheduler.admission:walk")
    )
    traces = islice(script.WAYS["today"]("scheduler", 0), 250)
    shows = next(trace for trace in traces if changed.breaks(trace, b""))
    as_it_was = dataclasses.replace(changed, changed=changed.function.__code__)
    assert not as_it_was.breaks(shows, b"")
    assert changed.breaks(shows, script.unmodified(shows))


def test_what_is_not_found_counts_all_events_and_has_no_first(script) -> None:
    rare = next(one for one in script.listed() if one.name == "first-hit-aligned-twice")
    (found,) = script.measure("today", [rare], [0], 2)
    assert (found.first, found.events) == (None, 200)
