"""Faults of an engine's worker in what one kind of model needs: sounds of any length, rows that
reach several layers, layers with block tables of their own."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...by_name import by_name
from ...vllm_objects.kv_cache import BlockIds
from ...vllm_objects.worker import GPUModelRunner
from .engine import Change

if TYPE_CHECKING:
    from torch import Tensor


def _change_heard(
    runner: GPUModelRunner, change: Callable[["Tensor", "Tensor"], tuple["Tensor", "Tensor"]]
) -> Change:
    """Let the tower get what `change` makes of the features of sounds, [sounds, pitches, frames],
    and of the mask that is added to hide places, [sounds, 1, places, places]."""
    tower = runner.get_model().audio_tower
    forward = tower.forward

    def heard(features: "Tensor", *, attention_mask: "Tensor") -> object:
        features, attention_mask = change(features, attention_mask)
        return forward(features, attention_mask=attention_mask)

    return tower, "forward", heard


def hears_what_is_behind(runner: GPUModelRunner) -> Change:
    """What follows the end of a sound is attended to like the sound."""
    return _change_heard(runner, lambda features, mask: (features, mask.new_zeros(mask.shape)))


def hears_one_length_for_all(runner: GPUModelRunner) -> Change:
    """All sounds of one call are taken to be as long as the first."""
    return _change_heard(runner, lambda features, mask: (features, mask[:1].expand_as(mask)))


def hears_another_to_its_own_length(runner: GPUModelRunner) -> Change:
    """The sounds of one call come in reverse, their lengths do not."""
    return _change_heard(runner, lambda features, mask: (features.flip(0), mask))


def hears_pitches_in_reverse(runner: GPUModelRunner) -> Change:
    """The pitches of sounds come in reverse."""
    return _change_heard(runner, lambda features, mask: (features.flip(1), mask))


def keeps_the_next_rows(runner: GPUModelRunner) -> Change:
    """The rows that are kept of a sound begin one too late, and end one after it."""
    projector = runner.get_model().multi_modal_projector
    forward = projector.forward
    return projector, "forward", lambda rows: forward(rows.roll(-1, 1))


AUDIO_FAULTS = by_name(
    hears_what_is_behind,
    hears_one_length_for_all,
    hears_another_to_its_own_length,
    hears_pitches_in_reverse,
    keeps_the_next_rows,
)


def _change_levels(runner: GPUModelRunner, change: Callable[["Tensor"], "Tensor"]) -> Change:
    """Let layers add what `change` makes of a step's levels, [levels, tokens, hidden size]."""
    model = runner.get_model()
    keep = model._set_deepstack_input_embeds
    return model, "_set_deepstack_input_embeds", lambda levels: keep(change(levels))


def swaps_levels(runner: GPUModelRunner) -> Change:
    """The layers get each other's rows; the embedding stays."""
    return _change_levels(runner, lambda levels: levels.flip(0))


def adds_levels_a_token_late(runner: GPUModelRunner) -> Change:
    """The rows that a layer adds stand a token late, the last one at the first token."""
    return _change_levels(runner, lambda levels: levels.roll(1, 1))


def forgets_the_last_level(runner: GPUModelRunner) -> Change:
    """The deepest of the layers that get rows adds none."""

    def cut(levels: "Tensor") -> "Tensor":
        levels = levels.clone()
        levels[-1] = 0
        return levels

    return _change_levels(runner, cut)


def _change_kept_levels(
    runner: GPUModelRunner, change: Callable[[str, "Tensor"], "Tensor"]
) -> Change:
    """Let the worker keep what `change` makes of an item's name and of the levels of its rows."""
    keep = runner._cache_encoder_output
    size = runner.get_model().config.text_config.hidden_size

    def changed(identifier: str, rows: "Tensor", *others: object) -> None:
        rows = rows.clone()
        rows[:, size:] = change(identifier, rows[:, size:])
        keep(identifier, rows, *others)

    return runner, "_cache_encoder_output", changed


def keeps_levels_in_reverse(runner: GPUModelRunner) -> Change:
    """The levels of an item are kept in reverse order of its rows."""
    return _change_kept_levels(runner, lambda name, levels: levels.flip(0))


def forgets_levels_of_films(runner: GPUModelRunner) -> Change:
    """Only pictures have levels."""
    return _change_kept_levels(runner, lambda name, levels: levels * name.startswith("picture"))


DEEPSTACK_FAULTS = by_name(
    swaps_levels,
    adds_levels_a_token_late,
    forgets_the_last_level,
    keeps_levels_in_reverse,
    forgets_levels_of_films,
)


def _change_window(runner: GPUModelRunner, change: Callable[[int], int]) -> Change:
    """Let the kernel get what `change` makes of a layer's sliding window, where it has one."""
    from vllm.v1.attention.backends.cpu_attn import ops  # the names are read where it is not

    attend = ops.cpu_attention_with_kv_cache

    def changed(*, sliding_window: int, **others: object) -> object:
        return attend(
            sliding_window=change(sliding_window) if sliding_window > 0 else sliding_window,
            **others,
        )

    return ops, "cpu_attention_with_kv_cache", changed


def sees_one_token_fewer(runner: GPUModelRunner) -> Change:
    """Windows begin a token too late."""
    return _change_window(runner, lambda window: window - 1)


def exchanges_tables(runner: GPUModelRunner) -> Change:
    """Each group writes and reads by the other's block table: nothing is wrong before blocks behind
    a window are given back, or left out of a hit."""
    tables = type(runner.input_batch.block_table)
    return tables, "__getitem__", lambda self, number: self.block_tables[1 - number]


def writes_by_the_first_table(runner: GPUModelRunner) -> Change:
    """Every group reads by its own block table, and writes by the first group's."""
    tables = runner.input_batch.block_table
    compute = tables.compute_slot_mapping

    def mixed(*arguments: object) -> None:
        compute(*arguments)
        first, second = tables.block_tables
        second.slot_mapping.gpu.copy_(first.slot_mapping.gpu)

    return tables, "compute_slot_mapping", mixed


def forgets_null_blocks(runner: GPUModelRunner) -> Change:
    """Where a hit leaves out blocks, the others stand at the beginning of the table."""
    tables = runner.input_batch.block_table
    add = tables.add_row

    def packed(block_ids: BlockIds, row: int) -> None:
        add(tuple(sorted(own, key=lambda block: block == 0) for own in block_ids), row)

    return tables, "add_row", packed


def gives_new_blocks_to_one_group(runner: GPUModelRunner) -> Change:
    """Only the first group takes the blocks that a running request gets."""
    tables = runner.input_batch.block_table
    append = tables.append_row

    def partly(block_ids: BlockIds, row: int) -> None:
        append((block_ids[0], *[[] for _ in block_ids[1:]]), row)

    return tables, "append_row", partly


GROUP_FAULTS = by_name(
    sees_one_token_fewer,
    exchanges_tables,
    writes_by_the_first_table,
    forgets_null_blocks,
    gives_new_blocks_to_one_group,
)
