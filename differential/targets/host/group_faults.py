"""Faults of a runner whose layers have several block tables, planted in one that is whole.

A fault takes a runner and changes one thing that it does. The first of its two groups is that of
layers under a sliding window (`gpu_runner/models/cohere2_vision.py`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .by_name import by_name


def sees_one_token_more(runner: Any) -> None:
    """Windows begin a token too early."""
    _change_windows(runner, lambda window: window + 1)


def sees_one_token_fewer(runner: Any) -> None:
    """Windows begin a token too late."""
    _change_windows(runner, lambda window: window - 1)


def reads_what_is_behind_windows(runner: Any) -> None:
    """Windows begin with the request, whoever has the blocks by now."""
    _change_windows(runner, lambda window: None)


def _change_windows(runner: Any, change: Callable[[int], int | None]) -> None:
    group = runner._group

    def changed(number: int, sliding_window: int | None, scheduled: Any) -> Any:
        return group(number, sliding_window and change(sliding_window), scheduled)

    runner._group = changed


def reads_by_the_first_table(runner: Any) -> None:
    """Every group writes by its own block table, and reads by the first group's."""
    group = runner._group

    def mixed(number: int, sliding_window: int | None, scheduled: Any) -> Any:
        read = group(0, sliding_window, scheduled)
        return replace(group(number, sliding_window, scheduled), windows=read.windows)

    runner._group = mixed


def forgets_null_blocks(runner: Any) -> None:
    """Where a hit leaves out blocks, the others stand in the table as if it began with them."""
    apply = runner.batch.apply

    def packed(step: Any) -> None:
        apply(step)
        for new in step.scheduled_new_reqs:
            request = runner.batch.requests[new.req_id]
            request.block_ids = tuple(
                sorted(own, key=lambda block: block == 0) for own in request.block_ids
            )

    runner.batch.apply = packed


def has_windows_in_the_other_layers(runner: Any) -> None:
    """Layers of windows attend to everything, and those of full attention within windows."""
    store = runner.kv_store
    store.group_of = {layer: 1 - number for layer, number in store.group_of.items()}


GROUP_FAULTS: dict[str, Callable[[Any], None]] = by_name(
    sees_one_token_more,
    sees_one_token_fewer,
    reads_what_is_behind_windows,
    reads_by_the_first_table,
    forgets_null_blocks,
    has_windows_in_the_other_layers,
)
