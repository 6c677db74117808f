"""The scopes of schedulers that are explored, each as small as what it is about allows.

What red twins break at once comes first.
"""

from functools import partial
from typing import Any

from msgspec.structs import replace

from cacheproof.differential.trace import (
    Adapter,
    Add,
    Item,
    Reset,
    ResetPrefix,
    SchedulerConfig,
)
from cacheproof.proofs.explore.scope import ANY, SchedulerScope

_CONFIG = SchedulerConfig(
    capacity=2,
    compute_budget=2,
    max_num_batched_tokens=4,
    max_num_seqs=2,
    max_model_len=8,
    block_size=2,
    num_blocks=4,
)
_scope = partial(SchedulerScope, lane="scheduler", requests="ab", further=())


def _asks(prompt: int, *items: Item, max_tokens: int = 1, **settings: Any) -> Add:
    """How a request arrives."""
    return Add(ANY, prompt, items, max_tokens, **settings)


def _item(identifier: str, offset: int, *, size: int = 1) -> Item:
    return Item(identifier, offset, size)


SMALL = (
    _scope(
        "items in chunks",
        config=replace(_CONFIG, max_num_batched_tokens=2),
        arrivals=(_asks(5, _item("y", 1, size=2)),),
        further=(Reset(),),
    ),
    _scope(
        "whole items",
        config=replace(
            _CONFIG,
            max_num_batched_tokens=3,
            disable_chunked_mm_input=True,
            long_prefill_token_threshold=1,
            prefix_caching=False,
        ),
        arrivals=(
            _asks(3, _item("y", 0, size=2)),
            _asks(2),
            _asks(4, Item("long", 0, 4, None, (True, False, False, False))),
        ),
    ),
    _scope(
        "whole items and a drafter",
        config=replace(
            _CONFIG,
            max_num_batched_tokens=3,
            disable_chunked_mm_input=True,
            num_speculative_tokens=1,
            drafter=True,
            prefix_caching=False,
        ),
        arrivals=(_asks(4, _item("x", 0, size=2), _item("y", 2, size=2)),),
    ),
    _scope(
        "two steps in flight",
        config=replace(_CONFIG, async_scheduling=True, num_blocks=3),
        arrivals=(_asks(2, _item("x", 1), max_tokens=2),),
    ),
    _scope(
        "order of eviction",
        config=replace(_CONFIG, prefix_caching=False),
        arrivals=tuple(_asks(1, _item(identifier, 0)) for identifier in "vwx"),
    ),
    _scope(
        "adapters",
        requests="abc",
        config=replace(_CONFIG, max_num_batched_tokens=2, max_loras=1, prefix_caching=False),
        arrivals=(
            _asks(1, max_tokens=2, lora=Adapter("adapter-1", 1, "/adapters/1")),
            _asks(2, lora=Adapter("adapter-2", 2, "/adapters/2")),
        ),
    ),
    _scope(
        "prompts at once",
        requests="abc",
        config=replace(_CONFIG, chunked_prefill=False, prefix_caching=False, num_blocks=5),
        arrivals=(_asks(4, _item("x", 1)), _asks(2)),
    ),
    _scope(
        "a drafter",
        config=replace(
            _CONFIG,
            max_num_batched_tokens=3,
            long_prefill_token_threshold=1,
            num_speculative_tokens=1,
            drafter=True,
        ),
        arrivals=(
            _asks(4, Item("z", 1, 2, None, (False, True))),
            _asks(1, max_tokens=2),
        ),
    ),
    _scope(
        "priority",
        config=replace(_CONFIG, policy="priority"),
        arrivals=(_asks(2, _item("x", 1), max_tokens=3), _asks(3, priority=-1)),
    ),
    _scope(
        "preemption",
        config=_CONFIG,
        arrivals=(_asks(2, _item("x", 1), max_tokens=3),),
        further=(ResetPrefix(True),),
    ),
)
LARGE = (
    _scope(
        "items in chunks beside others",
        config=replace(_CONFIG, max_num_batched_tokens=2),
        arrivals=(_asks(4, _item("y", 1, size=2)), _asks(3, _item("x", 1))),
        further=(Reset(), ResetPrefix()),
    ),
    _scope(
        "preemption beside text",
        config=_CONFIG,
        arrivals=(_asks(2, _item("x", 1), max_tokens=3), _asks(2, max_tokens=3)),
        further=(ResetPrefix(True),),
    ),
    _scope(
        "two steps in flight and preemption",
        config=replace(_CONFIG, async_scheduling=True),
        arrivals=(_asks(2, _item("x", 1), max_tokens=3), _asks(3, _item("w", 0))),
        further=(ResetPrefix(True),),
    ),
    _scope(
        "preemption of three",
        requests="abc",
        config=replace(_CONFIG, max_num_seqs=3, num_blocks=5),
        arrivals=(_asks(2, _item("x", 1), max_tokens=3),),
        further=(ResetPrefix(True),),
    ),
)
