"""The words that a contract may call mean what their sentences say."""

import pytest

from cacheproof.spec.vocabulary import drops_prefix, last_dropped, total, total_unheld, within

QUEUE = {"a": 1, "b": 2, "c": 3}


def test_total_adds_up_the_values() -> None:
    assert (total({}), total(QUEUE)) == (0, 6)


def test_total_unheld_counts_what_nobody_holds() -> None:
    holders = {"a": frozenset({"r"}), "b": frozenset(), "c": frozenset()}
    assert total_unheld(QUEUE, holders) == 5


@pytest.mark.parametrize(
    ("part", "answer"),
    [({}, True), (QUEUE, True), ({"b": 2}, True), ({"b": 3}, False), ({"d": 4}, False)],
)
def test_a_map_is_within_another_by_keys_and_values(part: dict[str, int], answer: bool) -> None:
    assert within(part, QUEUE) is answer


@pytest.mark.parametrize(
    ("after", "is_prefix", "last"),
    [
        (["a", "b", "c"], True, 0),
        (["b", "c"], True, 1),
        (["c"], True, 2),
        ([], True, 3),
        (["a", "c"], False, 1),
        (["a", "b"], False, 1),
        (["c", "b"], False, 1),
        (["b", "a", "c"], False, 0),
        (["a", "b", "c", "d"], False, 0),
    ],
)
def test_a_prefix_is_dropped_from_the_front_only(
    after: list[str], is_prefix: bool, last: int
) -> None:
    queue = {identifier: QUEUE.get(identifier, 4) for identifier in after}
    assert drops_prefix(QUEUE, queue) is is_prefix
    assert last_dropped(QUEUE, queue) == last
