"""Gathering rows of the encoder store into the token stream, beside a plain copy of as many bytes.

    .venv/bin/python benchmarks/splice.py
    .venv/bin/python benchmarks/splice.py --device cuda --python PYTHON

Rows are as wide as those of a 7B model, in bfloat16. A window is so many of a prompt's tokens, out
of the middle of each of its items; where an item is sparse, each seventeenth of its tokens receives
no row. *Places* is what the host does to find out which tokens receive rows, which the device need
not wait for; *splice* is all the rest. Both are in turns with the copy.
"""

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import beside
import torch_side

if TYPE_CHECKING:
    from cacheproof.gpu_runner.runner import Runner

HIDDEN_SIZE = 3584
BYTES_OF_A_ROW = 2 * HIDDEN_SIZE
SEPARATOR_EVERY = 17
BYTES_OF_A_SAMPLE = 100_000_000


class Case(NamedTuple):
    """So many items of so many tokens, of which a step takes a window of each."""

    items: int
    tokens: int
    window: int
    sparse: bool

    def is_embed(self) -> tuple[bool, ...] | None:
        """Which tokens of an item receive rows; None: all."""
        if not self.sparse:
            return None
        return tuple((at + 1) % SEPARATOR_EVERY != 0 for at in range(self.tokens))

    @property
    def first(self) -> int:
        """Where a window begins in its item."""
        return (self.tokens - self.window) // 2

    @property
    def rows(self) -> int:
        """Rows of an item."""
        return self.tokens - self.sparse * (self.tokens // SEPARATOR_EVERY)

    @property
    def rows_read(self) -> int:
        """Rows that the windows receive."""
        end = self.first + self.window
        separators = end // SEPARATOR_EVERY - self.first // SEPARATOR_EVERY
        return self.items * (self.window - self.sparse * separators)

    @property
    def bytes_read(self) -> int:
        """And their memory."""
        return self.rows_read * BYTES_OF_A_ROW

    @property
    def repeats(self) -> int:
        """Splices of a sample, which are timed together."""
        return max(1, min(100, BYTES_OF_A_SAMPLE // self.bytes_read))


CASES = [
    Case(items, tokens, window, sparse)
    for sparse in (False, True)
    for items, tokens, window in (
        (1, 256, 256),
        (16, 256, 256),
        (1, 4784, 256),
        (1, 4784, 2048),
        (1, 4784, 4784),
        (1, 19136, 2048),
        (1, 19136, 19136),
    )
]


def main() -> None:
    torch_side.print_table(
        __doc__,
        __file__,
        CASES,
        "GB/s of rows, microseconds of places",
        "| items of tokens | window | | MB | copy | splice | copy / splice, time | places |",
        columns,
    )


def columns(case: Case, line: dict[str, list[float]]) -> list[str]:
    size = case.bytes_read
    speeds = ([size / one / 1e9 for one in line[what]] for what in ("copy", "splice"))
    return [
        f"{case.items} x {case.tokens:,}",
        f"{case.window:,}",
        "sparse" if case.sparse else "dense",
        f"{size / 1e6:.1f}",
        *(beside.spread(speed, digits=1) for speed in speeds),
        beside.spread(beside.ratios(line["copy"], line["splice"])),
        beside.spread(line["places"], 1e6, digits=0),
    ]


def inside(job: Any) -> None:
    """Runs where torch is: one line of JSON for each case, seconds of one call."""
    torch_side.tell_each(
        job, (partial(measure, Case(*case), job["rounds"]) for case in job["cases"])
    )


def measure(case: Case, rounds: int, device: Any) -> dict[str, list[float]]:
    """Seconds of a plain copy, a splice, and of finding its places, of each round."""
    import torch

    runner, prompt = make(case, device)
    runner.add("a", prompt)
    request = runner.batch.of("a")
    length = case.items * case.tokens
    embeds = torch.zeros(length, HIDDEN_SIZE, dtype=torch.bfloat16, device=device)
    source = torch.ones(case.rows_read, HIDDEN_SIZE, dtype=torch.bfloat16, device=device)
    windows = [
        (item.feature.mm_position.offset + case.first, number * case.window)
        for number, item in enumerate(prompt.items)
    ]

    def places() -> list[Any]:
        return [
            gathering
            for start, first in windows
            for gathering in runner._gatherings("a", request, start, start + case.window, first)
        ]

    gatherings = places()
    sides: dict[str, Callable[[], Any]] = {
        "copy": lambda: embeds[: case.rows_read].copy_(source),
        "splice": lambda: runner._splice(embeds, gatherings),
        "places": places,
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(rounds + 1):
        for name, side in sides.items():
            on = device if name != "places" else torch.device("cpu")
            spent = torch_side.timed(side, case.repeats if name != "places" else 20, on)
            if round_:
                seconds[name].append(spent)
    check(case, runner, embeds, sides["splice"])
    return seconds


def check(case: Case, runner: "Runner", embeds: Any, splice: Callable[[], Any]) -> None:
    """The rows are where they belong: a window's, and nothing beside them."""
    embeds.zero_()
    splice()
    mask = case.is_embed() or (True,) * case.tokens
    row = sum(mask[: case.first])
    taken = mask[case.first : case.first + case.window]
    expected = iter(range(row, row + sum(taken)))
    of_window = [next(expected) % 251 + 1 if one else 0 for one in taken]
    assert embeds[:, 0].tolist()[: case.items * case.window] == of_window * case.items
    assert not embeds[case.items * case.window :].any()


def make(case: Case, device: Any) -> tuple["Runner", Any]:
    """A runner whose store holds the items, and a prompt that has them one behind the other."""
    import torch

    from cacheproof.gpu_runner.kv_store import KVShape
    from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
    from cacheproof.gpu_runner.runner import Runner
    from cacheproof.reference.request import MultiModalFeature, PlaceholderRange

    model: Any = SimpleNamespace(
        kv_shape=KVShape(1, 1, 1),
        cross_kv_shape=None,
        hidden_size=HIDDEN_SIZE,
        dtype=torch.bfloat16,
        device=device,
        rotary_positions=lambda _: None,
    )
    capacity = case.items * case.rows
    runner = Runner(model, num_blocks=1, block_size=1, encoder_cache_size=capacity)
    numbers = torch.arange(case.rows, device=device) % 251 + 1  # what bfloat16 tells apart
    items: Sequence[Any] = [
        MediaItem(
            MultiModalFeature.of(
                f"item-{number}",
                PlaceholderRange(number * case.tokens, case.tokens, case.is_embed()),
            ),
            "video",
            {},
        )
        for number in range(case.items)
    ]
    for item in items:
        rows = numbers[:, None].expand(-1, HIDDEN_SIZE).to(torch.bfloat16)
        runner.encoder_store.put(item.feature.identifier, rows)
    assert runner.encoder_store.peak_bytes == capacity * BYTES_OF_A_ROW
    return runner, RunnerPrompt((0,) * (case.items * case.tokens), tuple(items))


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(json.loads(sys.argv[2]))
    else:
        main()
