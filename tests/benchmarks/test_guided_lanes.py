"""Two orders of the same lanes: what they spend until a trace is reached."""

from itertools import islice


def steps(script, events: int, news: int):
    return [script.Step(events, 10.0 * events, news if number < 20 else 0) for number in range(40)]


def test_in_turn_every_lane_has_its_batch(script) -> None:
    lanes = {"a": steps(script, 10, 1), "b": steps(script, 30, 1)}
    ((lane, trace, events, microseconds),) = script.spent_until("in turn", lanes, {"b": [6]})
    assert (lane, trace, events) == ("b", 6, 5 * 10 + 5 * 30 + 5 * 10 + 30)
    assert microseconds == 10.0 * events


def test_by_yield_a_lane_that_meets_something_new_gets_more(script) -> None:
    lanes = {"dull": steps(script, 10, 0), "rich": steps(script, 10, 9)}
    chosen = list(islice(script.by_yield(lanes), 8))
    assert chosen.count("rich") > chosen.count("dull")
    alike = {"dull": steps(script, 10, 9), "rich": steps(script, 10, 9)}
    assert list(islice(script.by_yield(alike), 8)).count("rich") == 4


def test_by_yield_no_lane_is_left_out(script) -> None:
    lanes = {"dull": steps(script, 10, 0), "rich": steps(script, 10, 9)}
    reached = list(script.spent_until("by yield", lanes, {"dull": [30], "rich": [30]}))
    assert {lane for lane, *_ in reached} == {"dull", "rich"}


def test_a_lane_meets_a_state_anew_once(script) -> None:
    found = script.steps_of("encoder cache", 0, 12)
    assert found[0].news > 0
    assert sum(step.news for step in found[6:]) < sum(step.news for step in found[:6])
