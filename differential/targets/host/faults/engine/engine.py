"""Faults of a worker, planted in an engine: in its encoder store, which canaries plant, and in how
it runs ahead of what is known."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...by_name import by_name
from ...vllm_objects.worker import EncoderOutputs, GPUModelRunner, SamplerOutput

if TYPE_CHECKING:
    from torch import Tensor

Change = tuple[object, str, object]
"""An object, the name of an attribute, mostly a method, and what replaces it."""


class NeverFrees(EncoderOutputs):
    """A store that keeps what it is told to drop."""

    def pop(self, *arguments: Any) -> Any:
        return None


class MisreadsNowAndThen(EncoderOutputs):
    """A store of which every third read gets other rows."""

    def __init__(self, entries: Mapping[str, "Tensor"]) -> None:
        super().__init__(entries)
        self._reads = 0

    def get(self, identifier: str, default: Any = None) -> Any:
        rows = super().get(identifier, default)
        self._reads += 1
        return rows if rows is None or self._reads % 3 else self.misread(rows)

    def misread(self, rows: "Tensor") -> "Tensor":
        """The rows that are read in the place of these."""
        raise NotImplementedError


class ReadsTheRowBefore(MisreadsNowAndThen):
    """A store of which every third read gets each row from the place before it."""

    def misread(self, rows: "Tensor") -> "Tensor":
        return rows.roll(1, dims=0)


class ReadsOneRow(MisreadsNowAndThen):
    """A store of which every third read gets the first row in the place of all: a decoder that
    attends to all rows would not see another order."""

    def misread(self, rows: "Tensor") -> "Tensor":
        return rows[:1].expand_as(rows)


class KeepsWhatItCutOff(EncoderOutputs):
    """A store whose entries are small parts of large tensors."""

    def __setitem__(self, identifier: str, rows: "Tensor") -> None:
        super().__setitem__(identifier, rows.repeat(8, 1)[: len(rows)])

    def update(self, *arguments: Any, **entries: "Tensor") -> None:
        """The second model runner's way to add entries, which in a dict goes past `__setitem__`."""
        for identifier, rows in dict(*arguments, **entries).items():
            self[identifier] = rows


ENGINE_FAULTS: dict[str, Callable[[EncoderOutputs], EncoderOutputs]] = {
    "keeps_what_it_cut_off": KeepsWhatItCutOff,
    "never_frees": NeverFrees,
    "reads_one_row": ReadsOneRow,
    "reads_the_row_before": ReadsTheRowBefore,
}


def accepts_one_too_many(runner: GPUModelRunner) -> Change:
    """The last token that is right is answered once more."""
    sample = runner._sample

    def generous(*arguments: object) -> SamplerOutput:
        sampled = sample(*arguments)
        for row in sampled.sampled_token_ids:
            count = int((row >= 0).sum())
            if 0 < count < len(row):
                row[count] = row[count - 1]
        return sampled

    return runner, "_sample", generous


def does_not_roll_back(runner: GPUModelRunner) -> Change:
    """A step goes on after drafts that were wrong."""
    copy = runner._copy_valid_sampled_token_count

    def deaf(next_token_ids: "Tensor", counts: "Tensor") -> None:
        copy(next_token_ids, counts.clamp(min=1).mul(0).add(1 + runner.num_spec_tokens))

    return runner, "_copy_valid_sampled_token_count", deaf


def feeds_anothers_token(runner: GPUModelRunner) -> Change:
    """The last token of a request is read as that of another."""
    copy = runner._copy_valid_sampled_token_count

    def rolled(next_token_ids: "Tensor", counts: "Tensor") -> None:
        copy(next_token_ids.roll(1, 0), counts)

    return runner, "_copy_valid_sampled_token_count", rolled


def forgets_new_blocks(runner: GPUModelRunner) -> Change:
    """A running request does not take the blocks that it gets."""
    return runner.input_batch.block_table, "append_row", lambda block_ids, row: None


def loses_a_token(runner: GPUModelRunner) -> Change:
    """The last but one of several sampled tokens is lost."""
    sample = runner._sample

    def mean(*arguments: object) -> SamplerOutput:
        sampled = sample(*arguments)
        for row in sampled.sampled_token_ids:
            count = int((row >= 0).sum())
            if count > 1:
                row[count - 2] = row[count - 1]
                row[count - 1] = -1
        return sampled

    return runner, "_sample", mean


def attends_up_to_a_tiles_end(runner: GPUModelRunner) -> Change:
    """A decoder attends to what lies after an encoder's rows: the CPU worker of releases before
    0.24.0, as they have it."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder

    return CPUAttentionMetadataBuilder, "build", CPUAttentionMetadataBuilder.build.__wrapped__


ATTENTION_FAULTS = by_name(attends_up_to_a_tiles_end)
WORKER_FAULTS: dict[str, Callable[[GPUModelRunner], Change]] = by_name(
    accepts_one_too_many,
    does_not_roll_back,
    feeds_anothers_token,
    forgets_new_blocks,
    loses_a_token,
)
