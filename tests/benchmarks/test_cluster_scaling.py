"""The model of many cores follows from what a job costs."""

from concurrent.futures import Future


def test_a_head_below_a_tenth_of_a_core_takes_seeds_in_proportion_to_the_cores(script) -> None:
    rows = list(script.model(head=0.001, seed=0.1))[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells[2] == ["100", "50.0", "0.050", "10"]
    assert cells[-1] == ["10,000", "5,000.0", "5.000", "1,000"]


def test_a_costless_crew_hands_back_the_same_outcome_at_once(script) -> None:
    future = script.Costless(4, "outcome").submit(len, "job")
    assert isinstance(future, Future)
    assert script.every_one([future])[0].result() == ("outcome", 0.0)


def test_a_shard_that_is_run_with_no_cost_is_counted_all_the_same(script, tmp_path) -> None:
    _, outcome, seconds = script.shard()
    cost = script.head_cost(str(tmp_path / "store"), 4, 30, outcome, script.Server(None))
    assert seconds > 0
    assert cost.head > 0
    assert cost.server == 0
    assert cost.per_second > 0
