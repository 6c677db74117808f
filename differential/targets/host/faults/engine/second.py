"""Faults of an engine's second model runner: in its encoder store, in what it gathers, in its
states, in its block tables, and in how it verifies drafts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...by_name import by_name
from ...vllm_objects.kv_cache import BlockIds
from ...vllm_objects.worker import SamplerOutput, SecondModelRunner
from .engine import Change

if TYPE_CHECKING:
    from torch import Tensor


def lets_nothing_go(runner: SecondModelRunner) -> Change:
    """The store keeps what it is told to free."""
    return runner.encoder_cache, "free_encoder_cache", lambda identifier: None


def lets_the_newest_go(runner: SecondModelRunner) -> Change:
    """The store frees its newest entry instead of the one that it is told."""
    cache = runner.encoder_cache

    def free(identifier: str) -> None:
        cache.encoder_outputs.pop(next(reversed(cache.encoder_outputs), identifier), None)

    return cache, "free_encoder_cache", free


def keeps_rows_of_old_weights(runner: SecondModelRunner) -> Change:
    """The store is not emptied when it is told to."""
    return runner.encoder_cache, "reset_encoder_cache", lambda: None


def hands_out_a_batch_in_reverse(runner: SecondModelRunner) -> Change:
    """Items that are encoded at once get each other's rows."""
    encode = runner.model_state.encoder_runner.execute_mm_encoder
    return (
        runner.model_state.encoder_runner,
        "execute_mm_encoder",
        lambda given: list(reversed(encode(given))),
    )


def _change_gathered(
    runner: SecondModelRunner,
    change: Callable[[list["Tensor"], "Tensor"], tuple[list["Tensor"], "Tensor"]],
) -> Change:
    """Let a step take what `change` makes of the rows that were gathered, and of their places."""
    gatherer = runner.model_state.encoder_runner
    gather = gatherer.gather_mm_embeddings
    return (
        gatherer,
        "gather_mm_embeddings",
        lambda *given, **named: change(*gather(*given, **named)),
    )


def gathers_rows_in_reverse(runner: SecondModelRunner) -> Change:
    """The rows of each item in a step come in reverse."""
    return _change_gathered(runner, lambda rows, places: ([one.flip(0) for one in rows], places))


def gathers_nothing_of_the_last(runner: SecondModelRunner) -> Change:
    """The rows of a step's last item are zeros."""
    return _change_gathered(
        runner, lambda rows, places: ([*rows[:-1], *(one * 0 for one in rows[-1:])], places)
    )


def splices_a_place_late(runner: SecondModelRunner) -> Change:
    """Rows go one place too far."""
    return _change_gathered(runner, lambda rows, places: (rows, places.roll(1)))


def forgets_what_was_decoded(runner: SecondModelRunner) -> Change:
    """A request that comes back has zeros in the place of what it has decoded."""
    states = runner.req_states
    add = states.add_request

    def changed(**told: Any) -> None:
        tokens, length = told["all_token_ids"], told["prompt_len"]
        add(**{**told, "all_token_ids": [*tokens[:length], *(0 for _ in tokens[length:])]})

    return states, "add_request", changed


def counts_a_token_less(runner: SecondModelRunner) -> Change:
    """A request that is added with computed tokens computes the last of them again, a place too
    early."""
    states = runner.req_states
    add = states.add_request

    def changed(**told: Any) -> None:
        add(**{**told, "num_computed_tokens": max(0, told["num_computed_tokens"] - 1)})

    return states, "add_request", changed


def appends_no_blocks(runner: SecondModelRunner) -> Change:
    """A running request does not take the blocks that it gets."""
    tables = runner.block_tables
    append = tables.append_block_ids

    def changed(number: int, blocks: BlockIds, overwrite: bool) -> None:
        append(number, blocks if overwrite else tuple([] for _ in blocks), overwrite)

    return tables, "append_block_ids", changed


def adds_blocks_in_reverse(runner: SecondModelRunner) -> Change:
    """Blocks that a request gets at once stand in its table in reverse."""
    tables = runner.block_tables
    append = tables.append_block_ids

    def changed(number: int, blocks: BlockIds, overwrite: bool) -> None:
        append(number, tuple(one[::-1] for one in blocks), overwrite)

    return tables, "append_block_ids", changed


def attends_to_anothers_blocks(runner: SecondModelRunner) -> Change:
    """The requests of a step attend to each other's blocks."""
    tables = runner.block_tables
    gather = tables.gather_block_tables
    return (
        tables,
        "gather_block_tables",
        lambda numbers, *others, **named: gather(numbers.flip(0), *others, **named),
    )


def writes_to_anothers_blocks(runner: SecondModelRunner) -> Change:
    """The requests of a step write to each other's blocks."""
    tables = runner.block_tables
    compute = tables.compute_slot_mappings
    return (
        tables,
        "compute_slot_mappings",
        lambda numbers, *others, **named: compute(numbers.flip(0), *others, **named),
    )


def turns_by_old_positions(runner: SecondModelRunner) -> Change:
    """A request turns by the positions of the request that had its place before, in a model with
    several rotary axes."""
    axes = runner.model_state.rope_state
    return axes, axes.init_prefill_positions.__name__, lambda *given, **named: None


def _change_sampled(
    runner: SecondModelRunner, change: Callable[["Tensor", "Tensor"], tuple["Tensor", "Tensor"]]
) -> Change:
    """Let the states of requests take what `change` makes of how many tokens were sampled, and of
    how many drafts were rejected."""
    take = runner.postprocess_sampled

    def changed(
        numbers: "Tensor",
        tokens: "Tensor",
        sampled: "Tensor",
        rejected: "Tensor",
        *others: object,
    ) -> None:
        take(numbers, tokens, *change(sampled, rejected), *others)

    return runner, "postprocess_sampled", changed


def rolls_nothing_back(runner: SecondModelRunner) -> Change:
    """A step goes on after drafts that were wrong."""
    return _change_sampled(runner, lambda sampled, rejected: (sampled, rejected * 0))


def rolls_back_one_too_many(runner: SecondModelRunner) -> Change:
    """Where a draft was wrong, the one before it is taken back too."""
    return _change_sampled(
        runner, lambda sampled, rejected: (sampled, rejected + (rejected > 0).to(rejected.dtype))
    )


def samples_of_the_row_before(runner: SecondModelRunner) -> Change:
    """Tokens are sampled from the hidden state one row before."""
    sample = runner.sample

    def changed(states: "Tensor", *others: object) -> tuple[SamplerOutput, "Tensor", "Tensor"]:
        return sample(states.roll(1, 0), *others)

    return runner, "sample", changed


SECOND_FAULTS: dict[str, Callable[[SecondModelRunner], Change]] = by_name(
    lets_nothing_go,
    lets_the_newest_go,
    keeps_rows_of_old_weights,
    hands_out_a_batch_in_reverse,
    gathers_rows_in_reverse,
    gathers_nothing_of_the_last,
    splices_a_place_late,
    forgets_what_was_decoded,
    counts_a_token_less,
    turns_by_old_positions,
    samples_of_the_row_before,
    appends_no_blocks,
    adds_blocks_in_reverse,
    attends_to_anothers_blocks,
    writes_to_anothers_blocks,
    rolls_nothing_back,
    rolls_back_one_too_many,
)
