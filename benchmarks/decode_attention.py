"""Attention of requests that decode: one call for those of about one length, or one for each.

    .venv/bin/python benchmarks/decode_attention.py
    .venv/bin/python benchmarks/decode_attention.py --device cuda --python PYTHON

A step of so many requests, each with one token behind a context, through so many layers; in turns
as one step of all, and as a step of each. Both must answer alike.
"""

import json
import random
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import beside
import torch_side

LAYERS = 4
BLOCK_SIZE = 16
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
"""Between two orders of adding up, of answers about as large as 1."""


class Case(NamedTuple):
    """Requests with contexts of `least` to `most` tokens, under heads of one shape."""

    heads: int
    kv_heads: int
    head_dim: int
    requests: int
    least: int
    most: int

    def contexts(self) -> list[int]:
        """How many tokens each request has, the one that it decodes among them."""
        return [random.Random(at).randint(self.least, self.most) for at in range(self.requests)]


CASES = [
    Case(*heads, *requests)
    for heads in ((2, 1, 32), (28, 4, 128))
    for requests in ((1, 512, 512), (8, 512, 512), (64, 512, 512), (64, 16, 1024))
]


def main() -> None:
    torch_side.print_table(
        __doc__,
        __file__,
        CASES,
        "Microseconds of a layer",
        "| heads | requests | tokens of each | one by one | together | one by one / together |",
        columns,
    )


def columns(case: Case, line: list[list[float]]) -> list[str]:
    apart, together = line
    tokens = f"{case.least}" if case.least == case.most else f"{case.least} to {case.most}"
    return [
        f"{case.heads} on {case.kv_heads} of {case.head_dim}",
        str(case.requests),
        tokens,
        *(beside.spread(one, 1e6, digits=0) for one in line),
        beside.spread(beside.ratios(apart, together)),
    ]


def inside(job: Any) -> None:
    """Runs where torch is: one line of JSON for each case, seconds of a layer."""
    torch_side.tell_each(
        job, (partial(measure, Case(*case), job["rounds"]) for case in job["cases"])
    )


def measure(case: Case, rounds: int, device: Any) -> list[list[float]]:
    """Seconds of a layer in each round, one by one and together."""
    import torch

    dtype = "float32" if device.type == "cpu" else "bfloat16"
    with torch.inference_mode():
        sides = make(case, device, getattr(torch, dtype))
        apart, together = (side() for side in sides)
        assert (apart - together).abs().max().item() < TOLERANCE[dtype]
        seconds: list[list[float]] = [[] for _ in sides]
        for _ in range(rounds):
            for timed, side in zip(seconds, sides, strict=True):
                timed.append(torch_side.timed(side, 1, device) / LAYERS)
    return seconds


def make(case: Case, device: Any, dtype: Any) -> list[Callable[[], Any]]:
    """A step of each request, and one of all."""
    import torch

    from cacheproof.gpu_runner.devices import upload
    from cacheproof.gpu_runner.kv_store import KVShape, PagedKVStore
    from cacheproof.gpu_runner.paged_attention import (
        PagedGroup,
        PagedStep,
        Window,
        paged_attention,
    )

    torch.manual_seed(0)
    contexts = case.contexts()
    blocks = [-(-tokens // BLOCK_SIZE) for tokens in contexts]
    store = PagedKVStore(
        KVShape(1, case.kv_heads, case.head_dim),
        sum(blocks) + 1,
        BLOCK_SIZE,
        dtype=dtype,
        device=device,
    )
    store.layers[0].normal_()
    free = iter(random.Random(0).sample(range(1, sum(blocks) + 1), sum(blocks)))
    slots = [
        store.slots([next(free) for _ in range(count)], 0, tokens)
        for count, tokens in zip(blocks, contexts, strict=True)
    ]
    query, key, value = (
        torch.randn(1, heads, case.requests, case.head_dim, dtype=dtype, device=device)
        for heads in (case.heads, case.kv_heads, case.kv_heads)
    )
    module: Any = SimpleNamespace(layer_idx=0)

    def step(first: int, end: int) -> torch.Tensor:
        uploaded = [upload(one, device) for one in slots[first:end]]
        group = PagedGroup(
            upload(torch.stack([one[-1] for one in slots[first:end]]), device),
            tuple(Window(at, at + 1, one) for at, one in enumerate(uploaded)),
        )
        paged = PagedStep(store, (group,))
        own = (one[:, :, first:end] for one in (query, key, value))
        given = (module, *own, None, case.head_dim**-0.5)
        for _ in range(LAYERS):
            answer, _none = paged_attention(*given, paged=paged)
        return answer

    def apart() -> torch.Tensor:
        return torch.cat([step(at, at + 1) for at in range(case.requests)], dim=1)

    return [apart, lambda: step(0, case.requests)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(json.loads(sys.argv[2]))
    else:
        main()
