"""Compares our operations with an engine's compiled ones, in that engine's interpreter.

    PYTHON compiled_operations.py FOLDER_OF_THE_HOST

Prints the largest difference of each, and ends with an error where one is more than rounding.
"""

import importlib
import sys
import types
from itertools import product
from typing import Any

import torch
from vllm import _custom_ops  # noqa: F401  # loads the library for CPUs
from vllm.platforms import current_platform
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

WITHIN = 2e-5
BLOCK_SIZE, HEAD_SIZE = 32, 32


def ours() -> Any:
    """The module, without the package around it."""
    package = types.ModuleType("host")
    package.__path__ = [sys.argv[1]]
    sys.modules["host"] = package
    return importlib.import_module("host.engine.operations")


def attention(of: Any, random: torch.Generator, causal: bool, window: int) -> torch.Tensor:
    """Three requests, some of whose rows are in the cache already, in blocks out of order."""
    heads, kv_heads, lengths, now = 4, 2, [70, 33, 9], [5, 33, 1]
    isa = _get_attn_isa(torch.float32, BLOCK_SIZE, HEAD_SIZE)
    keys, values = torch.zeros(2, 8, kv_heads, BLOCK_SIZE, HEAD_SIZE)
    table = torch.tensor([[5, 2, 7], [1, 6, 0], [3, 0, 0]], dtype=torch.int32)
    for number, length in enumerate(lengths):
        rows = torch.randn(2, length, kv_heads, HEAD_SIZE, generator=random)
        at = torch.arange(length)
        slots = table[number][at // BLOCK_SIZE] * BLOCK_SIZE + at % BLOCK_SIZE
        of.cpu_attn_reshape_and_cache(rows[0], rows[1], keys, values, slots.long(), isa)
    starts = torch.tensor([0, *now]).cumsum(0).int()
    query = torch.randn(sum(now), heads, HEAD_SIZE, generator=random)
    asked = torch.tensor(lengths).int()
    plan = of.get_scheduler_metadata(
        3, heads, kv_heads, HEAD_SIZE, asked, torch.float32, starts, causal, window, isa, True, None
    )
    output = torch.zeros_like(query)
    of.cpu_attention_with_kv_cache(
        query,
        keys,
        values,
        output,
        starts,
        asked,
        0.2,
        causal,
        None,
        window,
        table,
        0.0,
        plan,
        None,
        None,
    )
    return output


def rotation(of: Any, random: torch.Generator, is_neox: bool, turned: int) -> torch.Tensor:
    rows = torch.randn(2, 7, 4 * HEAD_SIZE, generator=random)
    positions = torch.randint(0, 50, (7,), generator=random)
    table = torch.randn(50, turned, generator=random)
    of.rotary_embedding(positions, rows[0], rows[1], HEAD_SIZE, table, is_neox)
    return rows


def drafts(of: Any, random: torch.Generator) -> torch.Tensor:
    counts, most, requests = torch.tensor([3, 0, 1, 4]), 4, 4
    ends, total = counts.cumsum(0), int(counts.sum())
    proposed, likeliest = (torch.randint(0, 2, (total,), generator=random) for _ in range(2))
    bonus = torch.randint(0, 2, (requests, 1), generator=random)
    sampled = torch.full((requests, most + 1), -1)
    of.rejection_greedy_sample_kernel_impl(sampled, ends, proposed, likeliest, bonus, None, most)
    is_discarded = torch.rand(requests, generator=random) < 0.3
    backup = torch.arange(requests) + 5
    following, valid, to_sample, rejected = torch.zeros(4, requests).long()
    of.eagle_prepare_next_token_padded_kernel_impl(
        sampled, is_discarded, backup, following, valid, 9, most + 1, requests
    )
    starts = torch.cat([torch.zeros(1), (counts + 1).cumsum(0)]).int()
    place = to_sample.int()
    of.eagle_prepare_inputs_padded_kernel_impl(ends, valid, starts, place, rejected, requests)
    return torch.cat([sampled.flatten(), following, valid, place, rejected]).float()


def drawn(of: Any, random: torch.Generator, no_draft_probs: bool) -> torch.Tensor:
    counts, vocab, requests = torch.tensor([3, 0, 2, 4]), 12, 4
    ends, total = counts.cumsum(0), int(counts.sum())
    target, proposed = torch.rand(2, total, vocab, generator=random).softmax(-1)
    drafts = torch.randint(0, vocab, (total,), generator=random)
    noise = torch.rand(requests, vocab, generator=random) + 0.1
    of_drafts = None if no_draft_probs else proposed
    recovered = torch.zeros(total).long()
    of.sample_recovered_tokens_kernel_impl(
        recovered, ends, drafts, of_drafts, target, noise, vocab, no_draft_probs
    )
    sampled = torch.full((requests, 5), -1)
    uniform = torch.rand(total, generator=random) * (0.2 if no_draft_probs else 1.0)
    greedy = torch.tensor([False, False, False, True])
    bonus = torch.randint(0, vocab, (requests, 1), generator=random)
    of.rejection_random_sample_kernel_impl(
        sampled, ends, drafts, of_drafts, target, bonus, recovered, uniform, greedy, 4, vocab,
        no_draft_probs,
    )  # fmt: skip
    return torch.cat([sampled.flatten(), recovered]).float()


def step(of: Any, random: torch.Generator) -> torch.Tensor:
    positions = torch.tensor([3, 30, 62, 63])
    table = torch.randint(1, 9, (4, 4), generator=random).int()
    lengths, slots = torch.tensor([4, 31, 63, 64]).int(), torch.full((4,), -7)
    following = torch.zeros(4).long()
    of.eagle_step_slot_mapping_metadata_kernel_impl(
        positions, table, lengths, following, slots, 16, 64, -1
    )
    return torch.cat([lengths, following, slots]).float()


def mapping(of: Any, random: torch.Generator) -> torch.Tensor:
    starts, positions = torch.tensor([0, 5, 6]).int(), torch.tensor([0, 1, 2, 3, 4, 40])
    table = torch.randint(1, 9, (2, 4), generator=random).int()
    slots = torch.full((9,), -7)
    of.compute_slot_mapping_kernel_impl(starts, positions, table, slots, 16)
    return slots[:6].float()


def layers(of: Any, random: torch.Generator) -> torch.Tensor:
    rows, residual = torch.randn(2, 5, 64, generator=random)
    weight, gated = torch.randn(64, generator=random), torch.zeros(5, 32)
    quick, normed, spread = torch.zeros(5, 64), torch.zeros(5, 64), torch.full((6,), -7)
    of.gelu_quick(quick, rows)
    of.silu_and_mul(gated, rows)
    of.rms_norm(normed, rows, weight, 1e-5)
    of.fused_add_rms_norm(rows, residual, weight, 1e-5)
    of.expand_kernel_impl(spread, torch.tensor([4, 9, 5]), torch.tensor([2, 2, 5]), 5, 1)
    return torch.cat(
        [one.flatten().float() for one in (quick, gated, normed, rows, residual, spread)]
    )


CASES = {
    "attention": (attention, (True, -1)),
    "attention in a window": (attention, (True, 7)),
    "attention to both sides": (attention, (False, -1)),
    **{
        f"rotation, halves {is_neox}, of {turned}": (rotation, (is_neox, turned))
        for is_neox, turned in product((True, False), (16, 32))
    },
    "drafts": (drafts, ()),
    "drawn drafts": (drawn, (False,)),
    "drawn drafts without probabilities": (drawn, (True,)),
    "step of a drafter": (step, ()),
    "slot mapping": (mapping, ()),
    "layers": (layers, ()),
}


def main() -> None:
    assert current_platform.is_cpu(), "the engine chose another platform"
    current_platform.import_kernels()
    own, compiled = ours(), torch.ops._C
    assert hasattr(compiled, "cpu_attention_with_kv_cache"), "no compiled parts are loaded"
    for name, (run, how) in CASES.items():
        worst = 0.0
        for seed in range(20):
            answers = [
                run(one, torch.Generator().manual_seed(seed), *how) for one in (own, compiled)
            ]
            worst = max(worst, float((answers[0] - answers[1]).abs().max()))
        print(f"{name}: {worst:.1e}")
        assert worst < WITHIN, f"{name} differs by {worst}"
    print(f"compared: {len(CASES)}")


if __name__ == "__main__":
    main()
