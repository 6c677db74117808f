"""Operations that stand in for vLLM's compiled parts: against torch's own attention, against plain
loops."""

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from cacheproof.differential.targets.host.engine import operations as engine_operations
from cacheproof.differential.targets.host.protocol import Illegal

SOURCE = Path(engine_operations.__file__)
DTYPES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""How far an answer may be from torch's."""
EXAMPLES = settings(max_examples=60, deadline=None)
SEEDS = st.integers(0, 2**31)


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(random: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=random).to(dtype)


def check_attention(
    operations: Any,
    seed: int,
    lengths: list[tuple[int, int]],
    heads: tuple[int, int],
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    causal: bool = True,
    window: int = 0,
) -> None:
    """Requests with so many tokens before a step, and in it, are written to a paged cache and read
    with its attention; each is to answer as torch does over its own rows."""
    random, (num_heads, num_kv_heads), size = drawn(seed), heads, 8
    counts = [-(-(before + now) // block_size) for before, now in lengths]
    blocks = torch.randperm(sum(counts) + 1, generator=random)
    caches = [
        numbers(random, len(blocks), num_kv_heads, block_size, size, dtype=dtype) for _ in range(2)
    ]
    table = torch.zeros(len(lengths), max(counts) + 1, dtype=torch.int32)
    rows, slots, asked = [], [], []
    for number, ((before, now), count) in enumerate(zip(lengths, counts, strict=True)):
        own, blocks = blocks[:count], blocks[count:]
        table[number, :count] = own
        rows.append([numbers(random, before + now, num_kv_heads, size, dtype=dtype) for _ in "kv"])
        at = torch.arange(before + now)
        slots.append(own[at // block_size] * block_size + at % block_size)
        asked.append(numbers(random, now, num_heads, size, dtype=dtype))
    keys, values = (torch.cat([one[side] for one in rows]) for side in (0, 1))
    padded = torch.cat([*slots, torch.tensor([-1, -1])])
    filler = numbers(random, 2, num_kv_heads, size, dtype=dtype)
    untouched = caches[0].clone()
    operations.cpu_attn_reshape_and_cache(
        torch.cat([keys, filler]), torch.cat([values, filler]), *caches, padded, "vec"
    )
    mask = torch.ones(untouched.shape[0] * block_size, dtype=torch.bool)
    mask[torch.cat(slots)] = False
    unused = mask.view(-1, block_size)[:, None, :, None].expand_as(untouched)
    assert caches[0][unused].equal(untouched[unused]), "a padded row was written"
    starts = torch.tensor([0, *(now for _, now in lengths)]).cumsum(0).int()
    query = torch.cat(asked)
    output = torch.zeros_like(query)
    operations.cpu_attention_with_kv_cache(
        query, *caches, output, starts, torch.tensor([sum(one) for one in lengths]).int(), 0.25,
        causal, None, window, table, 0.0, torch.empty(0), None,
    )  # fmt: skip
    for number, (before, now) in enumerate(lengths):
        sees = torch.ones(now, before + now, dtype=torch.bool)
        if causal:
            sees = sees.tril(before)
        if window > 0:
            sees = sees.triu(before - window + 1)
        key, value = (one.transpose(0, 1).float() for one in rows[number])
        expected = scaled_dot_product_attention(
            asked[number].transpose(0, 1).float(),
            key.repeat_interleave(num_heads // num_kv_heads, 0),
            value.repeat_interleave(num_heads // num_kv_heads, 0),
            attn_mask=sees,
            scale=0.25,
        ).transpose(0, 1)
        answer = output[starts[number] : starts[number + 1]].float()
        torch.testing.assert_close(answer, expected, atol=DTYPES[dtype], rtol=DTYPES[dtype])


def check_rotation(
    operations: Any, seed: int, count: int, turned: int, is_neox: bool, has_key: bool = True
) -> None:
    """A head is turned as complex numbers are, by the angle of its position."""
    random, heads, size = drawn(seed), 3, 16
    positions = torch.randint(0, 50, (count,), generator=random)
    angles = torch.arange(50)[:, None] * torch.logspace(0, -2, turned // 2)
    table = torch.cat([angles.cos(), angles.sin()], dim=-1)
    given = [numbers(random, count, heads * size) for _ in range(2)]
    done = [one.clone() for one in given]
    operations.rotary_embedding(
        positions, done[0], done[1] if has_key else None, size, table, is_neox
    )
    for before, after in zip(given, done, strict=True):
        if before is given[1] and not has_key:
            assert after.equal(before)
            continue
        rows = before.view(count, heads, size)[..., :turned]
        pairs = rows.unflatten(-1, (2, -1)).mT if is_neox else rows.unflatten(-1, (-1, 2))
        spun = torch.view_as_complex(pairs.contiguous()) * torch.polar(
            torch.ones(count, 1, turned // 2), angles[positions][:, None]
        )
        expected = before.view(count, heads, size).clone()
        parts = torch.view_as_real(spun)
        expected[..., :turned] = parts.mT.flatten(-2) if is_neox else parts.flatten(-2)
        torch.testing.assert_close(after.view_as(expected), expected)


def check_slots(operations: Any, seed: int, counts: list[int], block_size: int) -> None:
    random = drawn(seed)
    starts = torch.tensor([0, *counts]).cumsum(0).int()
    table = torch.randint(1, 99, (len(counts) + 1, 8), generator=random).int()
    positions = torch.cat(
        [torch.arange(count) + int(torch.randint(0, block_size, ())) for count in counts]
    )
    slots = torch.full((len(positions) + 3,), 7)
    operations.compute_slot_mapping_kernel_impl(starts, positions, table, slots, block_size)
    expected, at = [], 0
    for number, count in enumerate(counts):
        for position in positions[at : at + count].tolist():
            block, place = divmod(position, block_size)
            expected.append(int(table[number, block]) * block_size + place)
        at += count
    assert slots.tolist() == [*expected, -1, -1, -1]


def check_drafts(operations: Any, seed: int, counts: list[int]) -> None:
    """What is sampled of drafts, what follows, and where: each against a plain loop."""
    random, most, vocabulary, requests = drawn(seed), 4, 3, len(counts)
    cumulated = torch.tensor(counts).cumsum(0)
    drafts, likeliest = (
        torch.randint(0, vocabulary, (sum(counts),), generator=random) for _ in range(2)
    )
    bonus = torch.randint(0, vocabulary, (requests, 1), generator=random)
    is_greedy = torch.rand(requests, generator=random) < 0.8
    for asked in (None, is_greedy):
        sampled = torch.full((requests, most + 1), -1)
        operations.rejection_greedy_sample_kernel_impl(
            sampled, cumulated, drafts, likeliest, bonus, asked, most
        )
        at = 0
        for number, count in enumerate(counts):
            expected: list[int] = []
            for draft, token in zip(
                drafts[at : at + count].tolist(), likeliest[at : at + count].tolist(), strict=True
            ):
                expected.append(token)
                if draft != token:
                    break
            else:
                expected.append(int(bonus[number]))
            if asked is not None and not asked[number]:
                expected = []
            assert [one for one in sampled[number].tolist() if one != -1] == expected
            at += count
    sampled[torch.rand(sampled.shape, generator=random) < 0.1] = vocabulary  # of no meaning
    is_discarded = torch.rand(requests, generator=random) < 0.3
    backup = torch.arange(requests) + 100
    following, valid = torch.full((2, requests), -7)
    operations.eagle_prepare_next_token_padded_kernel_impl(
        sampled, is_discarded, backup, following, valid, vocabulary, most + 1, requests
    )
    for number, row in enumerate(sampled.tolist()):
        good = [] if is_discarded[number] else [one for one in row if -1 < one < vocabulary]
        assert valid[number] == len(good)
        assert following[number] == (good[-1] if good else backup[number])
    starts = torch.tensor([0, *(count + 1 for count in counts)]).cumsum(0).int()
    to_sample, rejected = torch.full((2, requests), -7)
    operations.eagle_prepare_inputs_padded_kernel_impl(
        cumulated, valid, starts, to_sample, rejected, requests
    )
    for number, count in enumerate(counts):
        wanted = count + 1 - int(valid[number]) if count else 0
        assert rejected[number] == wanted
        assert to_sample[number] == starts[number + 1] - 1 - wanted


def check_step(operations: Any, seed: int, positions: list[int], block_size: int) -> None:
    """The places of the tokens that a drafter makes next."""
    random, longest = drawn(seed), 30
    table = torch.randint(1, 99, (len(positions) + 1, longest // block_size + 1), generator=random)
    lengths = torch.tensor([one + 1 for one in positions])
    following, slots = torch.full((len(positions),), -7), torch.full((len(positions) + 2,), -7)
    operations.eagle_step_slot_mapping_metadata_kernel_impl(
        torch.tensor(positions), table, lengths, following, slots, block_size, longest, -1
    )
    for number, position in enumerate(positions):
        ends = position + 1 >= longest
        block, place = divmod(position + 1, block_size)
        assert following[number] == (0 if ends else position + 1)
        assert lengths[number] == (1 if ends else position + 2)
        assert slots[number] == (-1 if ends else table[number, block] * block_size + place)
    assert slots[len(positions) :].tolist() == [-1, -1]


LENGTHS = st.lists(st.tuples(st.integers(0, 70), st.integers(1, 40)), min_size=1, max_size=4)


@EXAMPLES
@given(
    seed=SEEDS,
    lengths=LENGTHS,
    heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 1)]),
    block_size=st.sampled_from([8, 16, 32]),
    dtype=st.sampled_from(sorted(DTYPES, key=str)),
    causal=st.booleans(),
    window=st.sampled_from([-1, 0, 1, 5, 33, 200]),
)
def test_attention_answers_as_torch_does(causal: bool, window: int, **example: Any) -> None:
    window = window if causal else 0
    check_attention(engine_operations, causal=causal, window=window, **example)


@EXAMPLES
@given(
    seed=SEEDS,
    count=st.integers(1, 9),
    turned=st.sampled_from([4, 8, 16]),
    is_neox=st.booleans(),
    has_key=st.booleans(),
)
def test_a_rotation_is_one_of_complex_numbers(**example: Any) -> None:
    check_rotation(engine_operations, **example)


@EXAMPLES
@given(
    seed=SEEDS,
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    block_size=st.sampled_from([4, 8, 16]),
)
def test_each_token_gets_the_slot_of_its_place(**example: Any) -> None:
    check_slots(engine_operations, **example)


@EXAMPLES
@given(seed=SEEDS, counts=st.lists(st.integers(0, 4), min_size=1, max_size=5))
def test_drafts_are_taken_up_to_the_first_that_is_wrong(**example: Any) -> None:
    check_drafts(engine_operations, **example)


@EXAMPLES
@given(
    seed=SEEDS,
    positions=st.lists(st.integers(0, 29), min_size=1, max_size=5),
    block_size=st.sampled_from([3, 4, 8]),
)
def test_a_drafter_goes_on_behind_its_last_token(**example: Any) -> None:
    check_step(engine_operations, **example)


def check_layers(operations: Any, seed: int) -> None:
    """What lies between attention and attention, by their formulas."""
    random = drawn(seed)
    rows, before, weight = numbers(random, 3, 6), numbers(random, 3, 6), numbers(random, 6)
    out = torch.empty_like(rows)
    operations.gelu_quick(out, rows)
    torch.testing.assert_close(out, rows / (1 + torch.exp(-1.702 * rows)))
    assert operations.greedy_argmax(rows).tolist() == rows.argmax(1).tolist()
    gated = torch.empty(3, 3)
    operations.silu_and_mul(gated, rows)
    torch.testing.assert_close(gated, rows[:, :3] / (1 + torch.exp(-rows[:, :3])) * rows[:, 3:])
    operations.rms_norm(out, rows, weight, 0.1)
    root = (rows.square().mean(-1, keepdim=True) + 0.1).sqrt()
    torch.testing.assert_close(out, rows / root * weight)
    given_rows, residual = rows.clone(), before.clone()
    operations.fused_add_rms_norm(given_rows, residual, weight, 0.1)
    torch.testing.assert_close(residual, rows + before)
    operations.rms_norm(out, rows + before, weight, 0.1)
    torch.testing.assert_close(given_rows, out)
    spread = torch.full((6,), -7)
    operations.expand_kernel_impl(spread, torch.tensor([4, 9, 5]), torch.tensor([2, 2, 5]), 5, 1)
    assert spread.tolist() == [4, 4, 1, 1, 1, -7]


def test_layers_are_what_they_are_called() -> None:
    check_layers(engine_operations, 1)


def check_drawn(operations: Any, seed: int) -> None:
    """Drafts of one that is drawn and of one that is greedy, with probabilities that decide."""
    target = torch.tensor([[0.5, 0.1, 0.4], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]])
    proposed = torch.tensor([[0.9, 0.05, 0.05], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]])
    ends, drafts, noise = torch.tensor([2, 3]), torch.tensor([0, 2, 1]), torch.ones(2, 3)
    recovered = torch.full((3,), -7)
    operations.sample_recovered_tokens_kernel_impl(
        recovered, ends, drafts, proposed, target, noise, 3, False
    )
    assert recovered.tolist() == [2, 1, 2]
    operations.sample_recovered_tokens_kernel_impl(
        recovered, ends, drafts, None, target, torch.tensor([[1, 9, 1], [9, 1, 1.0]]), 3, True
    )
    assert recovered.tolist() == [1, 1, 0]
    for uniform, taken in (
        ([0.6, 0.0, 0.0], [1, -1, -1]),
        ([0.55, 0.2, 0.0], [0, 1, -1]),
        ([0.55, 0.1, 0.0], [0, 2, 8]),
    ):
        output = torch.full((2, 3), -1)
        operations.rejection_random_sample_kernel_impl(
            output, ends, drafts, proposed, target, torch.tensor([8, 9]), recovered,
            torch.tensor(uniform), torch.tensor([False, True]), 2, 3, False,
        )  # fmt: skip
        assert output.tolist() == [taken, [-1, -1, -1]], uniform


def test_what_is_drawn_takes_the_place_of_what_is_rejected() -> None:
    check_drawn(engine_operations, 1)


def check_sides(operations: Any, seed: int) -> None:
    """A window that is said as two sides is one of a token more than stand before a query's own."""
    random = drawn(seed)
    query, caches = numbers(random, 5, 2, 8), [numbers(random, 3, 1, 16, 8) for _ in range(2)]
    shared = (torch.tensor([0, 5]), torch.tensor([37]), 0.3, True, None)
    behind = (torch.tensor([[2, 0, 1]]), 0.0, torch.empty(0), None)
    one, other = torch.zeros(2, 5, 2, 8)
    operations.attention_between_sides(query, *caches, one, *shared, 6, 0, *behind)
    operations.cpu_attention_with_kv_cache(query, *caches, other, *shared, 7, *behind)
    assert torch.equal(one, other)
    operations.attention_between_sides(query, *caches, one, *shared, -1, -1, *behind)
    operations.cpu_attention_with_kv_cache(query, *caches, other, *shared, -1, *behind)
    assert torch.equal(one, other)
    with pytest.raises(Illegal, match="behind=6"):
        operations.attention_between_sides(query, *caches, one, *shared, 6, 6, *behind)


def test_a_window_is_said_in_two_ways() -> None:
    check_sides(engine_operations, 2)


@pytest.mark.parametrize(
    "asked",
    [
        {"alibi_slopes": torch.ones(1)},
        {"softcap": 30.0},
        {"s_aux": torch.ones(1)},
        {"dynamic_causal": torch.ones(1)},
        {"kv_cache_dtype": "fp8"},
        {"window": 7, "causal": False},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_an_operation_does_not_know_is_refused_by_name(asked: dict[str, Any]) -> None:
    plain = {"alibi_slopes": None, "softcap": 0.0, "s_aux": None, "causal": True, "window": 0}
    cache = torch.zeros(1, 1, 8, 8)
    name = next(iter(asked))
    with pytest.raises(Illegal, match="sinks" if name == "s_aux" else name):
        engine_operations.cpu_attention_with_kv_cache(
            torch.zeros(1, 1, 8), cache, cache, torch.zeros(1, 1, 8), torch.tensor([0, 1]),
            torch.tensor([1]), scale=1.0, metadata=torch.empty(0),
            block_table=torch.zeros(1, 1, dtype=torch.int32), **plain | asked,
        )  # fmt: skip


def test_an_operation_that_is_not_there_is_refused_by_name() -> None:
    error = AttributeError("'_OpNamespace' '_C' object has no attribute 'convert_weight_packed'")
    with pytest.raises(Illegal, match="convert_weight_packed is not among the operations"):
        engine_operations.require(error)
    engine_operations.require(AttributeError("'Scheduler' object has no attribute 'x'"))


ALL: tuple[Callable[[Any], None], ...] = (
    lambda it: check_attention(it, 1, [(20, 3), (0, 17), (33, 1)], (4, 2)),
    lambda it: check_attention(it, 2, [(40, 5)], (2, 1), window=9),
    lambda it: check_attention(it, 3, [(2, 30)], (1, 1), causal=False),
    lambda it: check_rotation(it, 4, 5, 8, is_neox=True),
    lambda it: check_rotation(it, 5, 5, 8, is_neox=False),
    lambda it: check_slots(it, 6, [5, 1, 9], 4),
    *(lambda it, seed=seed: check_drafts(it, seed, [3, 0, 1, 4, 2]) for seed in range(7, 12)),
    lambda it: check_step(it, 12, [4, 28, 29, 0], 4),
    lambda it: check_layers(it, 13),
    lambda it: check_sides(it, 14),
    lambda it: check_drawn(it, 15),
)


def check_all(operations: Any) -> None:
    for check in ALL:
        check(operations)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("there > here", "there >= here + 2"),
        ("there <= here - window", "there < here - window"),
        ("here = torch.arange(length - (end - start), length)", "here = torch.arange(end - start)"),
        ("(slots >= 0)", "(slots >= -1)"),
        ("written % block_size", "(written + 1) % block_size"),
        ("heads // cache.shape[1], dim=0", "heads // cache.shape[1], dim=1"),
        ("* scale", "* 1.0"),
        ("one * cosines - two * sines", "one * cosines + two * sines"),
        ("two * cosines + one * sines", "two * cosines + heads[..., first] * sines"),
        ("slice(0, turned, 2)", "slice(0, turned // 2)"),
        ("at // block_size", "at // (block_size + 1)"),
        ("slots[starts[-1] :] = -1", "pass"),
        ("int(wrong[0]) + 1", "int(wrong[0])"),
        ("if is_greedy is None or is_greedy[number]:", "if True:"),
        ("output[number, count] = bonus", "output[number, count] = 1 + bonus"),
        ("(row != -1) & (row < vocab_size)", "(row != -1)"),
        ("if is_discarded[number]:", "if False:"),
        ("num_drafts + 1 - num_valid", "num_drafts - num_valid"),
        (".where(num_drafts > 0, 0)", ""),
        ("positions + 1 >= max_model_len", "positions + 2 >= max_model_len"),
        (".where(~ends, pad)", ""),
        ("slots[count:] = pad", "pass"),
        (".where(~ends, 1)", ""),
        ("gate, rest = given", "rest, gate = given"),
        ("eps=epsilon", "eps=0.0"),
        ("residual.add_(given)", "given.add_(residual)"),
        ("masked_fill(given == replaced, by)", "masked_fill(given != replaced, by)"),
        ("before + 1,", "before,"),
        ("(left - draft_probs).clamp(min=0)", "left"),
        ("wanted / drawn < uniform[place]", "wanted < uniform[place]"),
        ("if not is_greedy[number]:", "if True:"),
    ],
)
def test_an_error_in_an_operation_is_seen(right: str, wrong: str) -> None:
    source = SOURCE.read_text()
    assert source.count(right) == 1, "the place is not what it was"
    other = types.ModuleType("other")
    vars(other).update(__package__=engine_operations.__package__)
    exec(compile(source.replace(right, wrong), str(SOURCE), "exec"), vars(other))
    with pytest.raises((AssertionError, RuntimeError)):
        check_all(other)


def test_without_an_error_nothing_is_seen() -> None:
    check_all(engine_operations)
