"""Faults of a runner whose layers have several block tables, planted in a sound one.

A fault takes a runner and changes one thing that it does. The first of its two groups is that of
layers under a sliding window (`gpu_runner/models/cohere2_vision.py`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...by_name import by_name
from ...stale_tables import change_resumed
from .cross_attention import Scheduled
from .fault import RunnerFault

if TYPE_CHECKING:
    from cacheproof.gpu_runner.paged_attention import PagedGroup
    from cacheproof.gpu_runner.runner import Runner
    from cacheproof.reference.scheduler.output import SchedulerOutput


def sees_one_token_more(runner: "Runner") -> None:
    """Windows begin a token too early."""
    _change_windows(runner, lambda window: window + 1)


def sees_one_token_fewer(runner: "Runner") -> None:
    """Windows begin a token too late."""
    _change_windows(runner, lambda window: window - 1)


def reads_what_is_behind_windows(runner: "Runner") -> None:
    """Windows begin with the request, though others may have its first blocks by now."""
    _change_windows(runner, lambda window: None)


def _change_windows(runner: "Runner", change: Callable[[int], int | None]) -> None:
    group = runner._group

    def changed(number: int, sliding_window: int | None, scheduled: Scheduled) -> "PagedGroup":
        return group(number, sliding_window and change(sliding_window), scheduled)

    runner._group = changed


def reads_by_the_first_table(runner: "Runner") -> None:
    """Every group writes by its own block table, and reads by the first group's."""
    _take_of_the_first(runner, "windows")


def forgets_null_blocks(runner: "Runner") -> None:
    """Where a hit leaves out blocks, the others stand at the beginning of the table."""
    apply = runner.batch.apply

    def packed(step: "SchedulerOutput") -> None:
        apply(step)
        for new in step.scheduled_new_reqs:
            request = runner.batch.requests[new.req_id]
            request.block_ids = tuple(
                sorted(own, key=lambda block: block == 0) for own in request.block_ids
            )

    runner.batch.apply = packed


def has_windows_in_the_other_layers(runner: "Runner") -> None:
    """Layers with windows attend to everything, and those of full attention within windows."""
    store = runner.kv_store
    store.group_of = {layer: 1 - number for layer, number in store.group_of.items()}


def sees_the_window_of_a_chunks_first_token(runner: "Runner") -> None:
    """Every token of a chunk sees as far back as the first of them does."""
    group = runner._group
    runner._group = lambda *arguments: replace(group(*arguments), sliding_window=None)


def writes_by_the_first_table(runner: "Runner") -> None:
    """Every group reads by its own block table, and writes by the first group's."""
    _take_of_the_first(runner, "slots")


def _take_of_the_first(runner: "Runner", name: str) -> None:
    group = runner._group

    def mixed(number: int, sliding_window: int | None, scheduled: Scheduled) -> "PagedGroup":
        first = group(0, sliding_window, scheduled)
        own = group(number, sliding_window, scheduled)
        return replace(own, **{name: getattr(first, name)})

    runner._group = mixed


def exchanges_tables(runner: "Runner") -> None:
    """Each group writes and reads by the other's block table: nothing is wrong before blocks behind
    a window are given back, or left out of a hit."""
    group = runner._group
    runner._group = lambda number, *arguments: replace(
        group(1 - number, *arguments), sliding_window=arguments[0]
    )


def keeps_one_table_of_before(runner: "Runner") -> None:
    """A request that comes back after a preemption keeps its old table in the last group."""
    change_resumed(runner, lambda old, new: (*new[:-1], (old[-1] + new[-1])[: len(new[-1])]))


def keeps_layers_of_a_group_together(runner: "Runner") -> None:
    """All layers of a group are kept in one tensor, instead of one layer of each group."""
    store = runner.kv_store
    shared = list({id(layer): layer for layer in store.layers}.values())
    store.layers = [shared[store.group_of[layer]] for layer in range(len(store.layers))]


GROUP_FAULTS: dict[str, RunnerFault] = by_name(
    sees_one_token_more,
    sees_one_token_fewer,
    reads_what_is_behind_windows,
    reads_by_the_first_table,
    forgets_null_blocks,
    has_windows_in_the_other_layers,
    sees_the_window_of_a_chunks_first_token,
    writes_by_the_first_table,
    exchanges_tables,
    keeps_one_table_of_before,
    keeps_layers_of_a_group_together,
)
