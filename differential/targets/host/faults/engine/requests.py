"""Faults of an engine's worker in what requests ask for beside their prompt, and in new weights."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...by_name import by_name
from ...media_inputs import GIVEN_TOKEN_ID
from ...vllm_objects.worker import GPUModelRunner
from .engine import Change

if TYPE_CHECKING:
    from torch import Tensor

AdapterIds = tuple[int, ...]
"""The adapter of each row, by number; 0 for none."""


def takes_the_last_slot_for_none(runner: GPUModelRunner) -> Change:
    """Rows without an adapter get the last slot's: the kernel as the release has it."""
    from vllm.lora.ops.torch_ops import lora_ops  # the faults' names are read where it is not

    return lora_ops, "bgmv_shrink", lora_ops.bgmv_shrink.__wrapped__


def adds_half(runner: GPUModelRunner) -> Change:
    """The rows that an adapter adds are scaled by half."""
    from vllm.lora.ops.torch_ops import lora_ops  # the faults' names are read where it is not

    own = lora_ops.bgmv_shrink

    def half(
        inputs: "Tensor", weights: "Tensor", outputs: "Tensor", slots: "Tensor", scale: float
    ) -> None:
        own(inputs, weights, outputs, slots, scale / 2)

    return lora_ops, "bgmv_shrink", half


def _change_mapping(runner: GPUModelRunner, change: Callable[[AdapterIds], AdapterIds]) -> Change:
    """Let the tokens of a step run under what `change` makes of their adapters."""
    activate = runner._set_active_loras

    def changed(of_prompts: AdapterIds, of_tokens: AdapterIds, *others: object) -> None:
        activate(of_prompts, change(of_tokens), *others)

    return runner, "_set_active_loras", changed


def maps_tokens_in_reverse(runner: GPUModelRunner) -> Change:
    """The tokens of a step run under its adapters in reverse."""
    return _change_mapping(runner, lambda of_tokens: of_tokens[::-1])


def begins_a_row_late(runner: GPUModelRunner) -> Change:
    """The first token of each request in a step runs under the adapter of the one before it."""
    return _change_mapping(runner, lambda of_tokens: (*of_tokens[:1], *of_tokens[:-1]))


def runs_all_under_the_first(runner: GPUModelRunner) -> Change:
    """Every request of a step runs under the first one's adapter."""
    return _change_mapping(runner, lambda of_tokens: of_tokens[:1] * len(of_tokens))


ADAPTER_FAULTS = by_name(
    takes_the_last_slot_for_none,
    maps_tokens_in_reverse,
    begins_a_row_late,
    runs_all_under_the_first,
    adds_half,
)


def keeps_old_weights(runner: GPUModelRunner) -> Change:
    """A worker that is to load weights drops its encoder outputs and loads nothing."""
    return runner, "reload_weights", lambda **where: runner.reset_encoder_cache()


def _keep(runner: GPUModelRunner, part: str) -> Change:
    """Let the weights of a part of the model stay as they are."""
    reload = runner.reload_weights

    def partly(*, weights_path: str) -> None:
        # The faults' names are read where it is not.
        from vllm.model_executor.model_loader.weight_utils import safetensors_weights_iterator

        weights = safetensors_weights_iterator(
            [str(Path(weights_path) / "model.safetensors")], False
        )
        reload(weights_iterator=[one for one in weights if part not in one[0]])

    return runner, "reload_weights", partly


def keeps_the_tower(runner: GPUModelRunner) -> Change:
    """New weights of the tower, which encodes items, are not taken."""
    return _keep(runner, "vision_tower")


def keeps_the_connector(runner: GPUModelRunner) -> Change:
    """New weights of the connector, between tower and decoder, are not taken."""
    return _keep(runner, "multi_modal_projector")


def keeps_the_embedding(runner: GPUModelRunner) -> Change:
    """New weights of the embedding of tokens are not taken."""
    return _keep(runner, "embed_tokens")


def loads_the_version_before(runner: GPUModelRunner) -> Change:
    """Each load takes the weights that the load before should have taken."""
    reload, asked = runner.reload_weights, list[str]()

    def late(*, weights_path: str) -> None:
        asked.append(weights_path)
        if len(asked) > 1:
            reload(weights_path=asked[-2])
        else:
            runner.reset_encoder_cache()

    return runner, "reload_weights", late


def keeps_a_tied_head(runner: GPUModelRunner) -> Change:
    """A head that is tied to the embedding keeps the old weights: the worker as the release has it
    on a CPU."""
    head = runner.get_model().proj_out
    return head.quant_method, "process_weights_after_loading", lambda layer: None


WEIGHT_FAULTS = by_name(
    keeps_old_weights,
    keeps_the_tower,
    keeps_the_connector,
    keeps_the_embedding,
    loads_the_version_before,
)
TIED_FAULTS = by_name(keeps_a_tied_head)


def _change_given(runner: GPUModelRunner, change: Callable[[str, "Tensor"], "Tensor"]) -> Change:
    """Let the worker keep what `change` makes of an item's name and of rows that are given."""
    keep = runner._cache_encoder_output

    def changed(identifier: str, rows: "Tensor", *others: object) -> None:
        if identifier.startswith("embeddings "):
            rows = change(identifier, rows)
        keep(identifier, rows, *others)

    return runner, "_cache_encoder_output", changed


def _of_their_tokens(runner: GPUModelRunner, rows: "Tensor") -> "Tensor":
    """For each row, the embedding of the token in its place."""
    tokens = rows.new_full((len(rows),), GIVEN_TOKEN_ID).long()
    return runner.get_model().embed_input_ids(tokens)


def takes_embeddings_in_reverse(runner: GPUModelRunner) -> Change:
    """Embeddings that are given come in reverse."""
    return _change_given(runner, lambda name, rows: rows.flip(0))


def takes_half_of_embeddings(runner: GPUModelRunner) -> Change:
    """Embeddings that are given are scaled by half."""
    return _change_given(runner, lambda name, rows: rows / 2)


def embeds_their_tokens(runner: GPUModelRunner) -> Change:
    """Rows are replaced by the embedding of the token in their place."""
    return _change_given(runner, lambda name, rows: _of_their_tokens(runner, rows))


def leaves_out_the_last(runner: GPUModelRunner) -> Change:
    """The last row is zeros."""

    def cut(name: str, rows: "Tensor") -> "Tensor":
        rows = rows.clone()
        rows[-1] = 0
        return rows

    return _change_given(runner, cut)


def takes_them_once(runner: GPUModelRunner) -> Change:
    """An item whose rows were dropped from the store gets the embeddings of tokens instead."""
    taken = set[str]()

    def once(name: str, rows: "Tensor") -> "Tensor":
        if name in taken:
            return _of_their_tokens(runner, rows)
        taken.add(name)
        return rows

    return _change_given(runner, once)


GIVEN_FAULTS = by_name(
    takes_embeddings_in_reverse,
    takes_half_of_embeddings,
    embeds_their_tokens,
    leaves_out_the_last,
    takes_them_once,
)
